"""A scene: one nginx with the module in front of one scripted upstream, and a client to play with.

    scene = make_scene(guard="idempotency_lease 1s;")   # the fixture starts it
    first = scene.post(key="k-1")
    again = scene.post(key="k-1")
    assert again.body == first.body and scene.upstream.count("k-1") == 1
"""

import os
import threading
import uuid

import rawhttp
from nginx import MODULE, Nginx
from upstream import Upstream
from waiting import PATIENCE_S, wait_until

PROXY = """
    proxy_pass http://127.0.0.1:{port};
    proxy_http_version 1.1;
    proxy_set_header Connection "";
    proxy_set_header Host $http_host;
    proxy_set_header X-Worker $pid;
"""


def new_key():
    return str(uuid.uuid4())


class Background:
    """A call in a thread of its own, for requests that are held at the upstream."""

    def __init__(self, call, *args, **kwargs):
        self._value, self._error = None, None
        self._thread = threading.Thread(target=self._run, args=(call, args, kwargs), daemon=True)
        self._thread.start()

    def _run(self, call, args, kwargs):
        try:
            self._value = call(*args, **kwargs)
        except BaseException as error:  # pylint: disable=broad-exception-caught
            self._error = error  # raised again by result()

    @property
    def done(self):
        return not self._thread.is_alive()

    def result(self, timeout=2 * PATIENCE_S):
        self._thread.join(timeout)
        assert self.done, "a request in the background did not end"
        if self._error:
            raise self._error
        return self._value


class Scene:
    """`guard` goes into the guarded location, `location` too (for other modules' directives);
    `extra` holds more locations, with {proxy} for the lines that lead to the upstream. {dir} stands
    for nginx's directory everywhere."""

    def __init__(self, *, guard="", location="", extra="", server="", http="", store=None,
                 store_options="size=64m", methods="", scope="tenant", proxy=None, upstream=None,
                 workers=1, **options):
        assert os.path.exists(MODULE), f"the module is not built: {MODULE}"
        self.upstream = upstream or Upstream()
        self.nginx = Nginx(workers=workers, **options)
        self.store_directory = self.nginx.path("store")
        self.store_url = store or f"lmdb:{self.store_directory}?{store_options}"
        self.proxy = PROXY.format(port=self.upstream.port) if proxy is None else proxy
        self.shape = {"guard": guard, "location": location, "extra": extra, "server": server,
                      "http": http, "methods": methods, "scope": scope}
        self.clients = []
        self.configure()

    def configure(self, **changed):
        """Writes the configuration; named parts of the shape replace those given before."""
        self.shape.update(changed)
        shape = self.shape
        directory = self.nginx.directory
        scope = f"idempotency_scope {shape['scope']};" if shape["scope"] else ""
        guarded = f"idempotency main; {scope} {shape['guard']}\n{shape['location']}"
        extra = shape["extra"].replace("{proxy}", self.proxy)
        server = f"{shape['server']}\nlocation / {{\n{guarded}\n{self.proxy}\n}}\n{extra}"
        http = f"idempotency_store main {self.store_url};\n{shape['http']}"
        self.nginx.write_configuration(http=http.replace("{dir}", directory),
                                       server=server.replace("{dir}", directory))

    # ---- requests

    @property
    def port(self):
        return self.nginx.port

    def send(self, method="POST", target="/pay", **how):
        return rawhttp.send(self.port, method, target, **how)

    def post(self, key=None, target="/pay", **how):
        return rawhttp.send(self.port, "POST", target, key=key, **how)

    def post_in_background(self, key=None, **how):
        return Background(self.post, key, **how)

    def client(self):
        client = rawhttp.Client(self.port)
        self.clients.append(client)
        return client

    def post_until(self, key, wanted, what, **how):
        """Retries, as a client would, until wanted(response) is true; returns that response."""
        def attempt():
            response = self.post(key, **how)
            return response if wanted(response) else None
        return wait_until(attempt, what)

    def held_post(self, key, answer=None, **how):
        """Sends a request that the upstream holds. Returns (background, gate) once it is there."""
        before = self.upstream.count(key)
        gate = self.upstream.gate()
        fields = dict(answer or {})
        self.upstream.answer(hold=gate, **fields)
        background = self.post_in_background(key, **how)
        self.upstream.wait_count(before + 1, key)
        return background, gate

    def worker_of(self, request):
        """The pid of the nginx worker that sent a request to the upstream."""
        return int(request.get("X-Worker"))

    # ---- what the access log says

    def outcomes(self, count):
        """The last `count` values of $idempotency_outcome, once that many lines are logged."""
        wait_until(lambda: len(self.nginx.access_log()) >= count, f"{count} access log lines")
        return [line.split("[")[1].split("]")[0] for line in self.nginx.access_log()[-count:]]

    def tear_down(self):
        self.upstream.release_all()
        for client in self.clients:
            client.close()
        try:
            self.nginx.tear_down()
        finally:
            self.upstream.stop()
