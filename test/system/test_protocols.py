"""Other upstream protocols: FastCGI, SCGI and uwsgi, whose answers may end by closing only."""

import pytest
from cgi_upstream import CgiUpstream, answer_bytes
from problem import assert_problem

BODY = bytes(range(256)) * 100
PROTOCOLS = ["fastcgi", "scgi", "uwsgi"]


@pytest.fixture
def make_pair(make_scene):
    """A scene in front of a CGI upstream of the given protocol."""
    made = []

    def make(protocol, **options):
        cgi = CgiUpstream(protocol)
        made.append(cgi)
        return make_scene(proxy=cgi.configuration(), **options), cgi

    yield make
    for cgi in made:
        cgi.stop()


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("buffering", ["on", "off"])
@pytest.mark.parametrize("size", [0, 1, len(BODY)])
def test_first_and_replay_are_byte_equal(make_pair, key, protocol, buffering, size):
    scene, cgi = make_pair(protocol, location=f"{protocol}_buffering {buffering};")
    cgi.reply = answer_bytes(BODY[:size], headers=[("X-Kept", "1"), ("Date", "yesterday")])
    first, again = scene.post(key), scene.post(key)
    assert first.status == 201 and first.body == BODY[:size]
    assert again.replayed and again.body == first.body and again.get("X-Kept") == "1"
    assert again.get("Date") != "yesterday" and len(again.all("Date")) == 1
    assert len(cgi.requests) == 1


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_upstream_sees_key_attempt_and_fence(make_pair, key, protocol):
    scene, cgi = make_pair(protocol)
    scene.post(key, headers=[("Idempotency-Attempt", "9"), ("Idempotency-Fence", "9")])
    params, body = cgi.requests[0]
    assert params["HTTP_IDEMPOTENCY_KEY"] == key and params["HTTP_IDEMPOTENCY_ATTEMPT"] == "1"
    assert params["HTTP_IDEMPOTENCY_FENCE"] != "9" and body == b'{"amount":1}'


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("buffering", ["on", "off"])
def test_answer_shorter_than_its_length_is_unknown(make_pair, key, protocol, buffering):
    scene, cgi = make_pair(protocol, location=f"{protocol}_buffering {buffering};")
    cgi.reply, cgi.cut = answer_bytes(BODY)[:-100], True
    assert_problem(scene.post(key), "upstream-unanswered", 502)
    cgi.reply, cgi.cut = answer_bytes(BODY), False
    assert_problem(scene.post(key), "outcome-unknown")
    assert len(cgi.requests) == 1


@pytest.mark.parametrize("buffering", ["on", "off"])
def test_fastcgi_without_its_end_record_is_unknown(make_pair, key, buffering):
    """nginx takes a close for the end; the protocol has an end of its own."""
    scene, cgi = make_pair("fastcgi", location=f"fastcgi_buffering {buffering};")
    cgi.reply, cgi.cut = answer_bytes(BODY, length=False), True
    assert_problem(scene.post(key), "upstream-unanswered", 502)
    assert_problem(scene.post(key), "outcome-unknown")
    assert len(cgi.requests) == 1


@pytest.mark.parametrize("buffering", ["on", "off"])
def test_fastcgi_without_a_length_is_whole_by_its_end_record(make_pair, key, buffering):
    scene, cgi = make_pair("fastcgi", location=f"fastcgi_buffering {buffering};")
    cgi.reply = answer_bytes(BODY, length=False)
    first, again = scene.post(key), scene.post(key)
    assert first.body == BODY and again.replayed and again.body == BODY


@pytest.mark.parametrize("protocol", ["scgi", "uwsgi"])
def test_answer_that_ends_by_closing_only_is_unknown_unless_trusted(make_pair, key, protocol):
    scene, cgi = make_pair(protocol)
    cgi.reply = answer_bytes(BODY, length=False)
    assert_problem(scene.post(key), "upstream-unanswered", 502)
    assert_problem(scene.post(key), "outcome-unknown")
    assert len(cgi.requests) == 1


@pytest.mark.parametrize("protocol", ["scgi", "uwsgi"])
def test_answer_that_ends_by_closing_only_is_kept_where_trusted(make_pair, key, protocol):
    scene, cgi = make_pair(protocol, guard="idempotency_close_delimited on;")
    cgi.reply = answer_bytes(BODY, length=False)
    first, again = scene.post(key), scene.post(key)
    assert first.body == BODY and again.replayed and again.body == BODY
    assert len(cgi.requests) == 1


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_closed_without_an_answer_is_unknown(make_pair, key, protocol):
    scene, cgi = make_pair(protocol)
    cgi.reply, cgi.cut = b"", True
    assert_problem(scene.post(key), "upstream-unanswered", 502)
    assert_problem(scene.post(key), "outcome-unknown")
    assert len(cgi.requests) == 1


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_idempotency_outcome_is_understood_and_not_passed_on(make_pair, key, protocol):
    scene, cgi = make_pair(protocol)
    cgi.reply = answer_bytes(b"no", headers=[("Idempotency-Outcome", "failed")])
    for number in (1, 2):
        assert not scene.post(key).all("Idempotency-Outcome")
        assert len(cgi.requests) == number
