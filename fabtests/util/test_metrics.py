# SPDX-License-Identifier: BSD-2-Clause
"""The metrics of vma_stats as Prometheus gets them: redis under the library, the textfile directory, who lies in the folder, and the
dashboard that is made of them. test_metrics_server.py has the scrape socket."""

import json
import os
import re
import signal
import stat
import subprocess

import pytest

from lib import build, patience, prometheus
from lib.vmastats import ECHO, PING_UNTIL_TOLD, end_pings, make_sample, program, script

LIBRARY = {"pid", "program", "user"}


def page(folder, *arguments, status=0, **how):
    done = subprocess.run([program("vma_stats"), "-k", folder, "--prometheus", *map(str, arguments)], capture_output=True,
                          timeout=patience.seconds(), **how)
    assert done.returncode == status, done.stdout + done.stderr
    return prometheus.parse(done.stdout)


def test_redis(run, port):
    """What a server has received is there, also of the connections that are closed by now; nothing ever falls."""
    server = run.start("redis", [build.tool("redis-server"), "--port", port, "--save", ""], vma=True)
    run.wait_port(port, server)
    seen = []
    for _ in range(2):
        run.run("benchmark", [build.tool("redis-benchmark"), "-p", port, "-t", "set", "-n", 20000, "-q", "-c", 10], vma=True)
        run.wait_until(lambda: page(run.log_dir, "-p", server.pid)["vma_sockets_closed_total"].sum(protocol="tcp")
                       >= 10 * (len(seen) + 1), "closed connections", proc=server)
        seen.append(page(run.log_dir, "-p", server.pid))
    first, second = seen
    labels = {"pid": str(server.pid), "program": "redis-server"}
    received = second["vma_receive_bytes_total"]
    assert received.sum(protocol="tcp", **labels) > 2 * 20000 * 30
    assert received.sum(path="device", **labels) > 0
    assert second["vma_multiplexer_ready_total"].sum(call="epoll", path="device") > 0
    for name, family in first.items():
        if family.type == "counter":
            for one in family.samples:
                assert second[name].sum(**one.labels) >= one.value, (name, one)
    assert second["vma_device_receive_bytes_total"].sum(device="local") == received.sum(path="device")
    server.stop()


def test_all_processes(run, port):
    """Of both ends what one has sent the other has received. A process that was killed is not there any more."""
    server = script(run, "server", ECHO.format(port=port)).wait_output("ready")
    client = script(run, "client", PING_UNTIL_TOLD.format(port=port) + "signal.pause()\n")
    count = end_pings(run, client, server)
    both = page(run.log_dir)
    sent, received = both["vma_transmit_bytes_total"], both["vma_receive_bytes_total"]
    for one, other in (client, server), (server, client):
        for path in "device", "kernel":
            assert sent.sum(pid=str(one.pid), path=path) == received.sum(pid=str(other.pid), path=path)
        assert sent.sum(pid=str(one.pid)) == 100 * count
    assert both["vma_exporter_processes"].sum() == 2 and both["vma_sockets"].sum(way="local") == 2
    server.kill()
    assert {one.labels["pid"] for one in page(run.log_dir, "-F")["vma_process_info"].samples} == {str(client.pid)}
    assert page(run.log_dir, "-F", "-n", "nobody")["vma_exporter_processes"].sum() == 0


def test_no_half_truths(folder, sample):
    """While a closed socket's counts move to the process's totals its page would have them twice, or not at all: it is left out, and then it
    is there again. Views show what they can."""
    make_sample(folder, sample, "closing")
    seen = page(folder)
    assert "vma_process_info" not in seen and seen["vma_exporter_skipped_files"].sum(reason="busy") == 1
    subprocess.run([program("vma_stats"), "-k", folder, "-p", str(sample.pid), "-c", "1"], check=True, capture_output=True)
    make_sample(folder, sample)
    assert page(folder)["vma_receive_bytes_total"].sum(protocol="tcp", path="device") == 497 * 1024 + 1000


