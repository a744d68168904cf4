"""Trouble for stores: small file systems that fill up, read-only ones, a held write lock."""

import os
import subprocess
import tempfile

from waiting import PATIENCE_S

LOCK_HOLDER_C = r"""
#include <lmdb.h>
#include <stdio.h>

/* Holds the write lock of an LMDB environment until its standard input ends. */
int main(int argc, char **argv)
{
    MDB_env *env;
    MDB_txn *txn;
    int rc = argc == 2 ? mdb_env_create(&env) : 1;

    if (rc == 0) {
        rc = mdb_env_set_maxdbs(env, 16);
    }
    if (rc == 0) {
        rc = mdb_env_open(env, argv[1], MDB_NOTLS, 0600);
    }
    if (rc == 0) {
        rc = mdb_txn_begin(env, NULL, 0, &txn);
    }
    if (rc != 0) {
        fprintf(stderr, "lock holder: %s\n", mdb_strerror(rc));
        return 1;
    }
    puts("locked");
    fflush(stdout);
    while (getchar() != EOF) {
    }
    mdb_txn_abort(txn);
    mdb_env_close(env);
    return 0;
}
"""


class SmallDisk:
    """A tmpfs of a given size in a directory of its own.

    Root mounts it. Others mount it in a user namespace that a helper process keeps, and reach it
    through that process's root directory.
    """

    def __init__(self, size):
        self.mount_point = tempfile.mkdtemp(prefix="idem-disk-")
        self.directory = self.mount_point
        self.helper = None
        mount = ["mount", "-t", "tmpfs", "-o", f"size={size},mode=0777", "tmpfs", self.mount_point]
        if os.geteuid() == 0:
            subprocess.run(mount, check=True, capture_output=True)
            return
        script = " ".join(mount) + " && echo mounted && exec cat"
        self.helper = subprocess.Popen(  # pylint: disable=consider-using-with
            ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self.helper.stdout.readline() == b"mounted\n", "no tmpfs in a user namespace here"
        self.directory = f"/proc/{self.helper.pid}/root{self.mount_point}"

    def path(self, *parts):
        return os.path.join(self.directory, *parts)

    def make_read_only(self):
        command = ["mount", "-o", "remount,bind,ro", self.mount_point]
        if self.helper:
            command = ["nsenter", "-t", str(self.helper.pid), "-U", "-m",
                       "--preserve-credentials"] + command
        subprocess.run(command, check=True, capture_output=True)

    def fill(self):
        """Takes every byte that is left."""
        with open(self.path("filler"), "ab", buffering=0) as file:
            for size in (65536, 4096, 1):
                try:
                    while file.write(b"\1" * size) == size:
                        pass
                except OSError:
                    continue

    def free(self):
        os.unlink(self.path("filler"))

    def unmount(self):
        if self.helper:
            self.helper.stdin.close()
            self.helper.wait(PATIENCE_S)
            self.helper.stdout.close()
        else:
            subprocess.run(["umount", "-l", self.mount_point], check=True, capture_output=True)
        os.rmdir(self.mount_point)


def build_lock_holder(directory):
    """Compiles the program that takes an LMDB write lock; returns its path."""
    source, program = os.path.join(directory, "holder.c"), os.path.join(directory, "holder")
    with open(source, "w", encoding="ascii") as file:
        file.write(LOCK_HOLDER_C)
    subprocess.run(["gcc", "-o", program, source, "-llmdb"], check=True)
    return program


class LockHolder:
    """A process that holds the write lock of a store: no transaction can begin meanwhile."""

    def __init__(self, program, directory):
        self.process = subprocess.Popen(  # pylint: disable=consider-using-with
            [program, directory], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        line = self.process.stdout.readline()
        assert line == b"locked\n", f"the lock could not be taken: {line!r}"

    def release(self):
        if self.process.returncode is None:
            self.process.stdin.close()
            assert self.process.wait(PATIENCE_S) == 0
            self.process.stdout.close()
