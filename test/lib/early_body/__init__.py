"""Compiles the nginx module that reads request bodies before ours can.

nginx's configure has run for our own module already: its headers in the build directory hold the
flags of the nginx at hand, so one call of the compiler is enough.
"""

import os
import subprocess

from nginx import MODULE

CONFIGURED = MODULE + ".p"  # where nginx/build.sh works
INCLUDE = ["src/core", "src/event", "src/event/modules", "src/os/unix", "objs", "src/http",
           "src/http/modules", "src/http/v2"]
SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "early_body.c")


def build(directory):
    """Returns the path of the module, for load_module."""
    output = os.path.join(directory, "ngx_http_early_body_module.so")
    include = [word for name in INCLUDE for word in ("-I", os.path.join(CONFIGURED, name))]
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-g", "-Wall", "-Werror", *include,
                    "-o", output, SOURCE], check=True)
    return output
