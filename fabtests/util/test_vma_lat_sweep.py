# SPDX-License-Identifier: BSD-2-Clause
"""Sweeps of vma_lat: every operation verified, every progress model, its table and files. How fast it is, is no matter."""

import csv
import json
import re

import pytest

from lib.vmalat import cpu_seconds, program

OPERATIONS = ["send", "write", "read", "write-imm"]


@pytest.fixture
def sweep(run, port, env):
    """Runs a sweep to its end, with a JSON file, and returns both."""
    def start(*options, host="127.0.0.1", status=0, **how):
        out = run.work / "sweep.json"
        out.unlink(missing_ok=True)
        proc = run.start("sweep", [program(), "sweep", "--port", port, "--json", out, *options, host], env=env, **how)
        proc.may_fail = True
        assert proc.wait() == status, proc.output()
        return proc, json.loads(out.read_text()) if out.exists() else None
    return start


def check(result, operations, sizes, samples, streamed, announced=None):
    steps = result["steps"]
    assert [(s["operation"], s["size"]) for s in steps] == [(o, n) for o in operations for n in sizes]
    for step in steps:
        told = step["operation"] != "read" and (result["verify"] or step["operation"] != "write")
        assert step["ns"]["count"] == samples and step["operations"] == streamed and step["damaged"] == 0
        assert step["arrived"] == (announced if told and announced else 0)
        ns = step["ns"]
        assert 0 < ns["min"] <= ns["p50"] <= ns["p90"] <= ns["p99"] <= ns["p99.9"] <= ns["max"]
        assert (step["bytes_per_second"] > 0) == (streamed > 0)


@pytest.mark.parametrize("provider", ["vma", "tcp"])
def test_every_operation(serve, sweep, provider):
    serve()
    sizes = [1, 64, 105, 4097, 8193, 70000, 1 << 20]
    _, result = sweep("--provider", provider, "--count", 20, "--warm-up", 3, "--stream", 100, "--verify", "--size",
                      ",".join(map(str, sizes)), "--wait", "epoll")
    assert result["provider"] == provider
    check(result, OPERATIONS, sizes, 20, 100, 123)


def test_largest(serve, sweep):
    serve()
    _, result = sweep("--count", 2, "--stream", 10, "--verify", "--from", 8 << 20, "--to", 16 << 20, "--wait", "channel")
    check(result, OPERATIONS, [8 << 20, 16 << 20], 2, 10, 14)
    assert [s["window"] for s in result["steps"]] == [8, 4] * 4


def test_powers_of_two(serve, sweep):
    serve()
    _, result = sweep("--count", 2, "--stream", 4, "--from", 1, "--to", 4096)
    check(result, OPERATIONS, [1 << i for i in range(13)], 2, 4, 8)


MODELS = [(wait, cq, threads) for wait in ("poll", "channel", "epoll")
          for cq, threads in (("own", "one"), ("shared", "one"), ("own", "each"))]


@pytest.mark.parametrize("wait, cq, threads", MODELS, ids=" ".join)
@pytest.mark.parametrize("provider", ["vma", "tcp"])
def test_progress_models(serve, sweep, provider, wait, cq, threads):
    serve()
    connections = 1 if (wait, cq, threads) == ("channel", "own", "one") else 3
    _, result = sweep("--provider", provider, "--connections", connections, "--wait", wait, "--cq", cq, "--threads",
                      threads, "--count", 20, "--stream", 50, "--verify", "--size", "8,20000")
    assert (result["wait"], result["cq"], result["threads"]) == (wait, cq, threads)
    check(result, OPERATIONS, [8, 20000], 20 * connections, 50 * connections, (20 + 20 + 50) * connections)


@pytest.mark.parametrize("cq, threads", [("own", "one"), ("shared", "one"), ("own", "each")])
def test_no_wake_up_is_lost(serve, sweep, cq, threads):
    """Each side sleeps until the other's message comes, some thousand times, on four connections at once."""
    serve()
    _, result = sweep("--operations", "send,write-imm", "--connections", 4, "--wait", "epoll", "--cq", cq, "--threads",
                      threads, "--count", 3000, "--stream", 0, "--size", 64)
    check(result, ["send", "write-imm"], [64], 12000, 0, 12400)


