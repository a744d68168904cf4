"""Key syntax, black box: conformance items A of the reference (draft 2.1, RFC 9651, RFC 9110)."""

import pytest
from problem import assert_problem, kind_of
from rawhttp import build_request
from scene import new_key

BODY = b'{"amount":1}'
UUID = "8e03978e-40d5-43dd-bc93-6894a57f9324"
STRICT = "idempotency_key $http_idempotency_key required strict;"
LENIENT = "idempotency_key $http_idempotency_key required;"


@pytest.fixture
def required(make_scene):
    return make_scene(guard=LENIENT)


@pytest.fixture
def strict(make_scene):
    return make_scene(guard=STRICT)


def post_raw_field(scene, line):
    """Sends one header line, byte for byte."""
    head, _, rest = build_request("POST", "/pay", body=BODY).partition(b"\r\n")
    with scene.client() as client:
        client.send(head + b"\r\n" + line + b"\r\n" + rest)
        response = client.read_response()
        client.finish()
    return response


# ---- missing

def test_a1_required_key_missing_is_400_and_not_executed(required):
    assert_problem(required.post(), "key-missing")
    assert required.upstream.count() == 0


def test_a3_optional_key_missing_is_forwarded_every_time(scene):
    first, second = scene.post(), scene.post()
    assert (first.status, second.status) == (201, 201)
    assert first.body != second.body and scene.upstream.count() == 2
    assert not second.all("Idempotent-Replayed")
    assert scene.upstream.last().get("Idempotency-Attempt") is None


@pytest.mark.parametrize("server", ["", "underscores_in_headers on;"])
def test_a13_idempotency_key_with_underscore_counts_as_missing(make_scene, server):
    scene = make_scene(guard=LENIENT, server=server)
    response = scene.post(headers=[("Idempotency_Key", new_key())])
    assert_problem(response, "key-missing")
    assert scene.upstream.count() == 0


def test_a13_underscore_twin_does_not_hide_or_double_the_real_key(make_scene, key):
    scene = make_scene(guard=LENIENT, server="underscores_in_headers on;")
    for _ in range(2):
        response = scene.post(key, headers=[("Idempotency_Key", "other")])
        assert response.status == 201
    assert response.replayed and scene.upstream.count() == 1


def test_a13_field_name_is_case_insensitive(required, key):
    assert required.post(headers=[("iDEMPOTENCY-kEY", key)]).status == 201
    assert required.post(key).replayed
    assert required.upstream.count() == 1


# ---- both syntaxes

@pytest.mark.parametrize("syntax", [LENIENT, STRICT])
def test_a4_quoted_uuid_is_forwarded_and_replayed(make_scene, syntax):
    scene = make_scene(guard=syntax)
    assert scene.post(f'"{UUID}"').status == 201
    assert scene.post(f'"{UUID}"').replayed
    assert scene.upstream.count() == 1
    assert scene.upstream.last().key == f'"{UUID}"', "the upstream gets the key as it was sent"


def test_a5_strict_refuses_a_bare_uuid(strict):
    assert_problem(strict.post(UUID), "key-malformed")
    assert strict.upstream.count() == 0


def test_a6_lenient_bare_and_quoted_are_the_same_key(required):
    assert required.post(UUID).status == 201
    assert required.post(f'"{UUID}"').replayed
    assert required.upstream.count() == 1


BAD_IN_BOTH = [
    b'"unterminated', b'"', b'"a"x', b'"a" "b"', b'"a","b"', b'"a\\x"', b'"a\\"', b'"tab\there"',
    b'"del\x7f"', b'"caf\xc3\xa9"', b'"\x01"', b"tab\there", b"caf\xc3\xa9", b"two words",
    b"a,b", b"a\\b", b'a"b',
]
BAD_IN_STRICT = [b"'single'", b"token", b"42", b"4.2", b":YWJj:", b"?1", b"@1659578233", b"(1 2)",
                 b'("a")', b'"a";', b'"a";P=1', b'%"a"']


@pytest.mark.parametrize("value", BAD_IN_BOTH)
@pytest.mark.parametrize("syntax", [LENIENT, STRICT])
def test_a7_malformed_key_is_400_and_not_executed(make_scene, syntax, value):
    scene = make_scene(guard=syntax)
    assert_problem(post_raw_field(scene, b"Idempotency-Key: " + value), "key-malformed")
    assert scene.upstream.count() == 0


@pytest.mark.parametrize("value", BAD_IN_STRICT)
def test_a7_strict_refuses_every_other_type(strict, value):
    assert_problem(post_raw_field(strict, b"Idempotency-Key: " + value), "key-malformed")
    assert strict.upstream.count() == 0


@pytest.mark.parametrize("value", ['"a";p', '"a";p=1;q="x"', '"a" ;p'])
def test_a7_strict_ignores_unknown_parameters(strict, value):
    response = strict.post(value)
    if value == '"a" ;p':  # RFC 9651 allows no blank before the semicolon
        assert_problem(response, "key-malformed")
        return
    assert response.status == 201
    assert strict.post('"a"').replayed


@pytest.mark.parametrize("syntax", [LENIENT, STRICT])
def test_a8_escaped_string_is_accepted_and_replayed(make_scene, syntax):
    scene = make_scene(guard=syntax)
    assert scene.post(r'"a\"b\\c"').status == 201
    assert scene.post(r'"a\"b\\c"').replayed
    assert scene.upstream.count() == 1


