"""Fixtures of the black-box tests. The harness lives in test/lib."""

import os
import signal
import sys

import pytest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "lib"))

# pylint: disable=wrong-import-position
from nginx import MODULE, Nginx  # noqa: E402
from scene import Scene, new_key  # noqa: E402
from upstream import Upstream  # noqa: E402

TEST_SECONDS_MAX = 120


def pytest_configure(config):
    config.addinivalue_line("markers", "slow: takes several seconds by its nature")


@pytest.fixture(autouse=True)
def watchdog():
    """A test that hangs is a failure that says where."""
    def expired(_number, _frame):
        raise TimeoutError(f"the test ran for more than {TEST_SECONDS_MAX} s")

    before = signal.signal(signal.SIGALRM, expired)
    signal.alarm(TEST_SECONDS_MAX)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def tear_down_all(things):
    """Every one is torn down even when an earlier one fails; the first failure is told."""
    errors = []
    for thing in reversed(things):
        try:
            thing()
        except BaseException as error:  # pylint: disable=broad-exception-caught
            errors.append(error)
    if errors:
        raise errors[0]


@pytest.fixture
def make_upstream():
    made = []

    def make(**options):
        upstream = Upstream(**options)
        made.append(upstream)
        return upstream

    yield make
    tear_down_all([upstream.stop for upstream in made])


@pytest.fixture
def upstream(make_upstream):
    return make_upstream()


@pytest.fixture
def make_nginx():
    """Plain nginx runners, with or without the module; torn down and checked at the end."""
    made = []

    def make(**options):
        nginx = Nginx(**options)
        made.append(nginx)
        return nginx

    yield make
    tear_down_all([nginx.tear_down for nginx in made])


@pytest.fixture
def make_scene():
    if not os.path.exists(MODULE):
        pytest.fail(f"{MODULE} is not there: build it first (ninja -C build)")
    made = []

    def make(start=True, **options):
        scene = Scene(**options)
        made.append(scene)
        if start:
            scene.nginx.start()
        return scene

    yield make
    tear_down_all([scene.tear_down for scene in made])


@pytest.fixture
def scene(make_scene):
    """The plain scene: one worker, one guarded location, every default."""
    return make_scene()


@pytest.fixture
def key():
    return new_key()
