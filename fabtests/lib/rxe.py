# SPDX-License-Identifier: BSD-2-Clause
"""Programs in the two guests of the rxe lab (contrib/lab), and what is made of their figures.

Times are an emulated processor's, on a machine that others use: only the ratio of two taken in turn means something."""

import json
import re
import statistics
import sys

from . import build, patience

sys.path.insert(0, str(build.TOP / "contrib" / "lab"))

from rxelab import Guest, Lab, missing  # noqa: E402,F401

Guest.slowness = staticmethod(patience.factor)

DOMAIN = "rxe0"
LIMIT = 200.0  # seconds for a program that is done in five on an idle machine, which a guest multiplies: it only guards against a hang


def fabric_env() -> dict[str, str]:
    """The same for every provider that is compared."""
    # Libraries that Debian's libfabric drags in catch SIGSEGV and end with status 1: no crash would be seen.
    return {"FI_PROVIDER_PATH": str(build.provider_dir()), "IPATH_NO_BACKTRACE": "1"}


def preload_env(name: str) -> dict[str, str]:
    """The preload library in a guest, with a log that log() reads."""
    return {"LD_PRELOAD": build.preload(), "VMA_TRACELEVEL": "debug", "VMA_LOG_FILE": f"/tmp/{name}.log"}


def offers(guest, provider: str, domain: str = DOMAIN) -> bool:
    """Does the provider have message endpoints on the device?"""
    info = guest.start(["fi_info", "-p", provider, "-d", domain, "-t", "FI_EP_MSG"], env=fabric_env())
    return info.wait(LIMIT) == 0 and f"domain: {domain}" in info.stdout()


def pair(lab, server, client, *, env=None):
    """Starts a program in each guest, the client when the server listens. Returns both commands."""
    before = lab.server.listeners()
    first = lab.server.start(server, env=env)
    if not lab.server.wait_listening(first, before, LIMIT):
        raise AssertionError(f"{first} ended with status {first.status} before it listened\n{first.output()}")
    return first, lab.client.start(client, env=env)


def run_pair(lab, server, client, *, env=None):
    """Both must end with exit status 0."""
    first, second = pair(lab, server, client, env=env)
    second.ok(LIMIT)
    first.ok(LIMIT)
    return first, second


def rping(lab, address: str, turns: int, *more):
    """rdma-core's own program compares what arrives. Its exit status doesn't say so: at its end its threads race for the event channel
    ("rdma_get_cm_event: Bad file descriptor", status 255)."""
    argv = ["rping", "-a", address, "-v", "-V", "-C", turns, *more]
    for command in pair(lab, [*argv, "-s"], [*argv, "-c"]):
        command.wait(LIMIT)
        assert command.output().count("ping data") == turns, command.output()


def pingpong(lab, provider: str, size: int, iterations: int, *, kind: str = "msg", check: bool = False) -> float:
    """fi_pingpong over endpoints of a kind: mean of half a round trip in microseconds. `check`: compares what arrives."""
    argv = ["fi_pingpong", "-p", provider, "-d", DOMAIN, "-e", kind, "-I", iterations, "-S", size]
    argv += ["-c"] if check else []
    _, client = run_pair(lab, argv, [*argv, lab.server.address], env=fabric_env())
    rows = re.findall(r"^\S+\s+(\d+)\s+=(\d+)\s.*?(\d+\.\d+)\s+\d+\.\d+$", client.stdout(), re.MULTILINE)
    assert [row[:2] for row in rows] == [(str(iterations), str(iterations))], client.stdout()
    return float(rows[0][2])


def latency_ratio(lab, first: str, second: str, size: int, *, count: int = 200, rounds: int = 3, wait: str = "spin"):
    """Median latency over the provider `first` over that over `second`, and a line that says so."""
    return compare_latency(lab, {first: (first, {}), second: (second, {})}, size, count=count, rounds=rounds, wait=wait)


