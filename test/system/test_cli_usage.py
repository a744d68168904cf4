"""The command as a whole: help, usage errors, exit statuses."""

import os
import re
import subprocess

import pytest

from nginx import REPOSITORY
from test_cli_support import COMMANDS, IDEM, USAGE, environment, good, idem, refused


def test_help_lists_exactly_the_commands_there_are():
    text = good("--help").out
    listed = text.split("Commands:\n")[1].split("\n\n")[0].splitlines()
    assert [line[2:].split("  ")[0] for line in listed] == COMMANDS


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command(command):
    for flag in ("--help", "-h"):
        text = good(*command.split(), flag).out
        assert text.startswith(f"Usage: idem {command} ")
        assert f"\n  idem {command}" in text.split("Examples:")[1]
        assert max(len(line) for line in text.split("Examples:")[0].splitlines()) < 80


@pytest.mark.parametrize("command", COMMANDS)
def test_help_wins_over_mistakes(command):
    assert good(*command.split(), "--no-such", "--help").out.startswith("Usage:")


def test_no_command_is_wrong_and_shows_the_commands():
    ran = idem()
    assert ran.status == USAGE and ran.out == "" and "Commands:" in ran.err


def test_version():
    assert good("--version").out.split()[0] == "idem"


@pytest.mark.parametrize("word, meant", [("lst", "list"), ("gatway", "gateway"),
                                         ("resolv", "resolve"), ("store", "store check")])
def test_an_unknown_command_is_guessed(word, meant):
    assert f"did you mean: idem {meant}" in refused(USAGE, word).err


def test_an_unknown_command_without_a_likeness():
    err = refused(USAGE, "xyzzy").err
    assert "did you mean" not in err and "idem --help" in err


@pytest.mark.parametrize("command", ["call", "once", "lock", "consume", "token"])
def test_commands_that_do_not_exist_are_not_pretended(command):
    refused(USAGE, command)
    assert f"\n  {command} " not in good("--help").out


@pytest.mark.parametrize("words, sentence", [
    (["list", "--stat", "unknown"], "did you mean --state?"),
    (["list", "--zzzzzzz"], "there is no option --zzzzzzz"),
    (["list", "-s"], "options have two dashes"),
    (["list", "--state"], "--state needs a value"),
    (["list", "--json=1"], "--json takes no value"),
    (["list", "--json", "--json"], "--json is given twice"),
    (["list", "word"], "one word too many: word"),
    (["list", "--limit", "many"], '"many" is not a number'),
    (["list", "--limit", "0"], "--limit takes 1 to"),
    (["list", "--limit", "-1"], '"-1" is not a number'),
    (["list", "--limit", "99999999999999999999"], "is not a number"),
    (["list", "--since", "yesterday"], "is not an instant"),
    (["list", "--since", "2026-02-30"], "is not an instant"),
    (["list", "--since", "2026-04-13T25:00:00Z"], "is not an instant"),
    (["list", "--since", "2026-04-13T08:00:00"], "is not an instant"),
    (["list", "--state", "unknow"], "is no state; they are processing"),
    (["list", "--state", "unknown,"], '"" is no state'),
    (["list", "--state", ",unknown"], '"" is no state'),
    (["list", "--kind", "selftest"], "is no kind"),
    # An id that cannot be one is the caller's mistake, whatever the store has.
    (["show", "abcde"], "give 6 to 64 hex digits"), (["show", "a" * 65], "give 6 to 64"),
    (["show", "xyzxyz"], "other characters than hex digits"),
    (["show", "z" * 64], "other characters than hex digits"),
    (["show", "--key", "k" * 1025], "the key is over 1024 bytes"),
    (["show", "--key", "k", "--kind", "nosuch"], "is no kind"),
    (["resolve", "abcde", "--failed", "--why", "w"], "give 6 to 64 hex digits"),
    (["resolve", "--key", "k", "--scope", "s" * 1025, "--failed", "--why", "w"], "scope is over"),
    (["forget", "xyzxyz", "--why", "w"], "other characters than hex digits"),
    # In `idem gateway` --state is a directory.
    (["list", "--state", "/var/lib/idem"], "named by --store lmdb:/var/lib/idem/store"),
    (["list", "--state", "lmdb:/srv/idem"], "named by --store lmdb:/srv/idem"),
    (["forget", "--state", "./state", "--why", "w"], "named by --store lmdb:./state/store"),
    # What an unset variable of a shell would give must not mean "all" or "the default".
    (["forget", "--state", "", "--why", "w"], "--state is given an empty value"),
    (["forget", "abcdef", "--store", "", "--why", "w"], "--store is given an empty value"),
    (["forget", "", "--why", "w"], "an empty word"),
    (["list", "--after", "123"], "--after takes a whole id"),
    (["list", "--audit", "--scope", "a"], "--audit goes with"),
    (["list", "--scope", "s" * 1025], "the scope is over 1024 bytes"),
    (["show"], "name one record"),
    (["show", "abcdef", "--key", "k"], "name one record"),
    (["show", "abcdef", "--scope", "s"], "--scope and --kind go with --key"),
    (["show", "abcdef", "--json", "--body"], "exclude each other"),
    (["resolve", "abcdef", "--why", "w"], "say what happened"),
    (["resolve", "abcdef", "--failed", "--completed", "--why", "w"], "say what happened"),
    (["resolve", "abcdef", "--failed"], "--why TEXT is needed"),
    (["resolve", "abcdef", "--failed", "--why", ""], "--why is given an empty value"),
    (["resolve", "abcdef", "--failed", "--why", "w" * 513], "--why takes 1 to 512 bytes"),
    (["resolve", "abcdef", "--failed", "--why", "w", "--who", "w" * 129], "--who takes 1 to 128"),
    (["resolve", "abcdef", "--failed", "--why", "w", "--status", "201"], "go with --completed"),
    (["resolve", "abcdef", "--completed", "--why", "w", "--body", "f"], "need --status"),
    (["resolve", "abcdef", "--completed", "--why", "w", "--status", "199"], "200 to 599"),
    (["resolve", "abcdef", "--completed", "--why", "w", "--status", "600"], "200 to 599"),
    (["resolve", "abcdef", "--completed", "--why", "w", "--status", "204", "--body", "f"],
     "status 204 has no body"),
    (["resolve", "abcdef", "--completed", "--why", "w", "--status", "205", "--body", "-"],
     "status 205 has no body"),
    (["resolve", "abcdef", "--completed", "--why", "w", "--status", "304", "--body", "f"],
     "status 304 has no body"),
    (["resolve", "abcdef", "--completed", "--why", "w", "--status", "100", "--body", "f"],
     "200 to 599"),
    (["resolve", "abcdef", "--completed", "--why", "w", "--ttl", "0s"], "--ttl takes"),
    (["resolve", "abcdef", "--completed", "--why", "w", "--ttl", "5"], "is not a length of time"),
    (["resolve", "abcdef", "--completed", "--why", "w", "--ttl", "200000d"], "over 100 years"),
    (["resolve", "--failed", "--why", "w"], "say which"),
    (["resolve", "abcdef", "--state", "unknown", "--failed", "--why", "w"], "say which"),
    (["resolve", "abcdef", "--since", "2h", "--failed", "--why", "w"], "go with --state"),
    (["resolve", "--state", "unknown", "--fence", "1", "--failed", "--why", "w"], "--fence names"),
    (["forget", "abcdef"], "--why TEXT is needed"),
    (["sweep", "--limit", "0"], "--limit takes 1 or more"),
    (["store", "check", "memory:", "--store", "memory:"], "name the store once"),
])
def test_usage_errors_say_what_to_do(words, sentence):
    ran = refused(USAGE, *words, env={"IDEM_STORE": "lmdb:/nonexistent"})
    assert sentence in ran.err
    assert ran.out == ""


