"""The private servers of the tests, by a name that is not that of this folder's servers.py."""

import importlib.util
import os
import sys

_PACKAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "test", "servers")


def _load(name, path):
    spec = importlib.util.spec_from_file_location(
        name, path, submodule_search_locations=[os.path.dirname(path)])
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


_load("private_servers", os.path.join(_PACKAGE, "__init__.py"))

# pylint: disable=wrong-import-position
from private_servers.mariadb import PASSWORD as MARIADB_PASSWORD  # noqa: E402
from private_servers.mariadb import USER as MARIADB_USER  # noqa: E402
from private_servers.rig import Rig  # noqa: E402

__all__ = ["MARIADB_PASSWORD", "MARIADB_USER", "Rig"]