def bandwidth_ratio(lab, first: str, second: str, sizes, *, operations: int = 6, rounds: int = 2):
    """Bytes a second that messages of each size bring over the provider `first`, over those over `second`, a ratio for
    each size, and a line that says so. Taken in turn; each is the sum of `rounds` windows of `operations` sends."""
    server = _serve(lab, 2 * rounds, {})
    spent = {name: dict.fromkeys(sizes, 0) for name in (first, second)}
    for _ in range(rounds):
        for provider, times in spent.items():
            steps = _measure(lab, ["sweep", "--operations", "send", "--size", ",".join(map(str, sizes)), "--count", 1,
                                   "--warm-up", 1, "--stream", operations, "--window", 4], provider, {})["steps"]
            for size, step in zip(sizes, steps, strict=True):
                assert (step["size"], step["operations"], step["damaged"]) == (size, operations, 0), step
                times[size] += step["stream_ns"]
    server.ok(LIMIT)
    ratios = {size: spent[second][size] / spent[first][size] for size in sizes}
    rate = {name: {size: operations * rounds * size * 1000 / took for size, took in times.items()}
            for name, times in spent.items()}
    said = [f"{size} B: {first} {rate[first][size]:.2f} MB/s, {second} {rate[second][size]:.2f} MB/s, ratio {ratio:.2f}"
            for size, ratio in ratios.items()]
    return ratios, "; ".join(said)


def _vma_lat():
    return build.build_dir() / "vma_lat"


def _serve(lab, clients: int, env):
    """vma_lat's server, which ends after so many clients."""
    before = lab.server.listeners()
    server = lab.server.start([_vma_lat(), "server", "--address", lab.server.address, "--clients", clients],
                              env=fabric_env() | env)
    assert lab.server.wait_listening(server, before, LIMIT), server.output()
    return server


def _measure(lab, options, provider: str, env) -> dict:
    """What one client of it found."""
    lab.client.run([_vma_lat(), *options, "--provider", provider, "--domain", DOMAIN, "--timeout", 20000,
                    "--json", "/tmp/vma_lat", lab.server.address], env=fabric_env() | env, timeout=LIMIT)
    return json.loads(lab.client.read("/tmp/vma_lat"))


def compare_latency(lab, cases, size: int, *, count: int = 200, rounds: int = 3, wait: str = "spin", warm_up: int = 20,
                    server_env=None):
    """Median latency in the first of two cases over that in the second, and a line that says so. A case is a provider
    and more variables for the client. Taken in turn, so that what slows the machine down slows both; each is the median
    of `rounds` medians of `count` round trips."""
    server = _serve(lab, 2 * rounds, server_env or {})
    medians = {name: [] for name in cases}
    for _ in range(rounds):
        for (provider, more), found in zip(cases.values(), medians.values()):
            (test,) = _measure(lab, ["client", "--fabric", "msg", "--size", size, "--wait", wait, "--count", count,
                                     "--warm-up", warm_up, "--check"], provider, more)["tests"]
            assert test["provider"] == provider and test["client"]["received"] == count, test
            found.append(test["rtt_ns"]["p50"] / 2000)
    server.ok(LIMIT)
    mine, other = (statistics.median(found) for found in medians.values())
    first, second = cases
    return mine / other, f"{size} B, {wait}: {first} {mine:.1f} us, {second} {other:.1f} us, ratio {mine / other:.2f}"


def sockperf(lab, *options, server_env=None, client_env=None, seconds: int = 1) -> str:
    """sockperf ping-pong with the client's and the server's side over the wire. What the client said."""
    port = "5001"
    before = lab.server.listeners()
    server = lab.server.start(["sockperf", "server", *options, "-i", lab.server.address, "-p", port], env=server_env)
    assert lab.server.wait_listening(server, before, LIMIT), server.output()
    client = lab.client.start(["sockperf", "ping-pong", *options, "-i", lab.server.address, "-p", port, "-t", seconds],
                              env=client_env).ok(LIMIT)
    server.stop()
    received = re.search(r"ReceivedMessages=(\d+)", client.stdout())
    assert received and int(received[1]) > 0, client.output()
    assert "# dropped messages = 0; # duplicated messages = 0; # out-of-order messages = 0" in client.stdout()
    return client.stdout()
