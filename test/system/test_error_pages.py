"""Pages shown in place of an answer: what is recorded is what the operation did, not the page."""

import pytest
from problem import assert_problem
from test_replay import write_page
from upstream import Answer

STATIC = "location /static/ { internal; root {dir}/html; }"


def proxied_page(port, more=""):
    return (f"location = /sorry {{ proxy_pass http://127.0.0.1:{port}; proxy_http_version 1.1;"
            f'proxy_set_header Connection ""; proxy_read_timeout 300ms; {more} }}')


def maintained(make_scene, make_upstream, page, rule, more):
    """An upstream that refuses, and a maintenance page from another one."""
    return make_scene(upstream=make_upstream(listening=False),
                      location=f"error_page 502 {rule} /sorry;",
                      extra=proxied_page(page.port, more))


def assert_free(scene, key):
    """Nothing was recorded as final or unknown: once the upstream listens, the retry executes."""
    scene.upstream.listen()
    assert scene.post(key).status == 201
    assert scene.post(key).replayed
    assert scene.upstream.count(key) == 1


# ---- nothing was sent: no other upstream may have the request, nor a page in its place

TARGETS = {"a page": "", "by POST": "proxy_method POST;",
           "guarded": "idempotency main; idempotency_scope tenant;",
           "guarded, by POST": "idempotency main; idempotency_scope tenant; proxy_method POST;"}


@pytest.mark.parametrize("rule", ["", "=", "=200", "=503"])
@pytest.mark.parametrize("target", TARGETS, ids=lambda name: name.replace(" ", "-"))
def test_a_page_of_another_upstream_is_not_asked_and_the_key_is_free(
        make_scene, make_upstream, key, rule, target):
    """It would get the body and the key as well, and might execute them."""
    page = make_upstream()
    page.answer(status=200, body=b"back soon")
    scene = maintained(make_scene, make_upstream, page, rule, TARGETS[target])
    for _ in range(2):
        assert_problem(scene.post(key), "upstream-unreachable", 502)
    assert page.count() == 0
    assert "it would be another request there" in scene.nginx.log()
    assert_free(scene, key)


# ---- the upstream has answered, and nginx shows something else

@pytest.mark.parametrize("page", ["location = /page { return 200 sorry; }", STATIC],
                         ids=["return", "static"])
@pytest.mark.parametrize("status", [500, 503, 429])
def test_a_failure_shown_as_200_is_still_a_failure(make_scene, key, status, page):
    target = "/static/page" if page is STATIC else "/page"
    scene = make_scene(location=f"proxy_intercept_errors on; error_page {status} =200 {target};",
                       extra=page)
    write_page(scene, "page", "sorry")
    scene.upstream.answer(Answer(status=status), Answer(status=201))
    shown = scene.post(key)
    assert (shown.status, shown.body) == (200, b"sorry")
    second = scene.post(key)
    assert second.status == 201 and not second.replayed
    assert scene.post(key).replayed and scene.upstream.count(key) == 2


def test_a_504_shown_as_200_is_still_unknown(make_scene, key):
    scene = make_scene(location="proxy_intercept_errors on; error_page 504 =200 /static/page;",
                       extra=STATIC)
    write_page(scene, "page", "sorry")
    scene.upstream.answer(status=504)
    assert scene.post(key).status in (200, 504)
    assert_problem(scene.post(key), "outcome-unknown")
    assert scene.upstream.count(key) == 1


@pytest.mark.parametrize("rule, status", [("=200", 200), ("=503", 503), ("=504", 504)])
def test_a_final_answer_is_recorded_as_shown_and_executed_once(make_scene, key, rule, status):
    scene = make_scene(location=f"proxy_intercept_errors on; error_page 404 {rule} /static/page;",
                       extra=STATIC)
    write_page(scene, "page", "nothing here")
    scene.upstream.answer(status=404, body=b"the upstream's words")
    first, again = scene.post(key), scene.post(key)
    assert (first.status, first.body, first.replayed) == (status, b"nothing here", False)
    assert (again.status, again.body, again.replayed) == (status, b"nothing here", True)
    assert scene.upstream.count(key) == 1


@pytest.mark.parametrize("answered, kind", [(503, "free"), (404, "final")])
def test_an_intercepted_answer_asks_for_no_page_from_elsewhere_as_its_outcome(
        make_scene, make_upstream, key, answered, kind):
    """The page's own 200 must not become the outcome of what the upstream has answered."""
    page = make_upstream()
    page.answer(status=200, body=b"page")
    scene = make_scene(location=f"proxy_intercept_errors on; error_page {answered} /sorry;",
                       extra=proxied_page(page.port))
    scene.upstream.answer(Answer(status=answered), Answer(status=201))
    scene.post(key)
    second = scene.post(key)
    if kind == "free":
        assert second.status == 201 and scene.upstream.count(key) == 2
    else:
        assert second.status != 201 and scene.upstream.count(key) == 1
