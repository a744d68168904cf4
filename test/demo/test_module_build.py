"""The module builds with nginx's own ./configure --add-dynamic-module too, from sources alone."""

import os
import subprocess

from demo import REPOSITORY

CONFIGURATION = """
load_module {module};
pid {place}/nginx.pid;
error_log {place}/error.log;
events {{ }}
http {{
    access_log off;
    {temp}
    idempotency_store main lmdb:{place}/store;
    server {{
        listen unix:{place}/socket;
        location / {{
            idempotency main;
            idempotency_scope $remote_user;
            proxy_pass http://127.0.0.1:9;
            proxy_http_version 1.1;
        }}
    }}
}}
"""


def test_nginx_builds_the_module_without_meson(tmp_path):
    module = tmp_path / "ngx_http_idempotency_module.so"
    build = subprocess.run([os.path.join(REPOSITORY, "nginx/build.sh"), module, tmp_path / "work",
                            "cc", "-O1 -fPIC", "-Wl,-z,relro"],
                           capture_output=True, text=True, check=False)
    assert build.returncode == 0, build.stdout + build.stderr

    temp = "".join(f"{kind}_temp_path {tmp_path}/{kind};\n    "
                   for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    configuration = tmp_path / "nginx.conf"
    configuration.write_text(CONFIGURATION.format(module=module, place=tmp_path, temp=temp))
    nginx = subprocess.run(["/usr/sbin/nginx", "-t", "-c", configuration, "-e", "stderr"],
                           capture_output=True, text=True, check=False)
    assert nginx.returncode == 0 and "successful" in nginx.stderr, nginx.stderr


def test_a_missing_nginx_source_is_told(tmp_path):
    build = subprocess.run([os.path.join(REPOSITORY, "nginx/build.sh"), tmp_path / "module.so",
                            tmp_path / "work", "cc", "", ""], capture_output=True, text=True,
                           check=False, env={**os.environ, "NGINX_SRC": str(tmp_path / "none")})
    assert build.returncode == 1 and "nginx-dev" in build.stderr
