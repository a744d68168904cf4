"""What nginx -t says: a wrong value is an error that names the directive and what is allowed."""

import re

import pytest

# directive with wrong arguments, and a pattern for what the error must say is allowed
WRONG = [
    # idempotency
    ("idempotency;", r"number of arguments|store|off"),
    ("idempotency main extra;", r"number of arguments|store|off"),
    ("idempotency nowhere;", r"nowhere.*|idempotency_store"),
    # idempotency_key
    ("idempotency_key;", r"number of arguments"),
    ("idempotency_key '';", r"empty|value|variable"),
    ("idempotency_key $http_x requird;", r"required.*strict.*max="),
    ("idempotency_key $http_x max;", r"required.*strict.*max="),
    ("idempotency_key $http_x max=;", r"1 .*1024|1024"),
    ("idempotency_key $http_x max=0;", r"1 .*1024|1024"),
    ("idempotency_key $http_x max=1025;", r"1024"),
    ("idempotency_key $http_x max=-1;", r"1024"),
    ("idempotency_key $http_x max=12x;", r"1024"),
    ("idempotency_key $http_x max=99999999999999999999;", r"1024"),
    ("idempotency_key body=/key;", r"body=|not supported|variable|header"),
    # scope, credential
    ("idempotency_scope;", r"number of arguments"),
    ("idempotency_scope a b;", r"number of arguments"),
    ("idempotency_credential;", r"number of arguments"),
    ("idempotency_credential a b;", r"number of arguments"),
    # methods
    ("idempotency_methods;", r"number of arguments"),
    ("idempotency_methods GET;", r"POST.*PATCH|cannot be guarded|safe"),
    ("idempotency_methods POST HEAD;", r"POST.*PATCH|cannot be guarded|safe"),
    ("idempotency_methods OPTIONS;", r"POST.*PATCH|cannot be guarded|safe"),
    ("idempotency_methods TRACE;", r"POST.*PATCH|cannot be guarded|safe"),
    ("idempotency_methods CONNECT;", r"POST.*PATCH|cannot be guarded|safe"),
    ("idempotency_methods post;", r"POST"),
    ("idempotency_methods FETCH;", r"POST"),
    # fingerprint
    ("idempotency_fingerprint;", r"number of arguments"),
    ("idempotency_fingerprint json;", r"raw"),
    ("idempotency_fingerprint sha1;", r"raw"),
    ("idempotency_fingerprint raw a b;", r"number of arguments"),
    # times
    ("idempotency_ttl;", r"number of arguments"),
    ("idempotency_ttl 0;", r"never|1s|greater|time|between"),
    ("idempotency_ttl -1;", r"never|time|between"),
    ("idempotency_ttl soon;", r"never|time|between"),
    ("idempotency_ttl 1x;", r"never|time|between"),
    ("idempotency_ttl 1d never;", r"number of arguments"),
    ("idempotency_lease;", r"number of arguments"),
    ("idempotency_lease 0;", r"100 ?ms|between|24 ?h|1 ?d"),
    ("idempotency_lease 99ms;", r"100 ?ms|between|24 ?h|1 ?d"),
    ("idempotency_lease 2d;", r"24 ?h|1 ?d|between"),
    ("idempotency_lease never;", r"100 ?ms|between|24 ?h|1 ?d"),
    ("idempotency_lease long;", r"100 ?ms|between|24 ?h|1 ?d"),
    ("idempotency_unknown_ttl;", r"number of arguments"),
    ("idempotency_unknown_ttl 0;", r"time|between|1s|greater"),
    ("idempotency_unknown_ttl x;", r"time|between|1s|never"),
    # in flight, unknown
    ("idempotency_in_flight;", r"number of arguments"),
    ("idempotency_in_flight wait=1s;", r"reject"),
    ("idempotency_in_flight queue;", r"reject"),
    ("idempotency_unknown;", r"number of arguments"),
    ("idempotency_unknown probe=/status;", r"hold.*retry"),
    ("idempotency_unknown again;", r"hold.*retry"),
    ("idempotency_unknown hold retry;", r"number of arguments"),
    # outcome
    ("idempotency_outcome;", r"number of arguments"),
    ("idempotency_outcome 503;", r"number of arguments"),
    ("idempotency_outcome 503 maybe;", r"final.*failed.*unknown"),
    ("idempotency_outcome 600 final;", r"5xx|200.*599|status"),
    ("idempotency_outcome 199 final;", r"5xx|200.*599|status"),
    ("idempotency_outcome 1xx final;", r"5xx|200.*599|status"),
    ("idempotency_outcome 6xx final;", r"5xx|200.*599|status"),
    ("idempotency_outcome 50x final;", r"5xx|200.*599|status"),
    ("idempotency_outcome teapot failed;", r"5xx|200.*599|status"),
    # bodies, headers
    ("idempotency_body_max;", r"number of arguments"),
    ("idempotency_body_max 1t;", r"64m|size|between"),
    ("idempotency_body_max 65m;", r"64m"),
    ("idempotency_body_max -1;", r"64m|size"),
    ("idempotency_body_max large;", r"64m|size"),
    ("idempotency_close_delimited;", r"number of arguments"),
    ("idempotency_close_delimited yes;", r"allowed: (off on|on off)"),
    ("idempotency_hide_header;", r"number of arguments"),
    ("idempotency_hide_header 'A B';", r"header|name"),
    ("idempotency_hide_header 'X:';", r"header|name"),
    ("idempotency_replay_header;", r"number of arguments"),
    ("idempotency_replay_header 'bad name';", r"header|name"),
    ("idempotency_replay_header '';", r"header|name"),
    ("idempotency_replay_header A B;", r"number of arguments"),
    ("idempotency_replay_status;", r"number of arguments"),
    ("idempotency_replay_status 99;", r"same.*|200.*599"),
    ("idempotency_replay_status 600;", r"same.*|200.*599"),
    ("idempotency_replay_status often;", r"same"),
    ("idempotency_mismatch_status;", r"number of arguments"),
    ("idempotency_mismatch_status 200;", r"400.*499|4xx|422"),
    ("idempotency_mismatch_status 500;", r"400.*499|4xx|422"),
    ("idempotency_mismatch_status x;", r"400.*499|4xx|422"),
    ("idempotency_fail;", r"number of arguments"),
    ("idempotency_fail ajar;", r"closed.*open"),
    ("idempotency_fail on;", r"closed.*open"),
]
NOT_YET = ["idempotency_policy;", "idempotency_encrypt /etc/keys;"]
WRONG_STORES = [
    ("idempotency_store;", r"number of arguments"),
    ("idempotency_store x;", r"number of arguments"),
    ("idempotency_store x lmdb:/tmp/x y;", r"number of arguments"),
    ("idempotency_store x nosuch:/tmp/x;", r"lmdb"),
    ("idempotency_store x redis://127.0.0.1:x/;", r"lmdb|redis"),
    ("idempotency_store x lmdb:;", r"directory|lmdb:DIR"),
    ("idempotency_store x lmdb:relative/dir;", r"absolute|directory|/"),
    ("idempotency_store x lmdb:/tmp/x?size=big;", r"size"),
    ("idempotency_store x lmdb:/tmp/x?size=0;", r"size"),
    ("idempotency_store x lmdb:/tmp/x?size=1k;", r"size"),
    ("idempotency_store x lmdb:/tmp/x?sync=sometimes;", r"always.*off|sync"),
    ("idempotency_store x lmdb:/tmp/x?colour=red;", r"size|sync|option"),
    ("idempotency_store off lmdb:/tmp/x;", r"off"),
    ("idempotency_store main lmdb:/tmp/idem-other-dir;", r"main|duplicate|twice|already"),
    ("idempotency_store memory memory:;", r"."),
]


