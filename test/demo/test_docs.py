"""The documents name what exists: paths, links, problem types, directives, variables."""

import os
import re
import subprocess

import pytest

REPOSITORY = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def read(*parts):
    with open(os.path.join(REPOSITORY, *parts), encoding="utf-8") as file:
        return file.read()


def documents():
    top = [name for name in os.listdir(REPOSITORY) if name.endswith(".md")]
    deep = [os.path.join("docs", folder, name) for folder in ("guide", "adr")
            for name in os.listdir(os.path.join(REPOSITORY, "docs", folder))]
    return sorted(top + deep)


def without_code(text):
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("document", documents())
def test_links_lead_somewhere(document):
    for target in re.findall(r"\]\(([^)]+)\)", without_code(read(document))):
        path, _, anchor = target.partition("#")
        found = os.path.normpath(os.path.join(os.path.dirname(document), path)) if path \
            else document
        assert os.path.exists(os.path.join(REPOSITORY, found)), target
        if anchor:
            heads = re.findall(r"^#+ (.*)$", read(found), re.MULTILINE)
            assert anchor in [re.sub(r"[^\w -]", "", head).lower().replace(" ", "-")
                              for head in heads], target


@pytest.mark.parametrize("document", ["ARCHITECTURE.md", "HACKING.md", "STYLE.md"])
def test_paths_in_backticks_exist(document):
    named = re.findall(r"`((?:src|include|nginx|cli|demo|test|tools|docs|bench)/[\w./*-]*)`",
                       read(document))
    assert named
    for path in named:
        pattern = re.compile(re.escape(path).replace(r"\*", "[^/]*") + "$")
        folder = os.path.dirname(path.rstrip("/"))
        assert os.path.exists(os.path.join(REPOSITORY, path)) or any(
            pattern.match(os.path.join(folder, name))
            for name in os.listdir(os.path.join(REPOSITORY, folder))), path


def test_every_problem_type_is_explained():
    made = set(re.findall(r'TYPE\("([a-z-]+)"\)', read("src", "core", "problem.c")))
    told = set(re.findall(r"^\| `([a-z-]+)` \|", read("docs", "guide", "problems.md"),
                          re.MULTILINE))
    assert made and made == told


def test_every_directive_is_explained():
    made = set(re.findall(r'\{ ngx_string\("(idempotency\w*)"\)',
                          read("nginx", "ngx_http_idempotency_conf.c")))
    told = set(re.findall(r"^\| `(idempotency\w*)", read("docs", "guide", "directives.md"),
                          re.MULTILINE))
    assert made and made == told


def test_every_variable_is_explained():
    made = set(re.findall(r'\{ ngx_string\("(idempotency_\w+)"\), NULL',
                          read("nginx", "ngx_http_idempotency_variable.c")))
    told = set(re.findall(r"^\| `\$(idempotency_\w+)`", read("docs", "guide", "directives.md"),
                          re.MULTILINE))
    assert made and made == told


def test_every_outcome_word_is_explained():
    words = re.search(r"ngx_http_idempotency_outcomes\[\] = \{(.*?)\};",
                      read("nginx", "ngx_http_idempotency_variable.c"), re.DOTALL).group(1)
    line = next(line for line in read("docs", "guide", "directives.md").splitlines()
                if line.startswith("| `$idempotency_outcome`"))
    for word in re.findall(r'"(\w+)"', words):
        assert f"`{word}`" in line


def test_every_subcommand_is_in_the_changelog():
    named = read("CHANGELOG.md")
    for command in re.findall(r'^    \{"([a-z ]+)", "', read("cli", "main.c"), re.MULTILINE):
        assert command in named, command


def test_every_reason_is_explained_to_the_person_on_call():
    reasons = re.findall(r'\[IDEM_REASON_(?!NONE)\w+\] = "(\w+)"', read("src", "core", "text.c"))
    page = read("docs", "guide", "on-call.md")
    assert reasons
    for word in reasons:
        assert f"`{word}`" in page, word


def printed_moves(*arguments):
    build = os.environ.get("IDEM_BUILD", os.path.join(REPOSITORY, "build"))
    return subprocess.run([os.path.join(build, "test/unit/print_moves"), *arguments],
                          capture_output=True, text=True, check=True).stdout


def test_the_tables_of_moves_are_those_in_the_code():
    for printed in (printed_moves(), printed_moves("exchange")):
        assert printed.count("\n") > 7 and "\n" + printed + "\n" in read("ARCHITECTURE.md")
