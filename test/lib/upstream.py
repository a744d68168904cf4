"""A scripted upstream on raw sockets.

It records every request that reached it and answers by script: any status, headers with repeats,
any framing, interim answers, holds that a test releases, and every way of failing. One thread a
connection; a test reads `requests` and `count()` while it runs.
"""

import dataclasses
import socket
import struct
import threading

from rawhttp import ProtocolError, Reader, encode_chunks, parse_header_lines
from waiting import PATIENCE_S, wait_until

REASONS = {100: "Continue", 101: "Switching Protocols", 103: "Early Hints", 200: "OK",
           201: "Created", 202: "Accepted", 204: "No Content", 304: "Not Modified",
           400: "Bad Request", 401: "Unauthorized", 402: "Payment Required", 500: "Internal",
           502: "Bad Gateway", 503: "Service Unavailable", 504: "Gateway Timeout"}


class Gate:
    """Holds an answer back until the test releases it."""

    def __init__(self):
        self._open = threading.Event()
        self._reached = threading.Event()

    def pass_through(self):
        self._reached.set()
        self._open.wait()

    def release(self):
        self._open.set()

    def wait_reached(self, timeout=PATIENCE_S):
        assert self._reached.wait(timeout), "the upstream never reached the gate"


@dataclasses.dataclass
class Request:
    method: str
    target: str
    version: str
    headers: list
    body: bytes
    connection: int  # number of the connection that it came on
    number: int      # counted over the whole upstream, from 1

    def all(self, name):
        return [value for field, value in self.headers if field.lower() == name.lower()]

    def get(self, name):
        values = self.all(name)
        assert len(values) <= 1, f"the upstream saw {name} {len(values)} times: {values}"
        return values[0] if values else None

    @property
    def key(self):
        return self.get("Idempotency-Key")


@dataclasses.dataclass
class Answer:
    """One scripted answer. Without a body it tells the number of the execution."""

    status: int = 201
    headers: list = dataclasses.field(default_factory=list)
    body: bytes | None = None
    framing: str = "length"   # length, chunked, close, none
    pieces: int = 1           # the body is sent in this many pieces (chunks when chunked)
    interim: list = dataclasses.field(default_factory=list)  # pairs of status and header list
    hold: Gate | None = None        # before the first byte of the answer
    hold_body: Gate | None = None   # after the head and half of the body
    hold_end: Gate | None = None    # after all but the last byte of the body
    fault: str | None = None        # close, reset, silent: instead of an answer
    cut_after: int | None = None    # close after that many bytes of the body
    raw: bytes | None = None        # these bytes instead of a well-formed answer
    keep_alive: bool = True

    def payload(self, request):
        if self.body is not None:
            return self.body
        return b'{"execution":%d}' % request.number


