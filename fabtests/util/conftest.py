# SPDX-License-Identifier: BSD-2-Clause
"""Servers and clients of vma_lat."""

import json

import pytest

from lib import build
from lib.vmalat import program


@pytest.fixture
def env():
    return {"FI_PROVIDER_PATH": str(build.provider_dir())}


@pytest.fixture
def serve(run, port, env):
    """Starts a server; the port of its control connection is `port`."""
    def start(*options, at=None, **how):
        server = run.start("server", [program(), "server", "--port", at or port, *options], env=env, **how)
        return server.wait_output("listens at")
    return start


@pytest.fixture
def client(run, port, env):
    """Runs a client to its end, with a JSON file, and returns both."""
    def start(*options, host="127.0.0.1", status=0, **how):
        out = run.work / "result.json"
        out.unlink(missing_ok=True)
        proc = run.start("client", [program(), "client", "--port", port, "--json", out, "--warm-up", 50, *options, host],
                         env=env, **how)
        proc.may_fail = True
        assert proc.wait() == status, proc.output()
        return proc, json.loads(out.read_text()) if out.exists() else None
    return start
