"""The manual: well formed, and it names the same options as --help."""

import os
import re
import subprocess

import pytest

from nginx import REPOSITORY
from test_cli_support import COMMANDS, good

PAGES = os.path.join(REPOSITORY, "docs", "man")


def page_of(command):
    return os.path.join(PAGES, "idem-" + command.replace(" ", "-") + ".1")


def rendered(path):
    done = subprocess.run(["mandoc", "-Tascii", path], check=True, capture_output=True)
    return re.sub(rb".\x08", b"", done.stdout).decode("ascii")


def test_there_is_a_page_for_each_command_and_no_other():
    wanted = {"idem.1"} | {os.path.basename(page_of(command)) for command in COMMANDS}
    assert {name for name in os.listdir(PAGES) if name.endswith(".1")} == wanted


def test_every_page_is_installed():
    with open(os.path.join(PAGES, "meson.build"), encoding="utf-8") as file:
        listed = set(re.findall(r"'(idem[a-z-]*\.1)'", file.read()))
    assert listed == {name for name in os.listdir(PAGES) if name.endswith(".1")}


@pytest.mark.parametrize("name", sorted(name for name in os.listdir(PAGES) if name.endswith(".1")))
def test_pages_are_well_formed(name):
    done = subprocess.run(["mandoc", "-Tlint", "-W", "warning", os.path.join(PAGES, name)],
                          check=False, capture_output=True, text=True)
    assert done.stdout + done.stderr == "" and done.returncode == 0


@pytest.mark.parametrize("command", COMMANDS)
def test_options_of_help_and_manual_are_the_same(command):
    in_help = set(re.findall(r"^  --([a-z0-9-]+)", good(*command.split(), "--help").out, re.M))
    # An option's own entry stands at the indent of its list.
    in_manual = set(re.findall(r"^     --([a-z0-9-]+)", rendered(page_of(command)), re.M))
    in_manual -= {"help"}
    assert in_help - {"help"} == in_manual


@pytest.mark.parametrize("command", COMMANDS)
def test_the_overview_names_every_command(command):
    with open(os.path.join(PAGES, "idem.1"), encoding="utf-8") as file:
        text = file.read()
    assert f".It Cm {command}\n" in text
    assert f".Xr idem-{command.replace(' ', '-')} 1" in text.split(".Sh SEE ALSO")[1]
