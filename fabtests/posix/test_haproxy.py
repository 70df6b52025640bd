# SPDX-License-Identifier: BSD-2-Clause
"""haproxy in front of nginx: the same answers without the library, with it, and with VMA_SPEC=latency, through connections that stay
and that don't, with large bodies both ways, many at a time, and across reloads that pass the listening sockets on."""

import re

import pytest

from lib import build, expect, files, nginx, pairing, patience, ports

pytestmark = pytest.mark.pairs(pairing.KERNEL, *pairing.ACCELERATED)

# `nbthread`: as many on a machine of any size. `insecure-fork-wanted`: else it sets RLIMIT_NPROC to 0, which holds for all users but root, and
# the library can't start its thread (doc/sandboxes.md).
HAPROXY = """
global
    maxconn 2000
    nbthread 2
    insecure-fork-wanted
    stats socket {work}/haproxy.sock mode 600 level admin expose-fd listeners
defaults
    mode {mode}
    timeout connect 600s
    timeout client 600s
    timeout server 600s
    {reuse}
frontend in
    bind 127.0.0.1:{port}
    default_backend out
backend out
    server one 127.0.0.1:{behind}
"""


class Proxy:
    def __init__(self, run, pair, port, mode="http", reuse="always"):
        self.run, self.pair, self.port = run, pair, port
        (run.work / "www").mkdir()
        (run.work / "put").mkdir()
        self.sums = {name: files.random_file(run.work / "www" / name, size)
                     for name, size in (("1k", 1024), ("100k", 100_000), ("8m", 8 << 20), ("empty", 0))}
        behind = ports.free_port()
        (run.work / "haproxy.cfg").write_text(HAPROXY.format(work=run.work, port=port, behind=behind, mode=mode,
                                                             reuse=f"http-reuse {reuse}" if mode == "http" else ""))
        self.haproxy = build.tool("haproxy")
        self.nginx = nginx.start(run, pair, behind, "nginx",
                                 more=f"location /put {{ root {run.work}; dav_methods PUT; }}")
        self.all = []
        self.start()
        run.wait_port(port, self.all[0])

    def start(self, *options):
        self.all.append(self.run.start("haproxy", [self.haproxy, "-db", "-f", self.run.work / "haproxy.cfg", *options],
                                       vma=self.pair.server, mode=self.pair.mode))

    def reload(self):
        """A new process takes the listening sockets from the old one, and tells it to finish and end."""
        old = self.all[-1]
        self.start("-x", self.run.work / "haproxy.sock", "-sf", old.pid)
        return old

    def curl(self, names, *options):
        argv = [build.tool("curl"), "-sS", "--fail", "--max-time", patience.seconds(), *options]
        for number, name in enumerate(names):
            argv += ["-o", f"got{number}", f"http://127.0.0.1:{self.port}/{name}"]
        client = self.run.run("curl", argv, vma=self.pair.client, mode=self.pair.mode)
        return client, [files.sha256(self.run.work / f"got{number}") for number in range(len(names))]

    def load(self, seconds, *options):
        return self.run.start("wrk", [build.tool("wrk"), "-t1", "-d", f"{seconds}s", *options, f"http://127.0.0.1:{self.port}/1k"],
                              vma=self.pair.client, mode=self.pair.mode)

    def end(self):
        for proxy in self.all:
            proxy.stop()
        nginx.end(self.run, self.nginx)


def no_errors(load):
    text = load.ok().stdout()
    assert "Non-2xx" not in text and "Socket errors" not in text, text
    assert int(re.search(r"(\d+) requests in", text)[1]) > 0, text


@pytest.mark.parametrize("mode", ["http", "tcp"])
def test_content(run, pair, port, mode):
    """One connection, several, one for each request; a body of megabytes to the server."""
    proxy = Proxy(run, pair, port, mode)
    names = ["1k", "8m", "empty", "100k"] * 4
    wanted = [proxy.sums[name] for name in names]
    client, got = proxy.curl(names)
    assert got == wanted
    assert proxy.curl(names, "-H", "Connection: close")[1] == wanted
    assert sorted(proxy.curl(names, "--parallel", "--parallel-immediate")[1]) == sorted(wanted)
    put = run.run("put", [build.tool("curl"), "-sS", "--fail", "--max-time", patience.seconds(), "-T", run.work / "www" / "8m",
                          f"http://127.0.0.1:{port}/put/sent"], vma=pair.client, mode=pair.mode)
    assert put.output() == "" and files.sha256(run.work / "put" / "sent") == proxy.sums["8m"]
    proxy.end()
    expect.acceleration(pair, port, proxy.all[0], client, offloaded=pair.mode == "latency")


@pytest.mark.parametrize("keep", [True, False], ids=["keepalive", "close"])
def test_many_connections(run, pair, port, keep):
    proxy = Proxy(run, pair, port)
    load = proxy.load(1, "-c", 200 if keep else 50, *([] if keep else ["-H", "Connection: close"]))
    no_errors(load)
    proxy.end()


def test_reload(run, pair, port):
    """Two reloads under load: no request fails, each old process ends by itself, the last one answers.

    No connection to nginx is kept for the next client: haproxy 2.6.12, Debian 12's, crashes at its end on any that is idle then
    (its issue 2114: the thread's tables are gone before its connections are).
    """
    proxy = Proxy(run, pair, port, reuse="never")
    load = proxy.load(2, "-c", 20, "-H", "Connection: close")
    for _ in range(2):
        old = proxy.reload()
        assert old.wait() == 0
    no_errors(load)
    assert proxy.curl(["100k"])[1] == [proxy.sums["100k"]]
    proxy.end()