def test_zero_is_not_for_them(folder, sample):
    before = page(folder)
    subprocess.run([program("vma_stats"), "-k", folder, "-p", str(sample.pid), "-z", "-c", "1"], check=True, capture_output=True)
    after = page(folder)
    for name, family in before.items():
        if name != "vma_exporter_collect_seconds":
            assert family.samples == after[name].samples


def test_sockets_only_when_asked(folder, sample):
    """How many series there are does not depend on the sockets, unless who asks wants them."""
    few = page(folder)
    assert not any(name.startswith("vma_socket_") for name in few)
    assert all(LIBRARY <= names for name, names in prometheus.labels_of(few).items() if not name.startswith("vma_exporter_"))
    every = page(folder, "--per_socket")
    infos = {one.labels["fd"]: one.labels for one in every["vma_socket_info"].samples}
    assert sorted(infos) == ["14", "15", "900"]
    assert infos["900"] | {"way": "pinned", "reason": "SO_ZEROCOPY", "local": "[2001:db8::1]:80"} == infos["900"]
    assert every["vma_socket_transmit_bytes_total"].sum(fd="900", path="kernel") == 5_000_000_000_000
    assert [one.labels["fd"] for one in page(folder, "--per_socket", "-s", "15")["vma_socket_info"].samples] == ["15"]


def test_known_numbers(folder, sample):
    seen = page(folder)
    assert seen["vma_transmit_bytes_total"].sum(protocol="udp", path="device") == 8779 * 1024
    assert seen["vma_transmit_pacing_wait_seconds_total"].sum() == pytest.approx(5000e-9)
    assert seen["vma_multiplexer_polling_ratio"].sum(call="epoll") == 0.93
    assert seen["vma_receive_dropped_packets_total"].sum() == 1
    assert seen["vma_queue_receive_frames_lent"].sum(queue="wire") == 7


# ---- the file --------------------------------------------------------------------------------------------------------------


def test_text_file(folder, sample, work):
    """Is replaced, not written to: whoever has it open reads the old one to its end. Nothing is left beside it."""
    place = work / "textfile"
    place.mkdir()
    target = place / "vma.prom"
    target.write_text("old")
    with target.open() as old:
        subprocess.run([program("vma_stats"), "-k", folder, f"--prometheus={target}"], check=True, umask=0o022)
        assert old.read() == "old"
    assert prometheus.parse(target.read_bytes())["vma_exporter_processes"].sum() == 1
    assert stat.S_IMODE(target.stat().st_mode) == 0o644 and list(place.iterdir()) == [target]


def test_text_file_again_and_again(run, folder, sample, work):
    target = work / "vma.prom"
    proc = run.start("tool", [program("vma_stats"), "-k", folder, f"--prometheus={target}", "-i", 1])
    run.wait_until(target.exists, "the file", proc=proc)
    first = target.stat().st_ino, target.stat().st_mtime_ns
    run.wait_until(lambda: (target.stat().st_ino, target.stat().st_mtime_ns) != first, "another one", proc=proc)
    proc.send_signal(signal.SIGTERM)
    proc.ok()
    assert prometheus.parse(target.read_bytes())


def test_text_file_that_can_not_be(folder, sample, work):
    (work / "taken").mkdir()
    for target, why in (work / "none" / "vma.prom", "No such file or directory"), (work / "taken", "Is a directory"):
        done = subprocess.run([program("vma_stats"), "-k", folder, f"--prometheus={target}"], capture_output=True, text=True)
        assert done.returncode == 1 and f"vmastat: {target}: {why}" in done.stderr
    assert not [path.name for path in work.iterdir() if path.name.endswith(".tmp")]


# ---- who lies in the folder ------------------------------------------------------------------------------------------------


def change_name(proc, name):
    data = bytearray(proc.file.read_bytes())
    at = data.index(b"gen\0")
    data[at:at + len(name) + 1] = name + b"\0"
    proc.file.write_bytes(data)


