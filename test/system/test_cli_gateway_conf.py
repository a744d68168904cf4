"""idem gateway: what is checked before anything starts, and the configuration that is written."""

import os
import re
import subprocess

import pytest

from nginx import free_port
from test_cli_support import (FAILURE, IDEM, OK, USAGE, environment, good, idem, idem_for_all,
                              own_directory, refused)


@pytest.fixture(name="place")
def _place():
    with own_directory() as path:
        yield path


WORDS = ["gateway", "--listen", "127.0.0.1:8080", "--upstream", "http://127.0.0.1:9000"]


def conf(*words, env=None, **changed):
    """The configuration that is printed; options given here replace the usual ones."""
    options = {"--listen": "127.0.0.1:8080", "--upstream": "http://127.0.0.1:9000"}
    options.update({"--" + name: value for name, value in changed.items()})
    line = ["gateway", "--print-conf"]
    for name, value in options.items():
        line += [name, value]
    ran = idem(*line, *words, env=env)
    assert ran.status == OK, ran.err
    return ran.out


def location(text):
    return text.split("location / {")[1].split("}")[0]


def test_the_configuration_guards_everything(place):
    text = conf("--state", place / "state")
    guarded = location(text)
    assert "idempotency main;" in guarded and "idempotency_key" not in guarded
    assert "proxy_pass http://idem_upstream;" in guarded
    assert "proxy_http_version 1.1;" in guarded
    assert 'proxy_set_header Connection "";' in guarded
    assert f'idempotency_store main "lmdb:{place}/state/store";' in text
    assert "server 127.0.0.1:9000;" in text and "listen 127.0.0.1:8080;" in text
    for line in ("daemon off;", "master_process on;", f'pid "{place}/state/nginx.pid";',
                 "error_log stderr warn;", "access_log off;"):
        assert line in text
    for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"):
        assert re.search(rf'{name}_temp_path "{re.escape(str(place))}/state/tmp/', text)
    assert os.listdir(place) == [], "printing makes nothing"


def test_required_and_set():
    guarded = location(conf("--required", "--set", "idempotency_ttl 7d;", "--set",
                            "proxy_read_timeout 5s; proxy_set_header X-A a;"))
    assert "idempotency_key $http_idempotency_key required;" in guarded
    assert "            idempotency_ttl 7d;\n" in guarded
    assert "proxy_set_header X-A a;" in guarded and "proxy_set_header Host" in guarded


@pytest.mark.parametrize("given, gone", [
    ("proxy_set_header Host api;", "proxy_set_header Host $idem_host;"),
    ("proxy_set_header host api;", "proxy_set_header Host $idem_host;"),
    ('proxy_set_header "X-Forwarded-Proto" https;', "proxy_set_header X-Forwarded-Proto $scheme;"),
    ("proxy_redirect default;", "proxy_redirect off;"),
    ("proxy_http_version 1.0;", "proxy_http_version 1.1;"),
])
def test_what_is_set_takes_the_place_of_the_default(given, gone):
    assert gone in location(conf())
    assert gone not in location(conf("--set", given))


def test_tls_is_verified_unless_told_otherwise(place):
    bundle = place / "ca.pem"
    bundle.write_text("")
    env = {"SSL_CERT_FILE": str(bundle)}
    guarded = location(conf(upstream="https://api.example.com", env=env))
    assert "proxy_pass https://idem_upstream;" in guarded
    for line in ("proxy_ssl_verify on;", "proxy_ssl_server_name on;",
                 "proxy_ssl_name api.example.com;", f'proxy_ssl_trusted_certificate "{bundle}";',
                 "proxy_set_header Host api.example.com;",
                 "proxy_redirect https://api.example.com/ /;"):
        assert line in guarded, guarded
    off = location(conf("--set", "proxy_ssl_verify off;", upstream="https://api.example.com:8443"))
    assert "proxy_ssl_verify on" not in off and "trusted" not in off
    assert "proxy_set_header Host api.example.com:8443;" in off


@pytest.mark.parametrize("url, server", [
    ("http://api.example.com", "api.example.com:80"), ("http://api:9000/", "api:9000"),
    ("https://api", "api:443"), ("http://[::1]:9000", "[::1]:9000"),
    ("unix:/run/api.sock", "unix:/run/api.sock"), ("http://unix:/run/a.sock", "unix:/run/a.sock"),
])
def test_upstreams(url, server):
    assert f"        server {server};\n" in conf(upstream=url)


@pytest.mark.parametrize("url", [
    "", "api:9000", "ftp://api", "http://", "http://api:0", "http://api:65536", "http://api:x",
    "http://user@api", "http://api/path", "http://api?x", "http://api;", "http://$host",
    "http://api{", "http://a b", "http://[::1", "http://" + "a" * 300, "unix:relative", "unix:",
    "unix:/a b", "unix:/a;b", "unix:/a$b", "unix:/" + "a" * 200, "unix:/a#b", "http://api\nx",
    "http://api:80:80",
])
def test_wrong_upstreams(url):
    assert "--upstream" in refused(USAGE, "gateway", "--listen", ":8080", "--upstream", url,
                                   "--print-conf").err


