"""What every refusal must look like (RFC 9457, design 8)."""

import re

TYPE_PREFIX = "urn:idem:problem:"
RETRY_WORDS = ("same-key", "new-key", "no")
STATUS = {
    "key-missing": 400, "key-malformed": 400, "key-reused": 422, "other-caller": 403,
    "in-progress": 409, "outcome-unknown": 409, "answer-not-kept": 409,
    "store-unavailable": 503, "store-full": 503,
    "upstream-unreachable": 502, "upstream-unanswered": 502,
}
RETRY = {"key-missing": "new-key", "key-malformed": "new-key", "other-caller": "no",
         "in-progress": "same-key", "outcome-unknown": "same-key", "key-reused": "new-key",
         "answer-not-kept": "no", "store-unavailable": "same-key", "store-full": "same-key",
         "upstream-unreachable": "same-key", "upstream-unanswered": "same-key"}
RETRY_AFTER_KINDS = ("in-progress", "outcome-unknown", "store-unavailable", "store-full")


def assert_problem(response, kind, status=None):
    """Fails unless the answer is a whole, valid problem of this kind. Returns its members."""
    expected = status or STATUS[kind]
    assert response.status == expected, f"expected {expected} {kind}, got {response!r}"
    assert response.get("Content-Type") == "application/problem+json", response
    members = response.json()
    assert members["type"] == TYPE_PREFIX + kind, members
    assert members["status"] == response.status, members
    for name in ("title", "detail"):
        assert isinstance(members[name], str) and members[name].strip(), members
    assert members["retry"] in RETRY_WORDS, members
    assert members["retry"] == RETRY.get(kind, members["retry"]), members
    assert not response.all("Idempotent-Replayed"), response
    if kind in RETRY_AFTER_KINDS:
        assert re.fullmatch(r"[1-9][0-9]*", response.get("Retry-After") or ""), response
    return members


def kind_of(response):
    """The kind of a refusal, or None for an answer that is none."""
    if response.get("Content-Type") != "application/problem+json":
        return None
    return response.json()["type"].removeprefix(TYPE_PREFIX)
