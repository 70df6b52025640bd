# SPDX-License-Identifier: BSD-2-Clause
"""Servers and clients of vma_lat; vmads with a broker; files of counters."""

import json
import pathlib

import pytest

from lib import build, netns
from lib.broker import Asker
from lib.introducer import Introducer
from lib.vmalat import program
from lib.vmastats import make_sample

LONGEST = 60000  # milliseconds for a reply: no option says more


@pytest.fixture
def hosts():
    """Two network namespaces on a veth pair, of one test."""
    made = netns.hosts()
    yield made
    made.remove()


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
        argv = [program(), "client", "--port", port, "--json", out, "--warm-up", 50, "--timeout", LONGEST, *options, host]
        proc = run.start("client", argv, env=env, **how)
        proc.may_fail = True
        assert proc.wait() == status, proc.output()
        return proc, json.loads(out.read_text()) if out.exists() else None
    return start


@pytest.fixture
def rules():
    """vmad.conf's; {port} in it is `port`."""
    return ""


@pytest.fixture
def patience():
    """Milliseconds, or vmad's own."""
    return None


@pytest.fixture
def known():
    """How many connections are, or vmad's own number."""
    return None


@pytest.fixture
def vmad(run, rules, patience, known, port):
    """A vmad that introduces. It is there at the end, and ends well."""
    options = [*(["--broker-patience", patience] if patience else []), *(["--broker-connections", known] if known else [])]
    made = Introducer(run, rules.format(port=port), options)
    yield made
    made.finish()


@pytest.fixture
def ask(vmad):
    """ask(): a connection to its broker, of this test's process."""
    made = []

    def connect():
        made.append(Asker(vmad.path))
        return made[-1]

    yield connect
    for asker in made:
        asker.close()


@pytest.fixture
def folder(run):
    path = run.work / "stats"
    path.mkdir()
    return path


@pytest.fixture
def sample(run, folder):
    """The file of a process that lives: `sleep`, whose id it has. Sizes of header and record are kept in it."""
    proc = run.start("gen", ["sleep", "1000"])
    proc.killed = True
    comm = pathlib.Path(f"/proc/{proc.pid}/comm")
    run.wait_until(lambda: comm.read_text(encoding="utf-8") == "sleep\n", "the process has its name", proc=proc)
    return make_sample(folder, proc)