def name_of(text):
    return text.split(" ")[0].rstrip(";")


def assert_refused(scene, text, allowed):
    code, output = scene.nginx.test()
    assert code != 0, f"accepted: {text}"
    errors = [line for line in output.splitlines() if "[emerg]" in line]
    assert errors, output
    named = re.compile(rf'"?{name_of(text)}\b|idempotency store "x"')
    assert any(named.search(line) for line in errors), errors
    assert any(re.search(allowed, line) for line in errors), errors
    assert "Sanitizer" not in output and "runtime error" not in output
    return output


@pytest.mark.parametrize("text,allowed", WRONG, ids=[text for text, _ in WRONG])
def test_wrong_value_names_the_directive_and_what_is_allowed(make_scene, text, allowed):
    scene = make_scene(extra=f"location /x {{ {text} }}", start=False)
    output = assert_refused(scene, text, allowed)
    assert "allowed: " in output, output


@pytest.mark.parametrize("text", NOT_YET)
def test_directives_that_do_not_exist_yet_are_refused(make_scene, text):
    scene = make_scene(extra=f"location /x {{ {text} }}", start=False)
    assert_refused(scene, text, r"unknown directive|not ")


@pytest.mark.parametrize("text,allowed", WRONG_STORES, ids=[text for text, _ in WRONG_STORES])
def test_wrong_store_names_the_directive_and_what_is_allowed(make_scene, text, allowed):
    scene = make_scene(http=text, start=False)
    if text.endswith("memory:;") and scene.nginx.test()[0] == 0:
        return  # allowed where one process serves; see test_memory_store_needs_one_worker
    assert_refused(scene, text, allowed)


