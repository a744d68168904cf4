"""The clock that tests turn: a file that servers read, and the library that makes them."""

import os
import shutil
import struct
import subprocess

HERE = os.path.dirname(os.path.abspath(__file__))


def library_for_all(folder):
    """Where every user can read it: servers run as theirs, and the tree may be closed to them."""
    library = os.path.join(folder, "turned_clock.so")
    built = os.environ.get("IDEM_TURNED_CLOCK_LIBRARY")
    if built:
        shutil.copy(built, library)
    else:
        compile_library(library)
    os.chmod(library, 0o755)
    return library


def compile_library(library):
    """For who runs outside of Meson."""
    subprocess.run([os.environ.get("CC", "cc"), "-O2", "-shared", "-fPIC", "-o", library,
                    os.path.join(HERE, "turned_clock.c")], check=True)


class Clock:
    """0 in its file lets the real time show."""

    def __init__(self, folder):
        self.path = os.path.join(folder, "clock")
        self.turn(0)
        os.chmod(self.path, 0o644)
        self.library = library_for_all(folder)

    def turn(self, now_us):
        """Time stands still at this instant, in microseconds since 1970."""
        with open(self.path, "r+b" if os.path.exists(self.path) else "wb") as file:
            file.write(struct.pack("=q", now_us))

    def read(self):
        with open(self.path, "rb") as file:
            return struct.unpack("=q", file.read(8))[0]

    def environment(self):
        return {"LD_PRELOAD": self.library, "IDEM_TURNED_CLOCK": self.path}
