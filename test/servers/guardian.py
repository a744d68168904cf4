"""Ends servers and removes their folders once the process that started them is gone.

The process holds the writing end of a pipe and tells by lines what it started; the guardian, in a
session of its own, reads until the pipe closes, which it does however the process ends, kill -9
included.

    watch PID START SIGNAL   a process; START is its start time, so that a PID used again is safe
    folder PATH              a folder to remove
"""

import atexit
import os
import shutil
import signal
import subprocess
import sys
import time

POLITE_S = 3.0  # a process that has not ended by then is killed
INTERVAL_S = 0.01


def start_time(pid):
    """When a process began, in ticks since boot, or None when it is gone or a zombie."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


class Guardian:
    """This process's end of the pipe. Made when it is first needed."""

    _only = None

    @classmethod
    def get(cls):
        if cls._only is None or cls._only.owner != os.getpid():
            cls._only = cls()
        return cls._only

    def __init__(self):
        self.owner = os.getpid()
        self.process = subprocess.Popen(
            [sys.executable, os.path.abspath(__file__)], stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
            cwd="/")
        atexit.register(self.close)

    def tell(self, line):
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()

    def watch(self, pid, polite=signal.SIGKILL):
        """`polite` is what ends the process without leaving anything behind."""
        self.tell(f"watch {pid} {start_time(pid) or 0} {int(polite)}")

    def folder(self, path):
        self.tell(f"folder {path}")

    def close(self):
        """Has everything ended and removed, and waits for that."""
        if self.owner == os.getpid():
            self.process.stdin.close()
            self.process.wait()


def send(pid, start, number):
    """Signals the process and its group (servers lead one of their own)."""
    if start_time(pid) != start:
        return
    try:
        if os.getpgid(pid) == pid:
            os.killpg(pid, number)
        else:
            os.kill(pid, number)
    except ProcessLookupError:
        pass


def end(watched):
    """Ends all processes: politely, then not."""
    for pid, (start, polite) in watched.items():
        send(pid, start, polite)
        send(pid, start, signal.SIGCONT)
    deadline = time.monotonic() + POLITE_S
    while any(start_time(pid) == start for pid, (start, _) in watched.items()):
        if time.monotonic() > deadline:
            for pid, (start, _) in watched.items():
                send(pid, start, signal.SIGKILL)
            return
        time.sleep(INTERVAL_S)


def main():
    watched, folders = {}, []
    for line in sys.stdin:
        word, _, rest = line.rstrip("\n").partition(" ")
        if word == "watch":
            pid, start, polite = (int(field) for field in rest.split())
            watched[pid] = (start, polite)
        elif word == "folder":
            folders.append(rest)
    end(watched)
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    # A terminal's Ctrl-C is for the process that is guarded, whose end is what counts here.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    main()
