"""Waiting for conditions. Tests never sleep for a fixed time: they wait until something is true."""

import time

PATIENCE_S = 20.0  # a machine under load may be slow; a passing test does not wait this long
INTERVAL_S = 0.005


def wait_until(condition, what, timeout=PATIENCE_S):
    """Polls until condition() is truthy and returns its value; fails naming `what` otherwise."""
    deadline = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {timeout} s in vain for: {what}")
        time.sleep(INTERVAL_S)


def hold_true_for(condition, seconds, what):
    """Polls for the whole span of time and fails as soon as condition() is not truthy."""
    deadline = time.monotonic() + seconds
    rounds = 0
    while time.monotonic() < deadline or rounds == 0:
        assert condition(), f"did not stay true: {what}"
        rounds += 1
        time.sleep(INTERVAL_S)
    return rounds