@pytest.mark.parametrize("line, sentence", [
    ("no colon", "is not of the form"), (": empty", "is not of the form"),
    ("Bad Name: v", "is not of the form"), ("A: b\nC: d", "control character"),
    ("Content-Length: 3", "no part of what"), ("connection: close", "no part of what"),
    ("TRANSFER-ENCODING: chunked", "no part of what"), ("Set-Cookie: a=b", "no part of what"),
    ("X-Accel-Redirect: /secret", "no part of what"), ("date: x", "no part of what"),
    ("Idempotent-Replayed: true", "no part of what"),
])
def test_headers_of_a_resolution_are_checked(line, sentence):
    ran = refused(USAGE, "resolve", "abcdef", "--completed", "--status", "200", "--why", "w",
                  "--header", line, env={"IDEM_STORE": "lmdb:/nonexistent"})
    assert sentence in ran.err


def never_kept():
    with open(os.path.join(REPOSITORY, "nginx", "ngx_http_idempotency_conf.c"),
              encoding="utf-8") as file:
        text = file.read()
    names = text.split("ngx_http_idempotency_never_kept[] = {")[1].split("};")[0]
    return re.findall(r'ngx_string\("([^"]+)"\)', names)


def test_what_the_module_never_keeps_is_refused_in_a_resolution():
    names = never_kept()
    assert "Set-Cookie" in names and len(names) > 10
    for name in names:
        ran = refused(USAGE, "resolve", "abcdef", "--completed", "--status", "200", "--why", "w",
                      "--header", f"{name}: x", env={"IDEM_STORE": "lmdb:/nonexistent"})
        assert f"{name} is no part of what a gateway keeps" in ran.err


def test_output_that_cannot_be_written_is_a_failure():
    with open("/dev/full", "wb") as full:
        done = subprocess.run([IDEM, "key"], stdout=full, stderr=subprocess.PIPE, check=False,
                              env=environment())
    assert done.returncode == 1 and b"could be written" in done.stderr


def test_an_equals_sign_and_a_double_dash():
    ran = idem("list", "--limit=5", "--", "--json", env={"IDEM_STORE": "lmdb:/nonexistent"})
    assert ran.status == USAGE and "one word too many: --json" in ran.err
    assert good("key", "--template={a}", "--set=a=x=y").out == "x=y\n"
