"""./run from start to stop: what it prints, what the demo answers, and what survives a restart."""

import glob
import os
import signal
import socket
import subprocess
import uuid

import pytest

from nginx import free_port
from demo import PAYMENTS, REPOSITORY, SECONDS_MAX, Demo, code_block, demo_environment

ARTICLE_AMOUNTS = ('{"order_id":"ORD001","amount":100.00,"currency":"CNY"}',
                   '{"order_id":"ORD002","amount":200.00,"currency":"CNY"}')


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    running = Demo(tmp_path_factory.mktemp("demo"))
    yield running
    status, errors = running.stop()
    assert status == 0, errors


def test_a_payment_a_retry_and_another_payment(demo):
    key = str(uuid.uuid4())
    status, headers, first = demo.pay(key)
    assert status == 201 and "X-Idempotent-Replayed" not in headers
    assert headers["Location"].startswith(PAYMENTS + "/PAY")
    status, again, body = demo.pay(key)
    assert (status, body) == (200, first)
    assert again["X-Idempotent-Replayed"] == "true"
    assert again["Location"] == headers["Location"]
    status, refused, _ = demo.pay(key, amount=200)
    assert status == 422 and refused["Content-Type"] == "application/problem+json"
    assert demo.pay(key)[0] == 200
    assert demo.ask("GET", headers["Location"])[2] == first


def test_a_key_is_required(demo):
    status, headers, _ = demo.pay(None)
    assert status == 400 and headers["Content-Type"] == "application/problem+json"


def test_the_same_order_under_new_keys(demo):
    """The script that closes the first article uses one order number in every run."""
    for _ in range(3):
        key = str(uuid.uuid4())
        asked = [demo.ask("POST", PAYMENTS, body, Idempotency_Key=key,
                          Content_Type="application/json")[0]
                 for body in (ARTICLE_AMOUNTS[0], ARTICLE_AMOUNTS[0], ARTICLE_AMOUNTS[1])]
        assert asked == [201, 200, 422]


def test_a_refund_is_guarded_too(demo):
    path = demo.pay(str(uuid.uuid4()))[1]["Location"] + "/refund"
    key = str(uuid.uuid4())
    first, again = (demo.ask("POST", path, Idempotency_Key=key) for _ in range(2))
    assert (first[0], again[0]) == (200, 200) and first[2] == again[2]
    assert again[1]["X-Idempotent-Replayed"] == "true"


def test_the_lines_that_it_prints_work(demo):
    """Every command that ./run tells the user to try does what is said beside it."""
    commands = [part.strip() for part in demo.told.split("\n\n") if "curl -i" in part]
    assert len(commands) == 2
    for status, command in zip(("201", "200", "422"), (commands[0], commands[0], commands[1])):
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True,
                              timeout=SECONDS_MAX, cwd=REPOSITORY)
        assert done.stdout.startswith(f"HTTP/1.1 {status} "), done.stdout


def test_the_list_that_it_prints_works(demo):
    key = str(uuid.uuid4())
    demo.pay(key)
    line = next(line for line in demo.told.split("\n") if " list --store " in line)
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=True,
                          timeout=SECONDS_MAX, cwd=REPOSITORY)
    assert key in done.stdout and "completed" in done.stdout


def test_answers_and_payments_survive_a_restart(tmp_path):
    first = Demo(tmp_path)
    made = first.pay("the-key")
    assert first.stop()[0] == 0
    second = Demo(tmp_path)
    try:
        status, headers, body = second.pay("the-key")
        assert (status, body) == (200, made[2])
        assert headers["X-Idempotent-Replayed"] == "true"
        assert second.ask("GET", headers["Location"])[2] == body
    finally:
        assert second.stop(signal.SIGTERM)[0] == 0


def run_and_fail(port, state):
    done = subprocess.run(["./run"], cwd=REPOSITORY, capture_output=True, text=True, check=False,
                          timeout=SECONDS_MAX, env=demo_environment(port, IDEM_STATE=str(state)))
    assert done.returncode == 1
    return done.stderr


def test_a_taken_port_is_told(tmp_path):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        told = run_and_fail(port, tmp_path)
    assert str(port) in told and "IDEM_PORT" in told


@pytest.mark.parametrize("port", ["0", "65536", "http", "-1", "80 80", "080", "00", "9" * 30,
                                  "18446744073709559696", " ", "0x50"])
def test_a_port_that_is_none_is_told_in_one_line(port, tmp_path):
    told = run_and_fail(port, tmp_path)
    assert told.startswith("IDEM_PORT is") and len(told.splitlines()) == 1, told


def test_a_second_demo_is_told_to_take_a_state_of_its_own(demo, tmp_path):
    told = run_and_fail(free_port(), demo.state)
    assert f"A demo runs on {demo.state} already" in told
    assert f"IDEM_STATE={demo.state}-2 ./run" in told
    second = Demo(tmp_path)
    assert second.stop()[0] == 0


def test_the_programs_go_when_the_script_is_killed(tmp_path):
    Demo(tmp_path).stop(signal.SIGKILL)


def test_the_example_of_the_readme(demo):
    """The README's example, as it stands, and once more: it may be tried again and again."""
    with open(os.path.join(REPOSITORY, "README.md"), encoding="utf-8") as file:
        readme = file.read()
    example = code_block(readme, "sh", "## Example")
    assert len(example.splitlines()) <= 20
    for _ in range(2):
        done = subprocess.run(["sh", "-eu", "-c", example], capture_output=True, text=True,
                              check=False, timeout=SECONDS_MAX,
                              env=demo_environment(demo.port))
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == code_block(readme, "text", "It prints")


# Where the folder that holds this one brings acceptance scripts, they pass, again and again.
ACCEPTANCE = sorted(glob.glob(os.path.join(REPOSITORY, "..", "shared", "acceptance", "*.sh")))
if ACCEPTANCE:
    @pytest.mark.parametrize("turn", [1, 2])
    @pytest.mark.parametrize("script", ACCEPTANCE, ids=os.path.basename)
    def test_acceptance(script, turn, demo):
        done = subprocess.run([script, demo.url], capture_output=True, text=True, check=False,
                              timeout=2 * SECONDS_MAX)
        assert done.returncode == 0, done.stdout + done.stderr