class Upstream:
    def __init__(self, listening=True):
        self.requests = []
        self.broken = []      # what could not be parsed as a request
        self._lock = threading.Lock()
        self._script = lambda request: Answer()
        self._gates = []
        self._connections = {}
        self._connected = 0
        self._listener = None
        self._accepting = None
        self._stopping = False
        self.port = None
        self._bind()
        if listening:
            self.listen()

    # ---- life

    def _bind(self):
        self._listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._listener.bind(("127.0.0.1", self.port or 0))
        self.port = self._listener.getsockname()[1]

    def listen(self):
        """Before this, connections to the port are refused, and the port is ours."""
        self._listener.listen(512)
        self._accepting = threading.Thread(target=self._accept, args=(self._listener,), daemon=True)
        self._accepting.start()

    def refuse(self):
        """Stops listening: from now on connections are refused; the port stays ours."""
        self._close_listener()
        self._bind()

    def _close_listener(self):
        try:
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread in accept()
        except OSError:
            pass  # it was not listening
        self._listener.close()
        if self._accepting:
            self._accepting.join(PATIENCE_S)
            assert not self._accepting.is_alive(), "the upstream still accepts"
            self._accepting = None

    def stop(self):
        self._stopping = True
        self.release_all()
        self._close_listener()
        with self._lock:
            open_now = list(self._connections.items())
        for sock, thread in open_now:
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # it is closed already
            thread.join(PATIENCE_S)
            assert not thread.is_alive(), "a connection of the upstream did not end"

    # ---- script

    def gate(self):
        gate = Gate()
        self._gates.append(gate)
        return gate

    def release_all(self):
        for gate in self._gates:
            gate.release()

    def answer(self, *answers, **one):
        """The answers in turn, the last one for good; or a single one by its fields."""
        turns = list(answers) or [Answer(**one)]
        state = {"turn": 0}

        def script(_request):
            turn = min(state["turn"], len(turns) - 1)
            state["turn"] += 1
            return turns[turn]

        self._script = script

    def script(self, function):
        """function(request) -> Answer, called under a lock."""
        self._script = function

    # ---- what it saw

    def count(self, key=None):
        with self._lock:
            return sum(1 for request in self.requests if key is None or request.key == key)

    def counts(self):
        with self._lock:
            result = {}
            for request in self.requests:
                result[request.key] = result.get(request.key, 0) + 1
            return result

    def idle(self):
        """True when nobody is connected: every answer was taken."""
        with self._lock:
            return not self._connections

    def wait_count(self, count, key=None):
        wait_until(lambda: self.count(key) >= count, f"request number {count} at the upstream")
        return self.last(key)

    def last(self, key=None):
        with self._lock:
            seen = [request for request in self.requests if key is None or request.key == key]
        return seen[-1] if seen else None

    # ---- one connection

    def _accept(self, listener):
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._connected += 1
                thread = threading.Thread(target=self._serve, args=(sock, self._connected),
                                          daemon=True)
                self._connections[sock] = thread
            thread.start()

    def _serve(self, sock, connection):
        reader = Reader(sock)
        try:
            while self._serve_one(sock, reader, connection):
                pass
        except (OSError, ProtocolError) as error:
            self.broken.append(repr(error))
        finally:
            with self._lock:
                self._connections.pop(sock, None)
            sock.close()

    def _serve_one(self, sock, reader, connection):
        """Reads a request and answers it; False when the connection is to be closed."""
        while not reader.buffer:
            if not reader.fill():
                return False
        lines = reader.take_until(b"\r\n\r\n").decode("latin-1").split("\r\n")
        method, target, version = lines[0].split(" ")
        headers = parse_header_lines(lines[1:])
        body = read_request_body(reader, headers)
        with self._lock:
            request = Request(method, target, version, headers, body, connection,
                              len(self.requests) + 1)
            answer = self._script(request)
            self.requests.append(request)
        return self._perform(sock, request, answer) and not self._stopping

    def _perform(self, sock, request, answer):
        if answer.hold:
            answer.hold.pass_through()
        if answer.fault:
            return self._fail(sock, answer.fault)
        if answer.raw is not None:
            sock.sendall(answer.raw)
            return answer.keep_alive
        for status, headers in answer.interim:
            sock.sendall(format_head(status, headers))
        payload = b"" if answer.framing == "none" else answer.payload(request)
        head = format_head(answer.status, framing_headers(answer, payload) + answer.headers)
        wire = payload
        if answer.framing == "chunked":
            wire = encode_chunks(split(payload, answer.pieces))
        if answer.cut_after is not None:
            sock.sendall(head + payload_prefix(answer, payload))
            return False
        send_in_parts(sock, head, wire, answer)
        return answer.keep_alive and answer.framing != "close"

    @staticmethod
    def _fail(sock, fault):
        if fault == "reset":
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        elif fault == "silent":
            while sock.recv(65536):  # until the other side gives up
                pass
        return False


def read_request_body(reader, headers):
    fields = {name.lower(): value for name, value in headers}
    if fields.get("transfer-encoding", "").lower() == "chunked":
        return reader.take_chunked()
    return reader.take(int(fields.get("content-length", "0")))


def format_head(status, headers):
    lines = [f"HTTP/1.1 {status} {REASONS.get(status, 'Status')}"]
    lines += [f"{name}: {value}" for name, value in headers]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def framing_headers(answer, payload):
    headers = []
    if answer.framing == "length":
        headers.append(("Content-Length", str(len(payload))))
    elif answer.framing == "chunked":
        headers.append(("Transfer-Encoding", "chunked"))
    if answer.framing == "close" or not answer.keep_alive:
        headers.append(("Connection", "close"))
    return headers


def payload_prefix(answer, payload):
    """The first cut_after bytes as the wire has them: for chunked, an unfinished chunk."""
    part = payload[: answer.cut_after]
    if answer.framing == "chunked":
        return b"%x\r\n%s" % (len(payload), part)
    return part


def split(payload, pieces):
    if not payload:
        return []
    size = max(1, -(-len(payload) // pieces))
    return [payload[at : at + size] for at in range(0, len(payload), size)]


def send_in_parts(sock, head, wire, answer):
    middle, last = len(wire) // 2, max(len(wire) - 1, 0)
    if answer.hold_body:
        sock.sendall(head + wire[:middle])
        answer.hold_body.pass_through()
        sock.sendall(wire[middle:])
    elif answer.hold_end:
        sock.sendall(head + wire[:last])
        answer.hold_end.pass_through()
        sock.sendall(wire[last:])
    elif answer.pieces > 1:
        sock.sendall(head)
        for piece in split(wire, answer.pieces):
            sock.sendall(piece)
    else:
        sock.sendall(head + wire)
