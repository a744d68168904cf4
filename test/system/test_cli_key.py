"""idem key: random, semantic and content keys."""

import hashlib
import time
import uuid

import pytest

from test_cli_support import FAILURE, USAGE, good, refused


@pytest.mark.parametrize("flag, version", [(None, 4), ("--uuid4", 4), ("--uuid7", 7)])
def test_uuids_are_well_formed_and_differ(flag, version):
    words = ["key"] + ([flag] if flag else [])
    made = {good(*words).out.strip() for _ in range(20)}
    assert len(made) == 20
    for text in made:
        parsed = uuid.UUID(text)
        assert str(parsed) == text
        assert parsed.version == version and parsed.variant == uuid.RFC_4122


def test_uuid7_starts_with_the_time():
    before = int(time.time() * 1000)
    stamp = uuid.UUID(good("key", "--uuid7").out.strip()).int >> 80
    assert before <= stamp <= int(time.time() * 1000)


def test_a_semantic_key_of_the_article():
    ran = good("key", "--template", "order_{order_id}_pay_{user_id}", "--set",
               "order_id=20260413001", "--set", "user_id=user123")
    assert ran.out == "order_20260413001_pay_user123\n"


def test_json():
    assert good("key", "--template", "a{x}", "--set", "x=1", "--json").json() == \
        {"key": "a1", "form": "semantic"}
    assert good("key", "--json").json()["form"] == "uuid4"


@pytest.mark.parametrize("words, sentence", [
    (["--template", "a_{x}"], "needs --set x=VALUE"),
    (["--template", "order"], "every operation would get the same key"),
    (["--template", "order", "--set", "x=1"], "every operation would get the same key"),
    (["--template", "a_{x}", "--set", "x="], "with a value"),
    (["--template", "a_{x}", "--set", "x"], "name=value"),
    (["--template", "a_{x}", "--set", "x=1", "--set", "y=2"], "has no {y}"),
    (["--template", "a_{x}", "--set", "x=1", "--set", "x=2"], "given twice"),
    (["--template", "a_{x", "--set", "x=1"], "write {name}"),
    (["--template", "a_x}", "--set", "x=1"], "write {name}"),
    (["--template", "a_{}", "--set", "x=1"], "write {name}"),
    (["--template", "a_{x y}", "--set", "x=1"], "write {name}"),
    (["--template", "{x}{y}", "--set", "x=1", "--set", "y=2"], "put some text between"),
    (["--template", "{x}", "--set", "x=a b"], "cannot be sent as a key"),
    (["--template", "{x}", "--set", 'x=a"b'], "cannot be sent as a key"),
    (["--template", "{x}", "--set", "x=ä"], "cannot be sent as a key"),
    (["--template", "{x}", "--set", "x=a,b"], "cannot be sent as a key"),
    (["--template", "{x}", "--set", "x=" + "v" * 256], "over 255 bytes"),
    (["--template", ""], "empty value"), (["--hash", ""], "empty value"),
    (["--set", "x=1"], "--set goes with --template"),
    (["--uuid4", "--uuid7"], "exclude each other"),
    (["--uuid7", "--hash", "-"], "exclude each other"),
])
def test_a_wrong_template_is_refused(words, sentence):
    assert sentence in refused(USAGE, "key", *words).err


@pytest.mark.parametrize("template, values", [
    ("{x}_{y}", ["x=a_", "y=b"]), ("{x}_{y}", ["x=a_b", "y=c"]), ("{x}__{y}", ["x=a_", "y=b"]),
    ("{x}-{x2}-end", ["x=1", "x2=2-end-3"]),
])
def test_values_that_could_make_another_operations_key_are_refused(template, values):
    words = ["key", "--template", template]
    for value in values:
        words += ["--set", value]
    assert "could get the same key" in refused(USAGE, *words).err


def test_the_last_value_may_hold_the_separator():
    assert good("key", "--template", "{x}_{y}", "--set", "x=a", "--set", "y=b_c").out == "a_b_c\n"


def test_one_name_in_two_places():
    assert good("key", "--template", "{x}-{x}", "--set", "x=1").out == "1-1\n"


@pytest.mark.parametrize("payload", [b"", b'{"amount":2000,"currency":"usd"}', b"\0\xff" * 100000])
def test_the_content_key_is_the_whole_sha256(tmp_path, payload):
    path = tmp_path / "payload"
    path.write_bytes(payload)
    wanted = hashlib.sha256(payload).hexdigest() + "\n"
    assert good("key", "--hash", path).out == wanted
    assert good("key", "--hash", "-", stdin=payload).out == wanted


def test_a_file_that_is_not_there(tmp_path):
    assert "No such file" in refused(FAILURE, "key", "--hash", tmp_path / "none").err
    assert "Is a directory" in refused(FAILURE, "key", "--hash", tmp_path).err
