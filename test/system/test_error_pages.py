"""Pages shown in place of an answer: what is recorded is what the operation did, not the page."""

import pytest
from problem import assert_problem
from test_replay import write_page
from upstream import Answer

STATIC = "location /static/ { internal; root {dir}/html; }"


def proxied_page(port):
    return (f"location = /sorry {{ proxy_pass http://127.0.0.1:{port}; proxy_http_version 1.1;"
            'proxy_set_header Connection ""; proxy_read_timeout 300ms; }')


def maintained(make_scene, make_upstream, page, rule):
    """An upstream that refuses, and a maintenance page from another one."""
    return make_scene(upstream=make_upstream(listening=False),
                      location=f"error_page 502 {rule} /sorry;", extra=proxied_page(page.port))


def assert_free(scene, key):
    """Nothing was recorded as final or unknown: once the upstream listens, the retry executes."""
    scene.upstream.listen()
    assert scene.post(key).status == 201
    assert scene.post(key).replayed
    assert scene.upstream.count(key) == 1


# ---- nothing was sent: a page from elsewhere is not the operation's answer

@pytest.mark.parametrize("rule, status", [("", 502), ("=200", 200), ("=503", 503)])
def test_maintenance_page_is_shown_and_the_retry_executes(
        make_scene, make_upstream, key, rule, status):
    page = make_upstream()
    page.answer(status=200, body=b"back soon")
    scene = maintained(make_scene, make_upstream, page, rule)
    for _ in range(2):
        shown = scene.post(key)
        assert (shown.status, shown.body, shown.replayed) == (status, b"back soon", False)
    assert [request.method for request in page.requests] == ["GET", "GET"]
    assert_free(scene, key)


def test_maintenance_page_with_a_status_of_its_own(make_scene, make_upstream, key):
    """A bare "=" takes over the status of the page's upstream; final as it looks, it is not."""
    page = make_upstream()
    page.answer(status=404, body=b"no such page")
    scene = maintained(make_scene, make_upstream, page, "=")
    assert scene.post(key).status == 404
    assert_free(scene, key)


DYING = {"refuses": None, "closes": Answer(fault="close"), "resets": Answer(fault="reset"),
         "is silent": Answer(fault="silent"),
         "answers 504": Answer(status=504, body=b"lost"),
         "cuts the page short": Answer(status=200, body=b"0123456789", cut_after=5)}


@pytest.mark.parametrize("rule", ["", "=200"])
@pytest.mark.parametrize("death", DYING, ids=lambda name: name.replace(" ", "-"))
def test_maintenance_page_whose_upstream_dies_leaves_the_key_free(
        make_scene, make_upstream, key, death, rule):
    page = make_upstream(listening=DYING[death] is not None)
    if DYING[death]:
        page.answer(DYING[death])
    scene = maintained(make_scene, make_upstream, page, rule)
    first = scene.post(key)
    assert not first.replayed and first.status in (200, 502, 504), first
    if death != "answers 504":
        assert_problem(first, "upstream-unreachable", first.status)
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