@pytest.mark.parametrize("address, listen", [
    ("127.0.0.1:8080", "127.0.0.1:8080"), (":8080", "0.0.0.0:8080"), ("*:8080", "0.0.0.0:8080"),
    ("[::1]:8080", "[::1]:8080"), ("localhost:8080", None), ("0.0.0.0:1", "0.0.0.0:1"),
])
def test_listen(address, listen):
    text = conf(listen=address)
    wanted = [listen] if listen else ["127.0.0.1:8080", "[::1]:8080"]
    assert any(f"        listen {one};\n" in text for one in wanted)


@pytest.mark.parametrize("address", ["8080", "127.0.0.1", "127.0.0.1:", "127.0.0.1:0", ":70000",
                                     "::1:8080", "[::1]8080", "a;b:80", "127.0.0.1:80 ssl",
                                     "unix:/a", ":8080;", "[::1]:80{"])
def test_wrong_listen(address):
    ran = refused(USAGE, "gateway", "--listen", address, "--upstream", "http://a", "--print-conf")
    assert "--listen" in ran.err and "127.0.0.1:8080" in ran.err


@pytest.mark.parametrize("directive, sentence", [
    ("", "it is empty"), ("  ", "it is empty"), (";", "without a directive"),
    ("a;;", "without a directive"), ("a b", "does not end in ;"), ("a b; c", "does not end in ;"),
    ("a } b;", "braces"), ("a { b;", "braces"), ('a "{";', "braces"), ("a \\};", "braces"),
    ("} server { listen 1;", "braces"), ("a ${b};", "braces"), ('a "b;', "not closed"),
    ("a 'b;", "not closed"), ('a "b\\";', "not closed"), ("# a;", "comment"), ("a # b;", "comment"),
    ("a; #", "comment"), ("a\nb;", "line end"), ("a\rb;", "line end"), ("a b;\\", "backslash"),
    ('a "b"c;', "closing quote"), ('a "b""c";', "closing quote"), ("a \\;", "does not end in ;"),
    ("proxy_pass http://a;", "writes proxy_pass itself; say where the API is with --upstream"),
    ("a b; 'proxy_pass' x;", "with --upstream"), ("idempotency off;", "the store that --store"),
    ("idempotency main;", "idempotency itself"), ("idempotency_store b memory:;", "with --store"),
])
def test_set_cannot_leave_the_location(directive, sentence):
    ran = refused(USAGE, *WORDS, "--print-conf", "--set", directive)
    assert "--set" in ran.err and sentence in ran.err


@pytest.mark.parametrize("directive", ["a b;", " a  b ; c 'd;e' ;", 'a "b\\"c";', "a b#c;",
                                       "a \\#b;", "a 'it\"s';", "a\tb;"])
def test_set_takes_whole_directives(directive):
    assert f"            {directive}\n" in conf("--set", directive)


@pytest.mark.parametrize("words, sentence", [
    (["--listen", ":80"], "--upstream URL is needed"),
    (["--upstream", "http://a"], "--listen ADDR:PORT is needed"),
    ([*WORDS[1:], "--workers", "0"], "--workers takes 1 to 256"),
    ([*WORDS[1:], "--workers", "257"], "--workers takes 1 to 256"),
    ([*WORDS[1:], "--drain", "2h"], "--drain takes"),
    ([*WORDS[1:], "--drain", "never"], "--drain takes"),
    ([*WORDS[1:], "--keepalive", "2h"], "--keepalive takes"),
    ([*WORDS[1:], "--log-level", "loud"], "--log-level takes"),
    ([*WORDS[1:], "--store", "memory:", "--workers", "2"], "--workers 1"),
    ([*WORDS[1:], "--store", "nosuch:x"], "nosuch"),
    ([*WORDS[1:], "--state", "/tmp/a$b"], "with $ or control characters"),
    ([*WORDS[1:], "--required", "--set", "idempotency_key $http_x;"], "exclude each other"),
    ([*WORDS[1:], "--user", "no-such-user-here"], "--user"),
    ([*WORDS[1:], "word"], "one word too many"),
    ([*WORDS[1:], "--state", ""], "--state is given an empty value"),
    ([*WORDS[1:], "--store", ""], "--store is given an empty value"),
    ([*WORDS[1:], "--access-log", ""], "--access-log is given an empty value"),
])
def test_usage_errors(words, sentence):
    assert sentence in refused(USAGE, "gateway", "--print-conf", *words).err


def test_relative_places_are_made_absolute(place):
    ran = good(*WORDS, "--print-conf", "--module", IDEM, "--state", "s t", "--store",
               "lmdb:a%20b?size=64m", cwd=place)
    assert f'idempotency_store main "lmdb:{place}/a%20b?size=64m";' in ran.out
    assert f'pid "{place}/s t/nginx.pid";' in ran.out


