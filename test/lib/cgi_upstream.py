"""Upstreams that speak FastCGI, SCGI and uwsgi, just enough to answer in full or cut short."""

import socket
import struct
import threading

from rawhttp import ProtocolError, Reader
from waiting import PATIENCE_S

FCGI_END, FCGI_PARAMS, FCGI_STDIN, FCGI_STDOUT = 3, 4, 5, 6


def answer_bytes(body, status="201 Created", length=True, headers=()):
    """A CGI answer: no status line, a Status field."""
    lines = [f"Status: {status}", "Content-Type: text/plain"]
    lines += [f"{name}: {value}" for name, value in headers]
    if length:
        lines.append(f"Content-Length: {len(body)}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + body


class CgiUpstream:
    """`reply` is sent for every request; `cut` closes before the protocol's own end of it."""

    def __init__(self, protocol):
        self.protocol = protocol
        self.requests = []  # pairs of parameters and body
        self.reply, self.cut = answer_bytes(b"made"), False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def configuration(self):
        """The lines of a location that lead here."""
        name = self.protocol
        params = {"REQUEST_METHOD": "$request_method", "CONTENT_LENGTH": "$content_length",
                  "REQUEST_URI": "$request_uri", "SERVER_PROTOCOL": "$server_protocol"}
        if name == "scgi":
            params["SCGI"] = "1"
        lines = [f"{name}_param {key} {value};" for key, value in params.items()]
        return f"{name}_pass 127.0.0.1:{self.port}; " + " ".join(lines)

    def stop(self):
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(PATIENCE_S)

    def _accept(self):
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            with sock:
                try:
                    self._serve(sock, Reader(sock))
                except (OSError, ProtocolError):
                    pass  # nginx went away; the test sees what it sees

    def _serve(self, sock, reader):
        read = {"fastcgi": read_fastcgi, "scgi": read_scgi, "uwsgi": read_uwsgi}[self.protocol]
        self.requests.append(read(reader))
        if self.protocol == "fastcgi":
            sock.sendall(fastcgi_reply(self.reply, self.cut))
        else:
            sock.sendall(self.reply)


def fastcgi_record(kind, content):
    return struct.pack(">BBHHBB", 1, kind, 1, len(content), 0, 0) + content


def fastcgi_reply(reply, cut):
    wire = b"".join(fastcgi_record(FCGI_STDOUT, reply[at : at + 8000])
                    for at in range(0, len(reply), 8000))
    if cut:
        return wire
    return wire + fastcgi_record(FCGI_STDOUT, b"") + fastcgi_record(FCGI_END, b"\0" * 8)


def read_fastcgi(reader):
    streams = {FCGI_PARAMS: b"", FCGI_STDIN: b""}
    while True:
        _, kind, _, size, padding, _ = struct.unpack(">BBHHBB", reader.take(8))
        content = reader.take(size)
        reader.take(padding)
        if kind in streams:
            streams[kind] += content
            if kind == FCGI_STDIN and not content:
                return parse_fastcgi_params(streams[FCGI_PARAMS]), streams[FCGI_STDIN]


def parse_fastcgi_params(data):
    params, at = {}, 0
    while at < len(data):
        sizes = []
        for _ in range(2):
            if data[at] & 0x80:
                sizes.append(struct.unpack(">I", data[at : at + 4])[0] & 0x7FFFFFFF)
                at += 4
            else:
                sizes.append(data[at])
                at += 1
        name = data[at : at + sizes[0]].decode()
        params[name] = data[at + sizes[0] : at + sum(sizes)].decode()
        at += sum(sizes)
    return params


def read_scgi(reader):
    size = int(reader.take_until(b":"))
    parts = reader.take(size).split(b"\0")
    reader.take(1)
    params = {parts[n].decode(): parts[n + 1].decode() for n in range(0, len(parts) - 1, 2)}
    return params, reader.take(int(params["CONTENT_LENGTH"] or 0))


def read_uwsgi(reader):
    _, size, _ = struct.unpack("<BHB", reader.take(4))
    data, at, texts = reader.take(size), 0, []
    while at < len(data):
        length = struct.unpack("<H", data[at : at + 2])[0]
        texts.append(data[at + 2 : at + 2 + length].decode())
        at += 2 + length
    params = dict(zip(texts[::2], texts[1::2]))
    return params, reader.take(int(params["CONTENT_LENGTH"] or 0))
