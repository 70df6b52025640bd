# SPDX-License-Identifier: BSD-2-Clause
"""The example commands of VMA's manual (9.8.60), as they stand there but for addresses, processors, process ids and the length of runs:
they work, and what they print has the shape that the manual shows. A sockperf that is not told how many messages to expect keeps room
for 600,000 a second, and ends with an error where there are more; so it is told."""

import os
import re
import signal

import pytest

from lib import build, ports
from lib.wire import PATIENCE

MANY = " " + " ".join(map(str, build.SOCKPERF_MANY))
_LINE = re.compile(r"VMA (INFO|DETAILS|DEBUG|WARNING|ERROR)\s*: (.*)")
LATENCY = [r"VMA Spec +Latency +\[VMA_SPEC\]", r"Log Level +INFO +\[VMA_TRACELEVEL\]",
           r"Ring On Device Memory TX +16384 +\[VMA_RING_DEV_MEM_TX\]", r"Tx QP WRE +256 +\[VMA_TX_WRE\]",
           r"Tx QP WRE Batching +4 +\[VMA_TX_WRE_BATCHING\]", r"Rx QP WRE +256 +\[VMA_RX_WRE\]",
           r"Rx QP WRE Batching +4 +\[VMA_RX_WRE_BATCHING\]", r"Rx Poll Loops +-1 +\[VMA_RX_POLL\]",
           r"GRO max streams +0 +\[VMA_GRO_STREAMS_MAX\]", r"Select Poll \(usec\) +-1 +\[VMA_SELECT_POLL\]",
           r"Select Poll OS Ratio +1 +\[VMA_SELECT_POLL_OS_RATIO\]", r"Select Skip OS +1 +\[VMA_SELECT_SKIP_OS\]",
           r"Thread mode +Single +\[VMA_THREAD_MODE\]"]


@pytest.fixture
def shell(run):
    """shell(name, command): by /bin/sh, as somebody who has installed the library and the tools."""
    build.tool("sockperf")
    tools, libraries = build.build_dir(), build.libvma().parent
    env = {"LD_LIBRARY_PATH": str(libraries), "PATH": f"{tools}:{os.environ['PATH']}",
           "VMA_STATS_SHMEM_DIR": "/tmp/"}  # the default: the manual's commands name no other

    def start(name, command, **options):
        return run.start(name, ["/bin/sh", "-c", "exec env " + command], env=env, **options)
    return start


def header(text) -> list[str]:
    return [m[2] for line in text.splitlines() if (m := _LINE.search(line))]


def served(run, shell, command, port, tcp=False):
    server = shell("server", command)
    run.wait_until(lambda: ports.is_listening(port) if tcp else ports.is_bound(port), "the server", PATIENCE, server)
    return server


def summary(client) -> str:
    client.ok()
    found = re.search(r"Summary: (Latency|Round trip) is (\d+\.\d+) usec", client.stdout())
    assert found, client.output()
    return found[2]


@pytest.mark.parametrize("server_command, client_command, tcp", [
    ("LD_PRELOAD=libvma.so sockperf server -i 127.0.0.1", "LD_PRELOAD=libvma.so sockperf ping-pong -t 1 -i 127.0.0.1", False),
    ("LD_PRELOAD=libvma.so VMA_SPEC=latency sockperf server -i 127.0.0.1",
     "LD_PRELOAD=libvma.so VMA_SPEC=latency sockperf ping-pong -t 1 -i 127.0.0.1", False),
    ("LD_PRELOAD=libvma.so sockperf sr --tcp -i 127.0.0.1 -p 12345", "LD_PRELOAD=libvma.so sockperf pp --tcp -i 127.0.0.1 -p 12345 -t1",
     True),
    ("VMA_RX_POLL=-1 LD_PRELOAD=libvma.so taskset -c 0 sockperf sr -i 127.0.0.1",
     "VMA_RX_POLL=-1 LD_PRELOAD=libvma.so taskset -c 1 sockperf pp -i 127.0.0.1 -t 1", False),
    ("VMA_INTERNAL_THREAD_AFFINITY=1 VMA_RX_POLL=-1 LD_PRELOAD=libvma.so taskset -c 0 sockperf sr -i 127.0.0.1",
     "VMA_INTERNAL_THREAD_AFFINITY=0 VMA_RX_POLL=-1 LD_PRELOAD=libvma.so taskset -c 1 sockperf pp -i 127.0.0.1 -t 1", False),
    ("LD_PRELOAD=libvma.so sockperf sr", "LD_PRELOAD=libvma.so sockperf pp -i 127.0.0.1 -t 1", False),
])
def test_sockperf(run, shell, server_command, client_command, tcp):
    if "taskset" in server_command and os.cpu_count() < 2:
        pytest.skip("one processor")
    port = ports.free_port()
    server_command, client_command = (re.sub(" -p 12345", "", command) + f" -p {port}" for command in (server_command, client_command))
    client_command += MANY
    server = served(run, shell, server_command, port, tcp)
    client = shell("client", client_command)
    assert float(summary(client)) > 0
    for proc, command in (server, server_command), (client, client_command):
        lines = header(proc.stderr())
        at = lines.index("Cmd Line: " + command[command.index("sockperf"):])  # behind taskset's own header
        assert re.fullmatch(r"VMA_VERSION: \S+ Release built on \w+ +\d+ \d+ \d\d:\d\d:\d\d", lines[at - 1])
        lines = lines[at:]
        assert any(re.fullmatch(r"Log Level +INFO +\[VMA_TRACELEVEL\]", line) for line in lines)
        for wanted in LATENCY if "VMA_SPEC=latency" in command else []:
            assert any(re.fullmatch(wanted, line) for line in lines), f"{wanted}\n" + "\n".join(lines)
    server.stop(number=signal.SIGINT)