@pytest.mark.parametrize("line", [
    b"Idempotency-Key:%s", b"Idempotency-Key:   %s", b"Idempotency-Key: %s  ",
    b"Idempotency-Key: %s\t", b"Idempotency-Key:\t%s"])
@pytest.mark.parametrize("syntax", [LENIENT, STRICT])
def test_a9_blanks_around_the_value_are_not_part_of_it(make_scene, syntax, line):
    scene = make_scene(guard=syntax)
    assert scene.post('"blank"').status == 201
    assert post_raw_field(scene, line % b'"blank"').replayed
    assert scene.upstream.count() == 1


@pytest.mark.parametrize("values", [("one", "two"), ("same", "same"), ('"foo', 'bar"'), ("a", "")])
@pytest.mark.parametrize("syntax", [LENIENT, STRICT])
def test_a11_two_header_lines_are_400_and_not_executed(make_scene, syntax, values):
    scene = make_scene(guard=syntax)
    response = scene.post(headers=[("Idempotency-Key", value) for value in values])
    assert_problem(response, "key-malformed")
    assert scene.upstream.count() == 0


def test_a11_two_header_lines_are_400_also_where_the_key_is_optional(scene):
    response = scene.post(headers=[("Idempotency-Key", "a"), ("idempotency-key", "a")])
    assert_problem(response, "key-malformed")
    assert scene.upstream.count() == 0


@pytest.mark.parametrize("value", ["", '""', "   "])
@pytest.mark.parametrize("syntax", [LENIENT, STRICT, ""])
def test_a14_empty_key_is_400_even_where_the_key_is_optional(make_scene, syntax, value):
    scene = make_scene(guard=syntax)
    response = scene.post(value)
    assert kind_of(response) in ("key-missing", "key-malformed"), response
    assert_problem(response, kind_of(response))
    assert scene.upstream.count() == 0


def test_a15_longest_key_works_longer_is_400_never_cut(required):
    longest = "k" * 255
    assert required.post(longest).status == 201
    assert required.post(longest).replayed
    assert_problem(required.post(longest + "x"), "key-malformed")
    assert_problem(required.post(f'"{longest}x"'), "key-malformed")
    assert required.post(f'"{longest}"').replayed, "the quotes do not count"
    assert required.upstream.count() == 1


def test_a15_keys_with_a_long_common_prefix_are_distinct(required):
    for ending in ("a", "b", "aa"):
        assert required.post("p" * 250 + ending).status == 201
    assert required.upstream.count() == 3


@pytest.mark.parametrize("size", [1, 36, 1024])
def test_a15_max_is_what_the_route_says(make_scene, size):
    scene = make_scene(guard=f"idempotency_key $http_idempotency_key max={size};")
    assert scene.post("m" * size).status == 201
    assert_problem(scene.post("m" * (size + 1)), "key-malformed")
    assert scene.upstream.count() == 1


HOSTILE = ["../../etc/passwd", "%0d%0aX-Injected:1", "';DROP_TABLE_idempotency_keys;--",
           "*3$3SET", "${jndi:ldap}", "<script>", "$request_uri", '"a b; c=\'d\'"', "{}", "%00"]


@pytest.mark.parametrize("value", HOSTILE)
def test_a16_hostile_keys_are_opaque_or_400(required, value):
    first = required.post(value)
    if first.status == 400:
        assert_problem(first, "key-malformed")
        assert required.upstream.count() == 0
    else:
        again = required.post(value)
        assert first.status == 201 and again.replayed and again.body == first.body
        assert required.upstream.last().key == value
    assert not first.all("X-Injected")
    assert required.post(new_key()).status == 201, "the gateway goes on"
    assert all(line.startswith("POST /pay ") for line in required.nginx.access_log())


def test_keys_are_byte_exact(required):
    for value in ("Case", "case", "CASE"):
        assert required.post(value).status == 201
    assert required.upstream.count() == 3


@pytest.mark.parametrize("name", ["X-Request-Token", "PayPal-Request-Id"])
def test_key_from_another_header(make_scene, key, name):
    variable = "$http_" + name.lower().replace("-", "_")
    scene = make_scene(guard=f"idempotency_key {variable} required;")
    assert_problem(scene.post(key), "key-missing")
    assert scene.post(headers=[(name, key)]).status == 201
    assert scene.post(headers=[(name, key)]).replayed
    assert_problem(scene.post(headers=[(name, key), (name, key)]), "key-malformed")
    assert scene.upstream.count() == 1
    assert scene.upstream.last().get("Idempotency-Key") == key


def test_key_from_a_query_argument(make_scene, key):
    scene = make_scene(guard="idempotency_key $arg_token required;")
    assert scene.post(target=f"/pay?token={key}").status == 201
    assert scene.post(target=f"/pay?token={key}").replayed
    assert_problem(scene.post(target="/pay"), "key-missing")
    assert scene.upstream.count() == 1


def test_a2_refusals_point_to_their_meaning_by_type(required, key):
    required.post(key)
    for response in (required.post(), required.post('"x'), required.post(key, body=b"other")):
        assert response.json()["type"].startswith("urn:idem:problem:")
