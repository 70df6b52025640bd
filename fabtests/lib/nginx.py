# SPDX-License-Identifier: BSD-2-Clause
"""nginx in the foreground, with all its files in one folder: its configuration, its command, its end."""

import signal

from . import build

_CONFIGURATION = """
user {user};
daemon off;
pid {work}/nginx.pid;
error_log {work}/nginx-error.log notice;
worker_processes {workers};
events {{ worker_connections 1024; }}
http {{
    access_log off;
    sendfile {sendfile};
    tcp_nopush {sendfile};
    client_max_body_size 100m;
    keepalive_requests 100000;
    client_body_temp_path {work}/t1; proxy_temp_path {work}/t2; fastcgi_temp_path {work}/t3;
    uwsgi_temp_path {work}/t4; scgi_temp_path {work}/t5;
    {http}
    server {{
        listen {listen};
        root {root};
        {more}
    }}
}}
"""


def configuration(work, listen, root, *, sendfile="off", workers=1, http="", more="", user="root"):
    """What nginx.conf is to say. `listen`: "127.0.0.1:8080"; `http`: more lines of all servers; `more`: of this one."""
    return _CONFIGURATION.format(work=work, listen=listen, root=root, sendfile=sendfile, workers=workers, http=http, more=more, user=user)


def command(work, listen, root, **options):
    """Writes the configuration into `work`; the command that starts it."""
    (work / "nginx.conf").write_text(configuration(work, listen, root, **options))
    return [build.tool("nginx"), "-p", work, "-c", work / "nginx.conf", "-e", work / "nginx-error.log"]


def start(run, pair, port, name="server", **options):
    """Started on loopback with what lies in the run's folder www, and listening."""
    server = run.start(name, command(run.work, f"127.0.0.1:{port}", run.work / "www", **options), vma=pair.server, mode=pair.mode)
    run.wait_port(port, server)
    return server


def end(run, server):
    """By SIGQUIT, as is orderly; no worker of it has crashed."""
    server.stop(number=signal.SIGQUIT)
    log = (run.work / "nginx-error.log").read_text()
    assert "exited on signal" not in log and "[alert]" not in log, log