def test_sockperf_loads_it(run, shell):
    """Section 12: --load-vma, with and without a path."""
    port = ports.free_port()
    server = served(run, shell, f"sockperf sr -i 127.0.0.1 -p {port} --load-vma", port)
    summary(shell("client", f"sockperf pp -i 127.0.0.1 -p {port} -t 1{MANY} --load-vma={build.libvma()}"))
    assert header(server.stderr())[0].startswith("VMA_VERSION: ")
    server.stop(number=signal.SIGINT)


def test_trace_level(run, shell):
    shell("command", "VMA_TRACELEVEL=DEBUG LD_PRELOAD=libvma.so true").ok()
    assert any("[VMA_CONFIG_FILE]" in line for line in header(run.procs[-1].stderr()))


@pytest.fixture
def observed(run, shell):
    """A server whose client sends for as long as the test takes."""
    port = ports.free_port()
    server = served(run, shell, f"LD_PRELOAD=libvma.so VMA_SPEC=latency sockperf sr -i 127.0.0.1 -p {port}", port)
    client = shell("client", f"LD_PRELOAD=libvma.so VMA_SPEC=latency sockperf pp -i 127.0.0.1 -t 12 -p {port} --mps 3000000")
    return server, client


_COUNTS = r" +(-?\d+)"


@pytest.mark.parametrize("command, wanted", [
    ("vma_stats -p {pid}", [r"fd +-+ total offloaded -+ +-+ total os -+", r" *\d+ +Rx:" + _COUNTS * 4 + r" +\d+\.\d" + _COUNTS * 4,
                            r" +Tx:" + _COUNTS * 8]),
    ("vma_stats -p {pid} -d 2", [r"fd +-+ offloaded -+ +-+ os -+", r" +pkt/s +Kbyte/s +eagain/s +error/s +poll% .*",
                                 r" *\d+ +Rx:" + _COUNTS * 4 + r" +\d+\.\d" + _COUNTS * 4]),
    ("vma_stats -p {pid} -v 3", [r"\s*Fd=\[\d+\]", r"Rx Offload: \d+ / \d+ / \d+ / \d+ \[kilobytes/packets/eagains/errors\]",
                                 r"Rx poll: \d+ / \d+ \(\d+\.\d+%\) \[miss/hit\]"]),
    ("vma_stats -p {pid} -v 3 -d 2", [r"\s*Fd=\[\d+\]", r"Rx Offload: \d+ / \d+ / \d+ / \d+ \[kilobytes/packets/eagains/errors\].*"]),
    ("vma_stats -p {pid} -v 4", [r"VMA Group Memberships Information", r"Group +fd number", "-+"]),
])
def test_vma_stats(run, shell, observed, command, wanted):
    server, _client = observed
    tool = shell("stats", command.format(pid=server.pid))

    def is_complete():
        lines = [re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", line) for line in tool.stdout().splitlines()]
        return all(any(re.fullmatch(f" ?{one}", line) for line in lines) for one in wanted)
    try:
        run.wait_until(is_complete, "lines of the manual's shape", PATIENCE)
    except Exception as error:
        raise AssertionError(f"{command}: {wanted}\n{tool.output()}") from error
    tool.may_fail = True
    if tool.alive():
        tool.stop(number=signal.SIGINT)


def test_all_processes(run, shell, observed):
    """-v 5 prints once: when it is asked the socket may not be accelerated yet."""
    server, _client = observed
    row = rf"udp +Yes .* 127\.0\.0\.1:\d+ .* {server.pid}/sockperf *"

    def is_shown():
        lines = shell("stats", "vma_stats -v 5").ok().stdout().splitlines()
        assert re.fullmatch("Proto Offloaded .* PID/Program name", lines[0])
        return any(re.fullmatch(row, line) for line in lines)
    run.wait_until(is_shown, "the server among all sockets", PATIENCE, server)


def test_fd_dump(run, shell, observed):
    server, _client = observed
    number = next(int(line.split()[0]) for line in _view(run, shell, server) if re.match(r" *\d+ +Rx:", line))
    tool = shell("stats", f"vma_stats -p {server.pid} --fd_dump {number} info")
    run.wait_until(lambda: f"Fd=[{number}]" in server.stderr() or f"fd={number}" in server.stderr(), "the dump in the log", PATIENCE)
    tool.stop(number=signal.SIGINT)


def _view(run, shell, server):
    return shell("view", f"vma_stats -p {server.pid} -c 1").ok().stdout().splitlines()


def test_no_process(run, shell, tmp_path):
    """The manual's words for it."""
    proc = shell("stats", f"vma_stats -k {tmp_path}")
    assert proc.fails() == 1
    assert "vmastat: Failed to identify process" in proc.output()