def test_memory_store_needs_one_worker_or_is_refused(make_scene):
    """Two workers with a memory each would be two stores: a key could run twice."""
    scene = make_scene(store="memory:", workers=2, start=False)
    code, output = scene.nginx.test()
    assert code != 0 and "memory" in output, output


@pytest.mark.parametrize("place", ["server", "location"])
def test_store_is_declared_in_http_only(make_scene, place):
    text = "idempotency_store late lmdb:/tmp/late;"
    where = {"server": text} if place == "server" else {"extra": f"location /x {{ {text} }}"}
    code, output = make_scene(start=False, **where).nginx.test()
    assert code != 0 and re.search(r'"idempotency_store" directive is not allowed here', output)


EVERY_DIRECTIVE = """
    idempotency_key $http_x_key required strict max=100;
    idempotency_scope $remote_user; idempotency_credential $http_x_token;
    idempotency_methods POST PUT PATCH DELETE; idempotency_fingerprint raw "$request_method $uri";
    idempotency_ttl 7d; idempotency_lease 30s; idempotency_unknown_ttl 90d;
    idempotency_in_flight reject; idempotency_unknown retry;
    idempotency_outcome 500 503 failed; idempotency_outcome 4xx final; idempotency_body_max 64m;
    idempotency_close_delimited on; idempotency_hide_header X-A X-B;
    idempotency_replay_header X-Again; idempotency_replay_status 200;
    idempotency_mismatch_status 409; idempotency_fail open;
"""


@pytest.mark.parametrize("place", ["http", "server", "location"])
def test_every_directive_is_allowed_in_http_server_and_location(make_scene, place):
    scene = make_scene(start=False, scope=None, **{place: EVERY_DIRECTIVE})
    code, output = scene.nginx.test()
    assert code == 0, output
    assert "[warn]" not in output, output


def test_inner_levels_override_outer_ones(make_scene, key):
    scene = make_scene(http="idempotency_replay_status 202; idempotency_replay_header X-Http;",
                       server="idempotency_replay_status 203;",
                       guard="idempotency_replay_header X-Location;")
    scene.post(key)
    again = scene.post(key)
    assert again.status == 203 and again.get("X-Location") == "true"


def test_guard_is_inherited_and_turned_off(make_scene, key):
    scene = make_scene(server="idempotency main; idempotency_scope tenant;",
                       extra="location /open { idempotency off; {proxy} }"
                             "location /also { {proxy} }")
    scene.post(key, target="/also")
    assert scene.post(key, target="/also").replayed
    for _ in range(2):
        assert not scene.post(key, target="/open").all("Idempotent-Replayed")
    assert scene.upstream.count() == 3


@pytest.mark.parametrize("text", ["idempotency main;", "idempotency_lease 1s;",
                                  "idempotency_scope a;", "idempotency_key $http_a;"])
def test_duplicate_directive_is_refused(make_scene, text):
    scene = make_scene(extra=f"location /x {{ {text} {text} }}", start=False)
    code, output = scene.nginx.test()
    assert code != 0 and "is duplicate" in output, output


# ---- what would break the guarantee

