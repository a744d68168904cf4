"""A raw HTTP/1.x client that parses answers strictly.

Nothing is repaired on the way: header lines keep their order and repeats, an answer must be framed
exactly once, and bytes that belong to no answer are an error.
"""

import json
import socket
import struct

from waiting import PATIENCE_S

TOKEN = set("!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
HEAD_SIZE_MAX = 1 << 17


class ProtocolError(AssertionError):
    """The peer broke HTTP, or closed before its answer was whole."""


class ConnectionEnded(ProtocolError):
    """The peer closed or reset the connection where an answer was expected."""


class Response:
    def __init__(self, version, status, reason, headers):
        self.version, self.status, self.reason = version, status, reason
        self.headers = headers
        self.body = b""
        self.framing = "none"
        self.interim = []  # the 1xx answers that came before

    def all(self, name):
        """Every value of a field, in order, one for each line."""
        return [value for field, value in self.headers if field.lower() == name.lower()]

    def get(self, name):
        """The value of a field that may occur once at most, or None."""
        values = self.all(name)
        assert len(values) <= 1, f"{name} occurs {len(values)} times: {values}"
        return values[0] if values else None

    def json(self):
        return json.loads(self.body.decode("utf-8"))

    @property
    def replayed(self):
        return self.get("Idempotent-Replayed") == "true"

    def __repr__(self):
        return f"<Response {self.status} {self.headers} {self.body[:200]!r}>"


def parse_header_lines(lines):
    headers = []
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name or not set(name) <= TOKEN:
            raise ProtocolError(f"bad header line: {line!r}")
        headers.append((name, value.strip(" \t")))
    return headers


def parse_head(head):
    lines = head.decode("latin-1").split("\r\n")
    if any("\n" in line or "\r" in line for line in lines):
        raise ProtocolError(f"bare CR or LF in the head: {head!r}")
    version, _, rest = lines[0].partition(" ")
    status, _, reason = rest.partition(" ")
    if version not in ("HTTP/1.0", "HTTP/1.1") or len(status) != 3 or not status.isdigit():
        raise ProtocolError(f"bad status line: {lines[0]!r}")
    return Response(version, int(status), reason, parse_header_lines(lines[1:]))


def build_request(method, target, headers=(), body=b"", chunked=False, version="HTTP/1.1",
                  host="idem.test"):
    """The bytes of a request. `headers` is a list of pairs, repeats kept; body None sends none."""
    head = [f"{method} {target} {version}"]
    if host is not None:
        head.append(f"Host: {host}")
    head += [f"{name}: {value}" for name, value in headers]
    payload = body or b""
    if chunked:
        head.append("Transfer-Encoding: chunked")
        payload = encode_chunks([payload])
    elif body is not None:
        head.append(f"Content-Length: {len(payload)}")
    return ("\r\n".join(head) + "\r\n\r\n").encode("latin-1") + payload


def encode_chunks(parts):
    chunks = [b"%x\r\n%s\r\n" % (len(part), part) for part in parts if part]
    return b"".join(chunks) + b"0\r\n\r\n"


class Reader:
    """Buffered reading from a socket, for the client and for the scripted upstream alike."""

    def __init__(self, sock):
        self.sock = sock
        self.buffer = bytearray()

    def fill(self):
        """Reads more; False at the end of the stream."""
        try:
            piece = self.sock.recv(65536)
        except ConnectionResetError:
            piece = b""
        except socket.timeout as error:
            raise ProtocolError(f"no more bytes in time; had {bytes(self.buffer)!r}") from error
        self.buffer += piece
        return bool(piece)

    def take(self, size):
        while len(self.buffer) < size:
            if not self.fill():
                raise ProtocolError(f"closed {size - len(self.buffer)} bytes too early")
        piece = bytes(self.buffer[:size])
        del self.buffer[:size]
        return piece

    def take_until(self, mark):
        while (at := self.buffer.find(mark)) < 0:
            if len(self.buffer) > HEAD_SIZE_MAX:
                raise ProtocolError("head is too long")
            had = bytes(self.buffer)
            if not self.fill():
                kind = ProtocolError if had else ConnectionEnded
                raise kind(f"closed in the middle of a head: {had!r}")
        piece = bytes(self.buffer[:at])
        del self.buffer[: at + len(mark)]
        return piece

    def take_rest(self):
        while self.fill():
            pass
        piece = bytes(self.buffer)
        self.buffer.clear()
        return piece

    def take_chunked(self):
        body = bytearray()
        while True:
            line = self.take_until(b"\r\n").partition(b";")[0].strip()
            if not line or not set(line) <= set(b"0123456789abcdefABCDEF"):
                raise ProtocolError(f"bad chunk size: {line!r}")
            size = int(line, 16)
            if size == 0:
                break
            body += self.take(size)
            if self.take(2) != b"\r\n":
                raise ProtocolError("a chunk does not end with CRLF")
        while self.take_until(b"\r\n"):
            pass  # trailers
        return bytes(body)


class Client:
    """One connection. Answers are read in order; finish() proves that nothing was left over."""

    def __init__(self, port, host="127.0.0.1", timeout=2 * PATIENCE_S):
        self.sock = socket.create_connection((host, port), timeout=timeout)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.reader = Reader(self.sock)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def send(self, data):
        self.sock.sendall(data)

    def request(self, method, target, headers=(), body=b"", **how):
        """Sends one request and reads its answer; the connection stays usable."""
        self.send(build_request(method, target, headers, body, **how))
        return self.read_response(method)

    def read_response(self, method="POST", allow_close=False):
        interim = []
        while True:
            response = parse_head(self.reader.take_until(b"\r\n\r\n"))
            if response.status >= 200 or response.status == 101:
                break
            interim.append(response)
        response.interim = interim
        self._read_body(response, method, allow_close)
        return response

    def _read_body(self, response, method, allow_close):
        lengths = response.all("Content-Length")
        codings = response.all("Transfer-Encoding")
        if len(lengths) + len(codings) > 1:
            raise ProtocolError(f"framed more than once: {response.headers}")
        if method == "HEAD" or response.status in (101, 204, 304):
            if response.status != 304 and method != "HEAD" and (lengths or codings):
                raise ProtocolError(f"{response.status} with a body framing: {response.headers}")
            return
        if codings:
            if codings[0].lower() != "chunked" or response.version == "HTTP/1.0":
                raise ProtocolError(f"bad Transfer-Encoding: {codings}")
            response.framing, response.body = "chunked", self.reader.take_chunked()
        elif lengths:
            if not lengths[0].isdigit():
                raise ProtocolError(f"bad Content-Length: {lengths[0]!r}")
            response.framing = "length"
            response.body = self.reader.take(int(lengths[0]))
        else:
            if not allow_close:
                raise ProtocolError(f"not framed: {response.headers}")
            response.framing, response.body = "close", self.reader.take_rest()

    def finish(self):
        """Ends the connection in order and fails if any byte came that belongs to no answer."""
        try:
            self.sock.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # the peer was first
        left = self.reader.take_rest()
        self.close()
        if left:
            raise ProtocolError(f"bytes left over after the answer: {left!r}")

    def ended_by_peer(self):
        """Waits for the peer to close and returns the bytes that came before that."""
        return self.reader.take_rest()

    def hang_up(self):
        """Goes away in the middle, as a client that was killed does."""
        self.close()

    def reset(self):
        """Goes away with a TCP reset."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()

    def close(self):
        self.sock.close()


def send(port, method="POST", target="/pay", key=None, headers=(), body=b'{"amount":1}', **how):
    """One request on a connection of its own: sends, reads strictly, proves nothing is left."""
    lines = list(headers)
    if key is not None:
        lines.append(("Idempotency-Key", key))
    with Client(port) as client:
        response = client.request(method, target, lines, body, **how)
        client.finish()
    return response