def test_many_connections(serve, sweep):
    serve()
    _, result = sweep("--operations", "send,write", "--connections", 64, "--wait", "epoll", "--count", 5, "--stream", 20,
                      "--size", 100, "--verify")
    check(result, ["send", "write"], [100], 320, 1280, 64 * 30)


@pytest.mark.parametrize("domain", ["local", None])
def test_domain(serve, sweep, domain):
    serve()
    _, result = sweep("--operations", "read", "--size", 8, "--count", 3, *(["--domain", domain] if domain else []))
    assert result["domain"] == (domain or "")


def test_files_agree_with_the_table(run, serve, sweep):
    serve()
    proc, result = sweep("--count", 30, "--stream", 40, "--size", "8,3000", "--csv", run.work / "s.csv", "--rtt")
    with open(run.work / "s.csv") as file:
        rows = list(csv.DictReader(file))
    lines = re.findall(r"^(send|write|read|write-imm) +(\d+) +(\d+) +(\S+) +(\S+) .* (\d+) +(\S+) +(\S+)$", proc.stdout(),
                       re.M)
    assert len(rows) == len(lines) == len(result["steps"]) == 8
    for row, line, step in zip(rows, lines, result["steps"], strict=True):
        operation, size, samples, least, median, window, _, per_second = line
        assert (row["operation"], row["bytes"], row["samples"]) == (operation, size, samples)
        assert step["timed"] == row["timed"] == ("round-trip" if operation in ("send", "write-imm") else "completion")
        assert float(least) == pytest.approx(int(row["min_ns"]) / 1000, abs=0.00051)
        assert float(median) == pytest.approx(step["ns"]["p50"] / 1000, abs=0.00051)
        assert int(row["window"]) == int(window) == step["window"]
        assert float(per_second) == pytest.approx(float(row["operations_per_second"]), abs=0.51)


def test_server_goes_on(serve, sweep, client):
    server = serve("--clients", 3)
    sweep("--operations", "write-imm", "--size", 8, "--count", 3)
    client("--fabric", "msg", "--count", 10)
    sweep("--operations", "send", "--size", 8, "--count", 3)
    server.ok()
    assert "write-imm of 8 bytes" in server.stdout()


