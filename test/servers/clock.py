"""The clock that tests turn: a file that servers read, and the library that makes them."""

import os
import struct
import subprocess

HERE = os.path.dirname(os.path.abspath(__file__))


def compile_library(folder):
    """For who runs outside of Meson."""
    library = os.path.join(folder, "turned_clock.so")
    subprocess.run([os.environ.get("CC", "cc"), "-O2", "-shared", "-fPIC", "-o", library,
                    os.path.join(HERE, "turned_clock.c")], check=True)
    return library


class Clock:
    """0 in its file lets the real time show."""

    def __init__(self, folder):
        self.path = os.path.join(folder, "clock")
        self.turn(0)
        os.chmod(self.path, 0o644)
        self.library = os.environ.get("IDEM_TURNED_CLOCK_LIBRARY") or compile_library(folder)

    def turn(self, now_us):
        """Time stands still at this instant, in microseconds since 1970."""
        with open(self.path, "r+b" if os.path.exists(self.path) else "wb") as file:
            file.write(struct.pack("=q", now_us))

    def read(self):
        with open(self.path, "rb") as file:
            return struct.unpack("=q", file.read(8))[0]

    def environment(self):
        return {"LD_PRELOAD": self.library, "IDEM_TURNED_CLOCK": self.path}