def test_the_default_state_directory(place):
    text = conf(env={"XDG_STATE_HOME": str(place)})
    if os.geteuid() == 0:
        assert 'pid "/var/lib/idem/nginx.pid";' in text
    else:
        assert f'pid "{place}/idem/nginx.pid";' in text


def test_a_relative_access_log_is_made_absolute(place):
    ran = good(*WORDS, "--print-conf", "--module", IDEM, "--access-log", "a b.log", cwd=place)
    assert f'access_log "{place}/a b.log" idem;' in ran.out
    ran = good(*WORDS, "--print-conf", "--module", IDEM, "--access-log", "syslog:server=[::1]")
    assert 'access_log "syslog:server=[::1]" idem;' in ran.out


def test_the_access_log_has_what_idem_knows():
    text = conf("--access-log", "/tmp/x.log")
    assert 'access_log "/tmp/x.log" idem;' in text
    for name in ("outcome", "id", "attempt", "store_time"):
        assert f"$idempotency_{name}" in text


@pytest.mark.parametrize("words, sentence", [
    (["--nginx", "/nonexistent"], "--nginx /nonexistent"),
    (["--module", "/nonexistent.so"], "--module /nonexistent.so"),
    (["--upstream", "http://no.such.host.invalid:9000"], "no.such.host.invalid is not known"),
    (["--listen", "192.0.2.1:8080"], "this machine has no such address"),
    (["--state", "/proc/nothing"], "cannot make the directory"),
    (["--state", "/dev/null/x"], "cannot make the directory"),
    (["--set", "no_such_directive x;"],
     'unknown directive "no_such_directive" in {state}/nginx.conf'),
    (["--set", "proxy_http_version 1.0;"], "proxy_http_version 1.1"),
    (["--set", "proxy_next_upstream error non_idempotent;"], "non_idempotent"),
    (["--set", "client_max_body_size 1q;"], "(the line: client_max_body_size 1q;)"),
    (["--store", "lmdb:/proc/store"], "cannot make the directory"),
])
def test_what_keeps_it_from_starting(place, words, sentence):
    options = {"--listen": f"127.0.0.1:{free_port()}", "--upstream": "http://127.0.0.1:1",
               "--state": str(place / "state"),
               "--store": f"lmdb:{place}/state/store?size=64m"}
    options.update(dict(zip(words[::2], words[1::2])))
    line = [part for pair in options.items() for part in pair]
    ran = refused(FAILURE, "gateway", *line)
    last = [text for text in ran.err.splitlines()
            if not re.match("idem gateway: (warning|made a new, empty store)", text)]
    assert sentence.format(state=options["--state"]) in "\n".join(last), ran.err
    assert len(last) <= 2 and "[emerg]" not in ran.err, ran.err


def test_what_makes_the_store_unusable_is_told_before_nginx_starts(place):
    """The store's own sentence, once, and not a log full of it."""
    (place / "file").write_text("x")
    ran = refused(FAILURE, "gateway", "--listen", f"127.0.0.1:{free_port()}", "--upstream",
                  "http://127.0.0.1:1", "--state", place / "state", "--store",
                  f"lmdb:{place}/file")
    assert str(place / "file") in ran.err.splitlines()[-1]


def test_an_unwritable_state_directory(place):
    """As a user that is not root: root may write anywhere."""
    closed = place / "closed"
    closed.mkdir()
    user = {"user": "nobody", "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}
    closed.chmod(0o555)
    done = subprocess.run([idem_for_all(), *WORDS, "--state", str(closed)], check=False,
                          capture_output=True, text=True, env=environment(), **user)
    assert done.returncode == FAILURE
    assert f"cannot write in the state directory {closed}" in done.stderr
    closed.chmod(0o755)


def test_root_needs_a_directory_that_the_workers_can_reach(place):
    if os.geteuid() != 0:
        # Everybody else is the worker: what they can make, they can reach.
        refused(USAGE, *WORDS, "--user", "nobody")
        return
    closed = place / "closed"
    closed.mkdir(mode=0o700)
    ran = refused(FAILURE, "gateway", "--listen", f"127.0.0.1:{free_port()}", "--upstream",
                  "http://127.0.0.1:1", "--state", closed / "state")
    assert f"may not pass through {closed};" in ran.err and "--user NAME" in ran.err
    held = place / "held"
    held.mkdir(mode=0o755)
    ran = refused(FAILURE, "gateway", "--listen", f"127.0.0.1:{free_port()}", "--upstream",
                  "http://127.0.0.1:1", "--state", place / "state", "--store", f"lmdb:{held}")
    assert f"may not write in the store's directory {held}" in ran.err
    assert os.stat(held).st_uid == 0, "a directory that was named keeps its owner"