# ---- what goes wrong ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options, said", [
    (["sweep"], "a sweep takes one server's host"),
    (["sweep", "h", "--wait", "spin"], "--wait: 'spin' is unknown: poll, channel or epoll"),
    (["sweep", "h", "--cq", "both"], "--cq: 'both' is unknown: own or shared"),
    (["sweep", "h", "--threads", "2"], "--threads: '2' is unknown: one or each"),
    (["sweep", "h", "--threads", "each", "--cq", "shared"], "--threads each goes with --cq own"),
    (["sweep", "h", "--wait", "channel", "--connections", "2"], "use --wait epoll, --cq shared or --threads each"),
    (["sweep", "h", "--operations", "send,recv"], "--operations: 'recv' is unknown: send, write, read or write-imm"),
    (["sweep", "h", "--operations", ""], "--operations: a value is missing"),
    (["sweep", "h", "--size", "0"], "--size: '0' is no number from 1 to 16777216"),
    (["sweep", "h", "--size", "8", "--to", "9"], "use one way"),
    (["sweep", "h", "--from", "9", "--to", "8"], "--from 9 is more than --to 8"),
    (["sweep", "h", "--connections", "257"], "--connections: '257' is no number from 1 to 256"),
    (["sweep", "h", "--connections", "256", "--from", "8388608"], "are too many: 1024 MiB in all are the most"),
    (["sweep", "h", "--window", "0"], "--window: '0' is no number from 1 to 1024"),
    (["sweep", "h", "--count", "1000001"], "too many operations"),
    (["sweep", "h", "--mps", "5"], "--mps does not go with 'sweep'"),
    (["client", "h", "--connections", "5"], "--connections does not go with 'client'"),
    (["mesh"], "a mesh is started by --processes N"),
    (["mesh", "h", "--processes", "3"], "a mesh takes no host"),
    (["mesh", "--processes", "1"], "--processes: '1' is no number from 2 to 256"),
    (["mesh", "--processes", "3", "--rank", "1", "--peers", "a,b"], "a mesh is started by"),
    (["mesh", "--rank", "2", "--peers", "a:1,b:2"], "--rank 2: --peers names members 0 to 1"),
    (["mesh", "--rank", "0", "--peers", "a:1"], "a mesh has 2 to 256 members, and 1 are named"),
    (["mesh", "--processes", "3", "--listen-fd", "5"], "--rank is missing"),
    (["mesh", "--processes", "3", "--size", "1,2"], "have one size, and 2 are named"),
    (["mesh", "--processes", "3", "--wait", "channel", "--cq", "own"], "use --wait epoll, --cq shared"),
    (["mesh", "--processes", "256", "--size", "16777216"], "are too many: 1024 MiB"),
], ids=lambda v: " ".join(v)[:50] if isinstance(v, list) else "")
def test_wrong_command_lines(run, options, said):
    proc = run.start("wrong", [program(), *options])
    assert proc.fails() == 2, proc.output()
    assert said in proc.stderr() and proc.stderr().startswith("vma_lat: ") and proc.stderr().count("\n") == 1


def test_provider_without_rma(serve, sweep):
    serve()
    proc, _ = sweep("--provider", "udp", status=3)
    assert "the other side refuses: libfabric has no FI_EP_MSG endpoint with FI_RMA of provider udp" in proc.stderr()


def test_no_such_domain(serve, sweep):
    serve()
    proc, _ = sweep("--domain", "rxe7", status=3)
    assert "of provider vma, domain rxe7" in proc.stderr()
    _, result = sweep("--size", 8, "--count", 3, "--operations", "read")  # the server goes on
    assert len(result["steps"]) == 1


@pytest.mark.parametrize("wait", ["poll", "epoll"])
def test_server_is_killed(run, serve, port, env, wait):
    server = serve()
    proc = run.start("sweep", [program(), "sweep", "--port", port, "--operations", "send", "--size", 8, "--count", 1000000,
                               "--stream", 1000000000, "--wait", wait, "127.0.0.1"], env=env)
    run.wait_until(lambda: cpu_seconds(server) > 0.2, "the sweep to be under way", proc=proc)
    server.kill()
    assert proc.fails() == 3, proc.output()


@pytest.mark.parametrize("wait", ["poll", "epoll"])
def test_client_is_killed(run, serve, sweep, port, env, wait):
    server = serve("--clients", 2)
    proc = run.start("killed", [program(), "sweep", "--port", port, "--operations", "write-imm", "--size", 8, "--stream",
                                1000000000, "--wait", wait, "127.0.0.1"], env=env)
    run.wait_until(lambda: cpu_seconds(server) > 0.2, "the sweep to be under way", proc=proc)
    proc.kill()
    sweep("--operations", "read", "--size", 8, "--count", 3)
    server.ok()
    assert server.stderr().count("\n") == 1, server.stderr()


def test_client_is_interrupted(run, serve, sweep, port, env):
    serve()
    proc = run.start("sweep", [program(), "sweep", "--port", port, "--operations", "read,send", "--size", 8, "--count", 5,
                               "--stream", 1000000000, "--csv", run.work / "s.csv", "127.0.0.1"], env=env)
    run.wait_until(lambda: cpu_seconds(proc) > 0.3, "the sweep to be under way", proc=proc)
    assert proc.stop() == 5, proc.output()
    assert (run.work / "s.csv").read_text().startswith("operation,bytes,")
    sweep("--operations", "read", "--size", 8, "--count", 3)  # the server goes on