PROXY = "proxy_pass http://127.0.0.1:9; proxy_http_version 1.1;"
GUARD = "idempotency main; idempotency_scope tenant;"
UNSAFE = {
    "proxy_next_upstream non_idempotent":
        (PROXY + "proxy_next_upstream error timeout non_idempotent;", r"non_idempotent"),
    "proxy_http_version 1.0 by default":
        ("proxy_pass http://127.0.0.1:9;", r"proxy_http_version.*1\.1"),
    "proxy_http_version 1.0 explicitly":
        ("proxy_pass http://127.0.0.1:9; proxy_http_version 1.0;", r"proxy_http_version.*1\.1"),
    "grpc_pass": ("grpc_pass grpc://127.0.0.1:9;", r"grpc"),
    "grpc_pass with a variable": ("grpc_pass $http_x;", r"grpc"),
    "proxy_cache with POST":
        (PROXY + "proxy_cache zone; proxy_cache_methods POST;", r"proxy_cache"),
    "post_action": (PROXY + "post_action /after;", r"post_action"),
    "proxy_set_header of the key":
        (PROXY + 'proxy_set_header idempotency-key "";', r"proxy_set_header idempotency-key"),
    "proxy_set_header of the attempt":
        (PROXY + "proxy_set_header Idempotency-Attempt 9;", r"Idempotency-Attempt"),
    "proxy_pass_request_headers off":
        (PROXY + "proxy_pass_request_headers off;", r"proxy_pass_request_headers off"),
    "fastcgi_next_upstream non_idempotent":
        ("fastcgi_pass 127.0.0.1:9; fastcgi_next_upstream error non_idempotent;",
         r"non_idempotent"),
    "an untested content handler": ("stub_status;", r"handler|stub_status|proxy_pass"),
    "another untested content handler": ("empty_gif;", r"handler|empty_gif|proxy_pass"),
}


@pytest.mark.parametrize("what", UNSAFE, ids=lambda name: name.replace(" ", "-"))
def test_nginx_t_refuses_what_would_break_the_guarantee(make_scene, what):
    text, says = UNSAFE[what]
    scene = make_scene(http="proxy_cache_path {dir}/cache keys_zone=zone:1m;", start=False,
                       extra=f"location /x {{ {GUARD} {text} }}"
                             "location = /after { return 204; }")
    code, output = scene.nginx.test()
    assert code != 0, f"accepted: {what}"
    errors = [line for line in output.splitlines() if "[emerg]" in line]
    assert any(re.search(says, line) for line in errors), output
    assert any(len(line.split()) > 12 for line in errors), f"not a sentence: {errors}"


@pytest.mark.parametrize("place", ["http", "server"])
def test_unsafe_settings_are_found_where_they_are_inherited(make_scene, place):
    scene = make_scene(start=False, **{place: "proxy_next_upstream error non_idempotent;"})
    code, output = scene.nginx.test()
    assert code != 0 and "non_idempotent" in output, output


def test_unsafe_settings_in_an_if_block_are_found(make_scene):
    scene = make_scene(start=False, extra=f"location /x {{ {GUARD} {PROXY} "
                       "if ($arg_g) { grpc_pass grpc://127.0.0.1:9; } }")
    code, output = scene.nginx.test()
    assert code != 0 and "grpc" in output, output


@pytest.mark.parametrize("what", ["proxy_next_upstream error non_idempotent;",
                                  "proxy_http_version 1.0;"])
def test_unsafe_settings_do_not_matter_where_nothing_is_guarded(make_scene, what):
    scene = make_scene(start=False, extra="location /x { proxy_pass http://127.0.0.1:9;"
                       f" {what} }}")
    code, output = scene.nginx.test()
    assert code == 0, output


def test_cache_of_unguarded_methods_is_fine(make_scene, key):
    scene = make_scene(http="proxy_cache_path {dir}/cache keys_zone=zone:1m;",
                       location="proxy_cache zone; proxy_cache_methods GET HEAD;")
    assert scene.post(key).status == 201 and scene.post(key).replayed


def test_guarded_location_without_scope_is_a_warning(make_scene):
    scene = make_scene(scope=None, start=False)
    code, output = scene.nginx.test()
    assert code == 0
    warnings = [line for line in output.splitlines() if "[warn]" in line]
    assert any("idempotency_scope" in line for line in warnings), output


def test_good_configuration_has_no_warning(make_scene):
    code, output = make_scene(start=False).nginx.test()
    assert code == 0 and "[warn]" not in output, output


def test_module_loaded_and_unused_changes_nothing(make_nginx):
    nginx = make_nginx(server="location / { return 200 'plain'; }").start()
    code, output = nginx.test()
    assert code == 0 and "[warn]" not in output, output


@pytest.mark.parametrize("content", ["fastcgi_pass 127.0.0.1:9;", "uwsgi_pass 127.0.0.1:9;",
                                     "scgi_pass 127.0.0.1:9;"])
def test_other_upstream_protocols_pass_or_are_refused_with_a_sentence(make_scene, content):
    scene = make_scene(start=False, extra=f"location /x {{ {GUARD} {content} }}")
    code, output = scene.nginx.test()
    assert code == 0 or re.search(r"\[emerg\].*(proxy_pass|handler|fastcgi|uwsgi|scgi)", output)
