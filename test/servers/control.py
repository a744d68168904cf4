"""Lets the command that runs beside servers stop, kill and restart them: $IDEM_TEST_CONTROL.

    $IDEM_TEST_CONTROL VERB SERVER

    pid      prints the process id
    stop     it stands still (SIGSTOP)      cont     it goes on
    end      a clean shutdown               kill     as a crash
    start    again, on the same port and data, after end or kill
    restart  end and start                  crash    kill and start

Returns when it is done (start, restart, crash: when the server serves), with status 0. Servers:
redis, sentinel-master, sentinel-replica, sentinel-1 to -3, cluster-1 to -6 (4 to 6 are the
replicas), postgres, pgbouncer, mariadb.

This module is both ends: a thread beside the servers, which listens on a socket, and the program.
"""

import os
import socket
import sys
import threading

VERBS = {
    "pid": lambda server: None,
    "stop": lambda server: server.stop(),
    "cont": lambda server: server.cont(),
    "end": lambda server: server.end(),
    "kill": lambda server: server.kill(),
    "start": lambda server: server.spawn().await_serving(),
    "restart": lambda server: server.restart(),
    "crash": lambda server: server.restart(force=True),
}
REQUEST_MAX = 256


class Control:
    """The listening end."""

    def __init__(self, rig):
        self.rig = rig
        self.path = os.path.join(rig.folder, "control")
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        os.chmod(self.path, 0o666)
        self.listener.listen(16)
        threading.Thread(target=self.serve, daemon=True).start()

    def environment(self):
        here = os.path.dirname(os.path.abspath(__file__))
        return {"IDEM_TEST_CONTROL": os.path.join(here, "control"),
                "IDEM_TEST_CONTROL_SOCKET": self.path}

    def serve(self):
        while True:
            connection, _ = self.listener.accept()
            threading.Thread(target=self.answer, args=(connection,), daemon=True).start()

    def answer(self, connection):
        with connection:
            words = connection.recv(REQUEST_MAX).decode(errors="replace").split()
            try:
                connection.sendall(f"ok {self.obey(*words)}\n".encode())
            except Exception as error:  # pylint: disable=broad-exception-caught
                connection.sendall(f"error {error}\n".encode())

    def obey(self, verb, name):
        if verb not in VERBS:
            raise ValueError(f"there is no verb {verb}")
        if name not in self.rig.servers:
            raise ValueError(f"there is no server {name}")
        server = self.rig.servers[name]
        VERBS[verb](server)
        return server.pid


def main():
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    path = os.environ.get("IDEM_TEST_CONTROL_SOCKET")
    if not path:
        print("IDEM_TEST_CONTROL_SOCKET is not set: run this through test/servers/with",
              file=sys.stderr)
        return 2
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        connection.sendall(" ".join(sys.argv[1:]).encode())
        with connection.makefile("r") as file:
            word, _, rest = file.read().partition(" ")
    print(rest, end="", file=sys.stdout if word == "ok" else sys.stderr)
    return 0 if word == "ok" else 1
