"""The demo service alone, without the gateway: every answer of its API, and what its books say."""

import concurrent.futures
import http.client
import json
import os
import re
import signal
import socket
import sqlite3
import subprocess

import pytest

REPOSITORY = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("IDEM_BUILD", os.path.join(REPOSITORY, "build"))
PROGRAM = os.path.join(BUILD, "demo", "idem-payments")
PAYMENTS = "/api/v1/payments"
GOOD = '{"order_id":"ORD001","amount":100.00,"currency":"CNY"}'
SECONDS_MAX = 30


class Answer:
    def __init__(self, response):
        self.status = response.status
        self.headers = response.headers
        self.body = response.read()

    def json(self):
        return json.loads(self.body)


class Service:
    """The program on a port that the system chose, with a database of its own."""

    def __init__(self, directory, listen="127.0.0.1:0"):
        self.database = str(directory / "payments.db")
        self.process = subprocess.Popen(
            [PROGRAM, "--database", self.database, "--listen", listen],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.ready = self.process.stdout.readline()
        match = re.fullmatch(r"payments ready on http://127\.0\.0\.1:(\d+)\n", self.ready)
        assert match, self.ready + self.process.stderr.read()
        self.port = int(match.group(1))

    def ask(self, method, path, body=None, headers=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS_MAX)
        try:
            connection.request(method, path, body, headers or {})
            return Answer(connection.getresponse())
        finally:
            connection.close()

    def pay(self, body=GOOD, key=None, **headers):
        fields = {"Content-Type": "application/json", **headers}
        if key is not None:
            fields["Idempotency-Key"] = key
        return self.ask("POST", PAYMENTS, body, fields)

    def raw(self, data):
        """Sends bytes, returns everything that comes until the service closes."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=SECONDS_MAX) as peer:
            peer.sendall(data)
            peer.shutdown(socket.SHUT_WR)
            got = b""
            while piece := peer.recv(65536):
                got += piece
            return got

    def count(self, question):
        with sqlite3.connect(self.database) as books:
            return books.execute(question).fetchone()[0]

    def stop(self, number=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(number)
        _, errors = self.process.communicate(timeout=SECONDS_MAX)
        return self.process.returncode, errors


@pytest.fixture
def service(tmp_path):
    running = Service(tmp_path)
    yield running
    status, errors = running.stop()
    assert status == 0, errors
    assert "Sanitizer" not in errors and "runtime error" not in errors, errors


def problem(answer, status, kind):
    assert answer.status == status, answer.body
    assert answer.headers["Content-Type"] == "application/problem+json"
    told = answer.json()
    assert told["type"] == "urn:idem:demo:problem:" + kind
    assert told["status"] == status
    assert told["title"] and told["retry"] in ("same-key", "new-key", "no")
    return told


def fields(told):
    return [error["field"] for error in told["errors"]]


def order(**members):
    return json.dumps({"order_id": "o", "amount": 1, "currency": "CNY", **members})


# ---- the happy path

def test_a_payment_is_made_and_found(service):
    made = service.pay(key="k1")
    assert made.status == 201
    assert made.headers["Content-Type"] == "application/json"
    assert made.headers["Idempotency-Outcome"] == "final"
    payment = made.json()
    assert re.fullmatch(r"PAY[0-9a-f]{24}", payment["payment_no"])
    assert payment["status"] == "success" and payment["order_id"] == "ORD001"
    assert b'"amount":100.00,' in made.body
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", payment["created_at"])
    assert made.headers["Location"] == f"{PAYMENTS}/{payment['payment_no']}"

    found = service.ask("GET", made.headers["Location"])
    assert (found.status, found.body) == (200, made.body)
    head = service.ask("HEAD", made.headers["Location"])
    assert (head.status, head.body) == (200, b"")


def test_the_books_add_up(service):
    for amount in (1, 2.5, 0.01):
        assert service.pay(order(amount=amount)).status == 201
    assert service.count("SELECT sum(amount_minor) FROM ledger_entry") == 0
    assert service.count("SELECT sum(balance_minor) FROM account") == 0
    assert service.count("SELECT balance_minor FROM account WHERE name = 'merchant::CNY'") == 351
    assert service.count("SELECT count(*) FROM pragma_foreign_key_check") == 0
    assert service.count("SELECT group_concat(from_status || '>' || to_status, ' ')"
                         " FROM (SELECT * FROM payment_move WHERE payment_id = 1 ORDER BY id)") \
        == "pending>paying paying>success"


@pytest.mark.parametrize("literal, currency, shown, minor", [
    ("100.00", "CNY", "100.00", 10000), ("100", "USD", "100.00", 10000),
    ("1e2", "EUR", "100.00", 10000), ("0.29", "CNY", "0.29", 29), ("4.35", "CNY", "4.35", 435),
    ("100", "JPY", "100", 100), ("1.005", "KWD", "1.005", 1005), ("0.0001", "CLF", "0.0001", 1),
    ("9999999999.99", "CNY", "9999999999.99", 999999999999),
    ("1.10000000000000000000000000000000000000000", "CNY", "1.10", 110),
])
def test_amounts_are_exact(service, literal, currency, shown, minor):
    made = service.pay(f'{{"order_id":"o","amount":{literal},"currency":"{currency}"}}')
    assert made.status == 201, made.body
    assert f'"amount":{shown},'.encode() in made.body
    assert service.count("SELECT amount_minor FROM payment") == minor


def test_a_refund_books_back_once(service):
    path = service.pay().headers["Location"]
    for _ in range(2):
        refunded = service.ask("POST", path + "/refund")
        assert refunded.status == 200 and refunded.json()["status"] == "refunded"
    assert service.ask("GET", path).json()["status"] == "refunded"
    assert service.count("SELECT count(*) FROM ledger_entry") == 4
    assert service.count("SELECT sum(abs(balance_minor)) FROM account") == 0


def test_text_of_any_language_comes_back(service):
    made = service.pay(order(order_id='订单"\\/7'))
    assert made.status == 201 and made.json()["order_id"] == '订单"\\/7'


def test_members_that_are_not_known_are_ignored(service):
    assert service.pay(order(user_id="u", amount_of={"amount": 9})).status == 201
    assert service.count("SELECT amount_minor FROM payment") == 100


# ---- the second line of defence

def test_the_same_key_returns_the_same_payment(service):
    first, again = service.pay(key="k"), service.pay(key="k")
    assert (first.status, again.status) == (201, 200)
    assert first.body == again.body
    assert first.headers["Location"] == again.headers["Location"]
    assert service.pay(key='"k"').status == 200
    assert service.count("SELECT count(*) FROM payment") == 1
    assert service.count("SELECT count(*) FROM ledger_entry") == 2


def test_spelling_does_not_make_another_payment(service):
    assert service.pay(key="k").status == 201
    same = service.pay('{"currency":"CNY", "amount":1e2, "order_id":"ORD\\u0030\\u0030\\u0031"}',
                       key="k")
    assert same.status == 200


def test_a_key_with_another_payment_is_refused(service):
    first = service.pay(key="k")
    refused = service.pay(order(), key="k")
    told = problem(refused, 422, "key-reused")
    assert told["retry"] == "new-key"
    assert first.json()["payment_no"].encode() not in refused.body


def test_ten_at_once_with_one_key_make_one_payment(service):
    with concurrent.futures.ThreadPoolExecutor(10) as pool:
        answers = list(pool.map(lambda _: service.pay(key="k"), range(10)))
    assert sorted(answer.status for answer in answers) == [200] * 9 + [201]
    assert len({answer.body for answer in answers}) == 1
    assert service.count("SELECT count(*) FROM payment") == 1


def test_an_order_may_be_paid_again_under_a_new_key(service):
    assert [service.pay(key=key).status for key in "abc"] == [201] * 3


def test_a_merchants_order_is_paid_once(service):
    body = order(merchant_id="m", merchant_order_no="7")
    first = service.pay(body, key="a")
    assert first.status == 201
    assert first.json()["merchant_id"] == "m" and first.json()["merchant_order_no"] == "7"
    refused = service.pay(body, key="b")
    problem(refused, 409, "merchant-order-taken")
    assert first.json()["payment_no"].encode() not in refused.body
    assert "Location" not in refused.headers
    assert service.pay(body, key="a").status == 200
    assert service.pay(order(merchant_id="n", merchant_order_no="7"), key="c").status == 201
    assert service.count("SELECT count(*) FROM payment") == 2


@pytest.mark.parametrize("key", ["", "   ", '"', '"a', "a b", 'a"b', "k" * 256])
def test_a_malformed_key_is_refused(service, key):
    problem(service.pay(key=key), 400, "key-malformed")
    assert service.count("SELECT count(*) FROM payment") == 0


def test_two_keys_are_refused(service):
    answer = service.raw((f"POST {PAYMENTS} HTTP/1.1\r\nHost: x\r\nIdempotency-Key: a\r\n"
                          f"Idempotency-Key: a\r\nContent-Type: application/json\r\n"
                          f"Content-Length: {len(GOOD)}\r\nConnection: close\r\n\r\n{GOOD}")
                         .encode())
    assert answer.startswith(b"HTTP/1.1 400 ") and b"more than one" in answer


# ---- bad input

@pytest.mark.parametrize("body", [
    "", " ", "{", "[]", "null", '"x"', "{}{}", '{"order_id":"o",}', "\xff",
    '{"order_id":"o","amount":1,"amount":1,"currency":"CNY"}',
    '{"order_id":"o","amount":1,"am\\u006funt":2,"currency":"CNY"}',
    '{"order_id":"o","amount":01,"currency":"CNY"}',
    '{"order_id":"o","amount":NaN,"currency":"CNY"}', "[" * 5000,
])
def test_what_is_not_a_json_object_is_refused(service, body):
    told = problem(service.pay(body.encode("latin-1")), 400, "not-json")
    assert told["detail"]
    assert service.count("SELECT count(*) FROM payment") == 0


@pytest.mark.parametrize("members, field", [
    ({"amount": 0}, "amount"), ({"amount": -1}, "amount"), ({"amount": 0.001}, "amount"),
    ({"amount": "1"}, "amount"), ({"amount": None}, "amount"), ({"amount": True}, "amount"),
    ({"amount": [1]}, "amount"), ({"amount": 10**10}, "amount"), ({"amount": 10**40}, "amount"),
    ({"amount": 0.5, "currency": "JPY"}, "amount"),
    ({"amount": 0.0001, "currency": "KWD"}, "amount"),
    ({"currency": "cny"}, "currency"), ({"currency": "ZZZ"}, "currency"),
    ({"currency": 156}, "currency"), ({"currency": "CNYX"}, "currency"),
    ({"order_id": ""}, "order_id"), ({"order_id": 7}, "order_id"),
    ({"order_id": "x" * 65}, "order_id"),
    ({"order_id": "a\nb"}, "order_id"), ({"merchant_id": "m"}, "merchant_order_no"),
    ({"merchant_order_no": "7"}, "merchant_id"),
    ({"merchant_id": "m" * 33, "merchant_order_no": "7"}, "merchant_id"),
])
def test_a_wrong_member_is_named(service, members, field):
    told = problem(service.pay(order(**members)), 400, "invalid-payment")
    assert fields(told) == [field]
    assert service.count("SELECT count(*) FROM payment") == 0


def test_every_wrong_member_is_named_at_once(service):
    told = problem(service.pay("{}"), 400, "invalid-payment")
    assert sorted(fields(told)) == ["amount", "currency", "order_id"]


@pytest.mark.parametrize("content_type", [None, "text/plain", "application/jsonx",
                                          "application/x-www-form-urlencoded"])
def test_another_content_type_is_refused(service, content_type):
    headers = {"Content-Type": content_type} if content_type else {}
    problem(service.ask("POST", PAYMENTS, GOOD, headers), 415, "unsupported-media-type")


@pytest.mark.parametrize("content_type", ["Application/JSON", "application/json; charset=utf-8",
                                          "application/json ;x=y"])
def test_spellings_of_the_content_type(service, content_type):
    assert service.pay(**{"Content-Type": content_type}).status == 201


def test_bodies_up_to_the_maximum_are_read(service):
    padded = GOOD[:-1] + " " * (65536 - len(GOOD)) + "}"
    assert service.pay(padded).status == 201
    problem(service.pay(padded + " "), 413, "too-large")
    problem(service.pay("x" * (4 << 20)), 413, "too-large")
    assert service.count("SELECT count(*) FROM payment") == 1


def test_a_chunked_body_is_read_and_bounded(service):
    def chunks(size):
        return (f"POST {PAYMENTS} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                f"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
                f"{len(GOOD):x}\r\n{GOOD}\r\n{size:x}\r\n{' ' * size}\r\n0\r\n\r\n").encode()

    assert service.raw(chunks(10)).startswith(b"HTTP/1.1 201 ")
    assert service.raw(chunks(65536)).startswith(b"HTTP/1.1 413 ")


def test_a_large_body_that_waits_for_leave_gets_none(service):
    answer = service.raw((f"POST {PAYMENTS} HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n"
                          "Content-Type: application/json\r\nExpect: 100-continue\r\n\r\n")
                         .encode())
    assert answer.startswith(b"HTTP/1.1 413 ") and b"100 Continue" not in answer


def test_a_request_cut_short_makes_nothing(service):
    with socket.create_connection(("127.0.0.1", service.port), timeout=SECONDS_MAX) as peer:
        peer.sendall((f"POST {PAYMENTS} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json"
                      f"\r\nContent-Length: {len(GOOD) + 1}\r\n\r\n{GOOD}").encode())
    assert service.pay(order()).status == 201
    assert service.count("SELECT count(*) FROM payment") == 1


@pytest.mark.parametrize("path", ["/", "/api", "/api/v1/payment", PAYMENTS + "/", PAYMENTS + "x",
                                  PAYMENTS + "/PAY1", PAYMENTS + "/PAY" + "0" * 25,
                                  PAYMENTS + "/PAY" + "0" * 24 + "/refunds",
                                  PAYMENTS + "/" + "a/" * 14])
def test_unknown_paths(service, path):
    for method in ("GET", "POST"):
        problem(service.ask(method, path), 404, "not-found")


def test_an_unknown_payment(service):
    path = PAYMENTS + "/PAY" + "0" * 24
    problem(service.ask("GET", path), 404, "not-found")
    problem(service.ask("POST", path + "/refund"), 404, "not-found")


@pytest.mark.parametrize("method, path, allow", [
    ("GET", PAYMENTS, "POST"), ("PUT", PAYMENTS, "POST"), ("DELETE", PAYMENTS, "POST"),
    ("OPTIONS", PAYMENTS, "POST"),
    ("POST", PAYMENTS + "/PAY" + "0" * 24, "GET, HEAD"),
    ("DELETE", PAYMENTS + "/PAY" + "0" * 24, "GET, HEAD"),
    ("GET", PAYMENTS + "/PAY" + "0" * 24 + "/refund", "POST"),
])
def test_methods_that_are_not_allowed(service, method, path, allow):
    refused = service.ask(method, path)
    problem(refused, 405, "method-not-allowed")
    assert refused.headers["Allow"] == allow


# ---- the database

def test_a_locked_database_is_told_as_not_booked(service):
    with sqlite3.connect(service.database, isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        refused = service.pay(key="k")
        other.execute("ROLLBACK")
    told = problem(refused, 503, "unavailable")
    assert told["retry"] == "same-key"
    assert refused.headers["Idempotency-Outcome"] == "failed"
    assert int(refused.headers["Retry-After"]) > 0
    assert service.pay(key="k").status == 201


def test_a_failed_booking_is_told_as_not_booked(service):
    with sqlite3.connect(service.database) as books:
        books.execute("INSERT INTO account VALUES ('merchant::CNY', 'CNY', 9223372036854775807)")
    refused = service.pay(key="k")
    problem(refused, 500, "internal")
    assert refused.headers["Idempotency-Outcome"] == "failed"
    assert service.count("SELECT count(*) FROM payment") == 0


# ---- the process

def test_payments_survive_a_restart(tmp_path):
    first = Service(tmp_path)
    made = first.pay(key="k")
    assert first.stop() == (0, "")
    second = Service(tmp_path)
    assert second.ask("GET", made.headers["Location"]).body == made.body
    assert second.pay(key="k").status == 200
    assert second.stop(signal.SIGINT) == (0, "")


def test_payments_survive_a_kill(tmp_path):
    first = Service(tmp_path)
    made = first.pay(key="k")
    first.stop(signal.SIGKILL)
    second = Service(tmp_path)
    again = second.pay(key="k")
    assert (again.status, again.body) == (200, made.body)
    assert second.stop() == (0, "")


def test_a_request_under_way_is_answered_before_the_stop(tmp_path):
    service = Service(tmp_path)
    head = (f"POST {PAYMENTS} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            f"Expect: 100-continue\r\nContent-Length: {len(GOOD)}\r\n\r\n").encode()
    with socket.create_connection(("127.0.0.1", service.port), timeout=SECONDS_MAX) as peer:
        peer.sendall(head)
        assert peer.recv(65536).startswith(b"HTTP/1.1 100 ")  # it has begun the request
        service.process.send_signal(signal.SIGTERM)
        while True:  # it has stopped listening: it is draining
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", service.port)) != 0:
                    break
        peer.sendall(GOOD.encode())
        assert peer.recv(65536).startswith(b"HTTP/1.1 201 ")
    assert service.stop() == (0, "")


def test_a_taken_port_is_told(service, tmp_path):
    done = subprocess.run([PROGRAM, "--database", str(tmp_path / "other.db"), "--listen",
                           f"127.0.0.1:{service.port}"], capture_output=True, text=True,
                          timeout=SECONDS_MAX, check=False)
    assert done.returncode == 1 and f":{service.port}" in done.stderr
    assert "in use" in done.stderr and done.stdout == ""


@pytest.mark.parametrize("arguments, word", [
    ([], "usage"), (["--database"], "usage"), (["--database", "x", "more"], "usage"),
    (["--database", "/nonexistent/x"], "/nonexistent/x"),
    (["--database", ":memory:", "--listen", "8081"], "ADDRESS:PORT"),
    (["--database", ":memory:", "--listen", "localhost:0"], "ADDRESS:PORT"),
])
def test_wrong_arguments_are_told(arguments, word):
    done = subprocess.run([PROGRAM, *arguments], capture_output=True, text=True,
                          timeout=SECONDS_MAX, check=False)
    assert done.returncode in (1, 2) and word in done.stderr