def test_names_that_are_no_text(folder, sample):
    """Of one byte that is no UTF-8 Prometheus would refuse the page of all processes."""
    change_name(sample, b'"}\\ \xe9 \xe2\x82')
    (info,) = page(folder)["vma_process_info"].samples
    assert info.labels["program"] == '"}\\ ? ??'


def test_random_bytes(folder, sample):
    whole = sample.file.read_bytes()
    for filler in b"\xff" * 8, b'"\n\\}{,=x', b"\xe2\x82\xac\xe2\x82\xac\xe2\x82":
        for begin in 256, sample.header_size:
            data = bytearray(whole)
            for at in range(begin, len(data) - 8, 24):
                data[at:at + 8] = filler
            sample.file.write_bytes(data)
            assert page(folder, "--per_socket")


def test_more_than_can_be(folder, sample):
    """A page has a limit, whoever fills the folder with files of processes of another pid namespace, which can't be asked for."""
    data = bytearray(sample.file.read_bytes())
    space = data.index(b"gen\0") - 8
    data[space:space + 8] = (1).to_bytes(8, "little")
    for pid in range(1_000_000, 1_000_520):
        data[24:28] = pid.to_bytes(4, "little")
        (folder / f"vmastat.{pid}").write_bytes(data)
    (folder / "vmastat.77").write_bytes(data)  # says that it is another's
    (folder / "vmastat.78").write_text("somebody's notes")
    seen = page(folder)
    assert seen["vma_exporter_processes"].sum() == 512
    assert seen["vma_exporter_skipped_files"].sum(reason="limit") == 9
    assert seen["vma_exporter_skipped_files"].sum(reason="unreadable") == 1


def test_other_users(folder, sample):
    """A file counts for who owns it, whatever it says; what may not be read is counted."""
    if os.geteuid() != 0:
        pytest.skip("only root can become somebody else")
    os.chown(sample.file, 1, 1)
    assert [one.labels["user"] for one in page(folder)["vma_process_info"].samples] == ["daemon"]
    sample.file.chmod(0o600)
    folder.chmod(0o755)
    seen = page(folder, preexec_fn=lambda: (os.setgid(65534), os.setuid(65534)))
    assert seen["vma_exporter_processes"].sum() == 0 and seen["vma_exporter_skipped_files"].sum(reason="permission") == 1


# ---- what is made of them --------------------------------------------------------------------------------------------------


def expressions(node):
    """All of PromQL that a dashboard has."""
    if isinstance(node, dict):
        for name, value in node.items():
            if name in ("expr", "query") and isinstance(value, str) and value != "prometheus":
                yield value
            else:
                yield from expressions(value)
    elif isinstance(node, list):
        for one in node:
            yield from expressions(one)


def test_dashboard(folder, sample):
    """Each expression has metrics and labels that there are, and closes what it opens."""
    known = prometheus.labels_of(page(folder))
    dashboard = json.loads((build.TOP / "contrib/grafana/ofi-vma.json").read_text())
    every = list(expressions(dashboard))
    assert len(every) > 20
    for expression in every:
        assert all(expression.count(one) == expression.count(other) for one, other in ("()", "{}", "[]")), expression
        metrics, grouped = prometheus.used_by(re.sub(r"^label_values\((\w+), (\w+)\)$", r"sum by (\2) (\1)", expression))
        assert metrics, expression
        for name, labels in metrics:
            assert name in known, f"{name} in {expression}"
            assert set(labels) | grouped <= known[name], expression
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(ids) == len(set(ids))


def test_manual_names_them_all(folder, sample):
    """And no others."""
    text = (build.TOP / "man/vma_stats.8").read_text().replace("\\-", "-")
    assert set(re.findall(r"\bvma_[a-z_]+\b", text)) - {"vma_stats", "vma_lat", "vma_dump"} == set(page(folder, "--per_socket"))
