# SPDX-License-Identifier: BSD-2-Clause
"""The parsers of contrib/bench over recorded output of the tools, and what is made of the figures. Nothing is timed."""
from __future__ import annotations

import contextlib
import json
import os
import sys
from collections import Counter
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "contrib" / "bench"))

import against  # noqa: E402
import bench  # noqa: E402
import cases  # noqa: E402
import report  # noqa: E402
from cases import udp_many, udp_multicast  # noqa: E402
from benchlib import find, model, parsers, procs, results, runner, stats, tables, trace  # noqa: E402


def recorded(name: str) -> str:
    return (HERE / "recorded" / name).read_text()


# ---- parsers --------------------------------------------------------------------------------------------------------


def test_sockperf_summary():
    found = parsers.sockperf_percentiles(recorded("sockperf-ping-pong.txt"))
    assert set(found) == {99.999, 99.99, 99.9, 99, 90, 75, 50, 25}
    assert found[25] <= found[50] <= found[99] <= found[99.999]


def test_sockperf_full_log():
    lines = recorded("sockperf-full-log.csv").splitlines()
    histogram = parsers.sockperf_log(lines)
    assert histogram.total() == sum(line[:1].isdigit() for line in lines)
    assert histogram[3247] == 1  # the first observation: 3.247 us
    assert min(histogram) > 1000


def test_sockperf_full_log_cut_off_in_a_line():
    lines = recorded("sockperf-full-log.csv").splitlines()
    assert parsers.sockperf_log([*lines, "99, 2.4, 2.5, "]) == parsers.sockperf_log(lines)


def test_sockperf_bandwidth_counts_mebibytes():
    assert parsers.sockperf_bandwidth("sockperf: Summary: BandWidth is 1000.000 MBps (8000.000 Mbps)") \
        == pytest.approx(8.388608)
    assert parsers.sockperf_bandwidth(recorded("sockperf-throughput.txt")) > 0


def test_sockperf_messages():
    assert parsers.sockperf_messages(recorded("sockperf-ping-pong.txt")) == 130639
    assert parsers.sockperf_rate(recorded("sockperf-ping-pong.txt")) == 130639


def test_vma_dump_counts():
    said = "vma_dump: listening to sockperf (process 7)\n12 packets captured\n15 packets received by filter\n3 packets dropped by the programs\n"
    assert parsers.vma_dump_counts(said) == {"captured": 12, "received": 15, "dropped": 3}


def test_sockperf_udp_throughput():
    assert parsers.sockperf_sent(recorded("sockperf-udp-throughput-client.txt")) == (177020, 1.001)
    assert parsers.sockperf_received(recorded("sockperf-udp-throughput-server.txt")) == 174035


def test_vma_lat_throughput():
    assert parsers.vma_lat_received_rate(recorded("vma_lat-throughput.json")) == 193744.4


def test_vma_lat_ping_pong():
    assert parsers.vma_lat_half_round_trip('{"tests": [{"rtt_ns": {"count": 9, "p50": 145000}}]}') == 72.5
    with pytest.raises(parsers.ParseError, match="round trips"):
        parsers.vma_lat_half_round_trip('{"tests": [{"rtt_ns": {"count": 0, "histogram": []}}]}')


def test_strace():
    text = "syscall             calls\n---------------- --------\nclose                 400\nrecvfrom             3214\n---------------- --------\ntotal                3614\n"
    assert parsers.strace_calls(text) == 3614
    assert parsers.strace_calls(text, but=["recvfrom"]) == 400
    with pytest.raises(parsers.ParseError, match="system calls"):
        parsers.strace_calls("strace: Can't stat 'none'")


def test_iperf():
    assert parsers.iperf_bandwidth(recorded("iperf3.json")) == pytest.approx(14.4877, abs=1e-4)
    with pytest.raises(parsers.ParseError, match="connection refused"):
        parsers.iperf_bandwidth('{"start": {}, "error": "unable to connect: connection refused"}')


def test_redis():
    assert parsers.redis_rates(recorded("redis-benchmark.csv")) == {"SET": 162601.62, "GET": 155038.77}


def test_redis_latencies():
    assert parsers.redis_latencies(recorded("redis-benchmark.csv")) == {"SET": {"p50": 0.199, "p99": 0.567},
                                                                        "GET": {"p50": 0.183, "p99": 0.463}}


def test_wrk_latencies():
    assert parsers.wrk_latencies(recorded("wrk-latency.txt")) == {"p50": 60.0, "p99": 3090.0}


def test_wrk():
    assert parsers.wrk_rate(recorded("wrk.txt")) == 115761.61


@pytest.mark.parametrize("trouble", ["  Non-2xx or 3xx responses: 12",
                                     "  Socket errors: connect 0, read 3, write 0, timeout 0"])
def test_wrk_with_errors_is_no_figure(trouble):
    with pytest.raises(parsers.ParseError):
        parsers.wrk_rate(recorded("wrk.txt") + trouble)


def test_smaps():
    fields = parsers.smaps_rollup(recorded("smaps_rollup.txt"))
    assert 0 < fields["Pss"] < fields["Rss"]


def test_last_json_line():
    assert parsers.json_line('warning\n{"a": 1}\n{"a": 2}\nbye\n') == {"a": 2}


@pytest.mark.parametrize("parser", [parsers.sockperf_percentiles, parsers.sockperf_bandwidth, parsers.sockperf_sent,
                                    parsers.sockperf_messages, parsers.sockperf_rate, parsers.sockperf_received, parsers.vma_dump_counts,
                                    parsers.vma_lat_received_rate, parsers.iperf_bandwidth,
                                    parsers.redis_rates, parsers.redis_latencies, parsers.wrk_rate, parsers.wrk_latencies, parsers.smaps_rollup, parsers.json_line])
@pytest.mark.parametrize("text", ["", "Could not connect: Connection refused\n"])
def test_output_without_a_figure_is_an_error_that_shows_it(parser, text):
    with pytest.raises(parsers.ParseError, match="refused" if text else "empty"):
        parser(text)


def group_counts() -> list[dict]:
    """Of the sender and of three receivers, one of which was stopped for a while."""
    return [json.loads(line) for line in recorded("udp_group.txt").splitlines()]


def test_group_receivers_know_what_they_missed():
    sent, *counts = group_counts()
    assert [udp_multicast.unexplained(count) for count in counts] == [0, 0, 0]
    assert [count["received"] < sent["sent"] for count in counts] == [False, True, False]


@pytest.mark.parametrize("field, by", [("received", 1), ("received", -1), ("dropped", -2), ("missing", 3),
                                       ("misplaced", 1), ("before", 1)])
def test_group_receiver_whose_counts_do_not_add_up(field, by):
    count = group_counts()[2]
    count[field] += by
    assert udp_multicast.unexplained(count) == abs(by)


def test_udp_many_prints_what_its_case_wants():
    figures = parsers.json_line(recorded("udp_many.txt"))
    assert {metric.key for metric in udp_many.UdpMany.metrics} - {"lifted"} <= set(figures)


def test_calls_that_get_dearer_with_the_number_of_sockets_are_found():
    results = model.Measurements()
    results.add("accelerated", {"epoll_10_ns": 50, "epoll_10000_ns": 74, "recv_10_ns": 20, "recv_10000_ns": 31})
    assert [target.verdict(results) for target in udp_many.UdpMany.targets] == [(74, 75, True), (31, 30, False)]


# ---- was it accelerated? --------------------------------------------------------------------------------------------


def test_trace_counts_both_kinds():
    seen = trace.parse(["info: header", "debug: fd=7: accelerated", "debug: fd=10: Not accelerated",
                        "debug: fd=8: not accelerated: the peer has no library",
                        "debug: fd=9: not accelerated: the peer has no library"])
    assert (seen.accelerated, seen.plain, seen.happened) == (1, 3, True)
    assert seen.reasons["the peer has no library"] == 2


def test_trace_without_acceleration_says_why(tmp_path):
    assert trace.read(tmp_path).sentence() == "the library was not loaded"
    (tmp_path / "vma.12.log").write_text("debug: fd=8: not accelerated: other user\n")
    seen = trace.read(tmp_path)
    assert not seen.happened and "other user" in seen.sentence()


def test_trace_tells_udp_sockets_that_receive_from_those_that_send(tmp_path):
    (tmp_path / "vma.12.log").write_text(recorded("vma-udp.txt"))
    assert trace.read(tmp_path).accelerated == 4
    assert trace.udp_receivers(tmp_path) == 2


# ---- figures --------------------------------------------------------------------------------------------------------


def test_percentiles():
    histogram = Counter({100: 50, 200: 49, 1000: 1})
    assert stats.percentiles(histogram, (50, 99, 99.9)) == [100, 200, 1000]


def test_curve_rises_and_ends_where_samples_end():
    curve = stats.curve(Counter({n: 1 for n in range(1, 10_001)}))
    assert curve == sorted(curve)
    assert curve[-1] == (100.0, 10.0)
    assert curve[-2][0] <= 99.9  # ten samples lie above
    assert stats.curve(Counter()) == []


LATENCY = model.Metric("p50", "p50", "us", lower_is_better=True)
RATE = model.Metric("rate", "rate", "Gbit/s")


def measurements() -> model.Measurements:
    both = model.Measurements()
    for kernel, accelerated in ((20, 2), (30, 3), (10, 1)):
        both.add("kernel", {"p50": kernel, "rate": 10})
        both.add("accelerated", {"p50": accelerated, "rate": 15})
    return both


@pytest.mark.parametrize("target, measured, met", [
    (model.times_better("", LATENCY, "kernel", 10), 10, True),
    (model.times_better("", LATENCY, "kernel", 11), 10, False),
    (model.times_better("", RATE, "kernel", 2), 1.5, False),
    (model.at_most("", LATENCY, 2), 2, True),
    (model.at_most_more("", RATE, "kernel", 4), 5, False),
    (model.times_better("", LATENCY, "spinning", 2), None, None),
    (model.at_least("", RATE, 15), 15, True),
    (model.at_least("", RATE, 16), 15, False),
    (model.never_more("", LATENCY, 2), 3, False),
    (model.never_more("", LATENCY, 3), 3, True),
])
def test_targets(target, measured, met):
    assert target.verdict(measurements())[::2] == (measured, met)


class TwoModes(model.Case):
    """A case that runs nothing, to see what becomes of its figures."""
    name = "two"
    title = "two modes"
    seconds = 3
    by_hand = "true"
    metrics = (LATENCY,)
    targets = (model.times_better("p50", LATENCY, "kernel", 8, aim=15),)
    compare = ((LATENCY, "kernel"),)

    def __init__(self, log: str):
        self.log = log

    def run(self, bench, mode):
        if mode.preload:
            (bench.scratch / "vma.1.log").write_text(self.log)
        return {"p50": 2.0 if mode.preload else 20.0}


def run(log: str):
    from benchlib.bench import Bench

    said: list[str] = []
    outcome = runner.run_case(TwoModes(log), Bench(lib=None), 2, said.append)
    result = json.loads(json.dumps(results.collect([outcome], True, 0.0)))
    return result, "\n".join(said)


def test_report_of_an_accelerated_run():
    result, said = run("fd=3: accelerated\n")
    assert "NOT" not in said
    assert result["cases"][0]["targets"][0]["met"] is True
    assert "10.0x" in tables.report(result) and ">= 8x (aim 15x)" in tables.report(result)
    assert "medians of 2 rounds" in tables.page(result)
    assert "| two modes: p50 | 20.0 us | 2.00 us | 10.0x | >= 8x (aim 15x) | met |" in tables.page(result)


def test_table_is_put_between_the_marks_of_the_page():
    text = "before\n<!-- figures begin: how -->\nold\n<!-- figures end -->\nafter\n"
    assert report.put_between_marks(text, "new") == text.replace("old", "new")
    with pytest.raises(ValueError, match="marks"):
        report.put_between_marks("before\nafter\n", "new")


def test_report_never_calls_a_kernel_figure_accelerated():
    result, said = run("fd=3: not accelerated: other user\n")
    assert "NOT ACCELERATED" in said and "other user" in said
    case = result["cases"][0]
    assert case["accelerated"] is False and case["targets"][0]["met"] is None and case["ratios"][0]["gain"] is None
    assert len(tables.ratios(result["cases"])) == 1  # the head only
    assert "it was NOT" in tables.report(result)


def test_a_mode_that_fails_is_reported_and_given_up():
    class Broken(TwoModes):
        def run(self, bench, mode):
            if mode.preload:
                raise procs.RunError("did not end")
            return super().run(bench, mode)

    from benchlib.bench import Bench

    outcome = runner.run_case(Broken(""), Bench(lib=None), 5, lambda line: None)
    assert outcome.errors == ["accelerated: did not end"] * 2
    assert len(outcome.results.values["kernel"]["p50"]) == 5


@pytest.mark.parametrize("left, pace, rounds", [(30, 1, 5), (29, 1, 4), (30, 1.3, 3), (1, 1, 2), (-5, 1, 2)])
def test_rounds_are_as_many_as_the_time_allows(left, pace, rounds):
    assert runner.rounds_that_fit([TwoModes(""), TwoModes("")], left, pace) == rounds


def test_all_rounds_of_all_cases_fit_on_a_quiet_machine():
    everything = [kind() for kind in cases.ALL if not kind.only_by_name]
    assert runner.rounds_that_fit(everything, bench.LIMIT, 1) == everything[0].rounds


def test_cases_are_well_formed():
    names = [case.name for case in cases.ALL]
    assert len(set(names)) == len(names)
    for case in cases.ALL:
        modes = {mode.key for mode in case.modes}
        assert model.ACCELERATED.key in modes and case.title and case.by_hand and case.seconds > 0
        assert {base for _, base in case.compare} <= modes
        assert {target.base for target in case.targets} - {None} <= modes


# ---- processes ------------------------------------------------------------------------------------------------------


def test_environment_carries_nothing_of_the_library(monkeypatch):
    monkeypatch.setenv("LD_PRELOAD", "libvma.so")
    monkeypatch.setenv("VMA_SPEC", "latency")
    monkeypatch.setenv("FI_PROVIDER", "vma")
    env = procs.clean_environment({"VMA_TRACELEVEL": "warn"})
    assert not {"LD_PRELOAD", "VMA_SPEC", "FI_PROVIDER"} & set(env)
    assert env["VMA_TRACELEVEL"] == "warn"


def test_server_is_waited_for_and_ended(tmp_path):
    port = procs.free_port()
    program = [sys.executable, "-m", "http.server", "--bind", "127.0.0.1", str(port)]
    with procs.server(program, port, frozenset(), {}, tmp_path, limit=30) as server:
        assert procs.listening(port)
    assert server.returncode is not None
    assert not procs.listening(port)


UDP_COUNTER = """
import signal, socket, sys
try:  # who sees the port may interrupt at once
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.bind(("127.0.0.1", int(sys.argv[1])))
    signal.pause()
except KeyboardInterrupt:
    print("counted 7")
"""


def test_udp_server_is_waited_for_and_says_what_it_counted_when_interrupted(tmp_path):
    port, other = procs.free_udp_ports(2)
    assert not procs.bound([port])
    with procs.udp_server([sys.executable, "-c", UDP_COUNTER, str(port)], [port], frozenset(), {}, tmp_path) as stop:
        assert procs.bound([port]) and not procs.bound([port, other])
        assert stop() == "counted 7\n"
    assert not procs.bound([port])


@pytest.mark.skipif(os.geteuid() != 0 or not find.program("ip"), reason="needs root and ip")
def test_network_namespace_has_nothing_but_loopback_and_leaves_ours_alone(tmp_path):
    ours = os.readlink("/proc/self/ns/net")
    with contextlib.ExitStack() as stack:
        try:
            namespace = stack.enter_context(procs.network_namespace())
        except procs.RunError as error:
            pytest.skip(str(error))
        finally:
            assert os.readlink("/proc/self/ns/net") == ours
        with procs.stepped(["ip", "-o", "route"], frozenset(), {}, tmp_path, namespace) as process:
            assert procs.next_line(process, 10).split() == ["224.0.0.0/4", "dev", "lo", "scope", "link"]


def test_stepped_program_that_says_nothing_is_an_error(tmp_path):
    with procs.stepped(["sleep", "100"], frozenset(), {}, tmp_path) as process:
        with pytest.raises(procs.RunError, match="said nothing"):
            procs.next_line(process, 0.1)
    with procs.stepped(["sh", "-c", "exit 3"], frozenset(), {}, tmp_path) as process:
        with pytest.raises(procs.RunError, match="ended with 3"):
            procs.next_line(process, 10)


def test_server_that_ends_at_once_is_an_error_with_its_words(tmp_path):
    with pytest.raises(procs.RunError, match="cannot bind"):
        with procs.server(["sh", "-c", "echo cannot bind; exit 3"], procs.free_port(), frozenset(), {}, tmp_path):
            pass


def test_client_that_hangs_is_ended(tmp_path):
    with pytest.raises(procs.RunError, match="did not end"):
        procs.client(["sh", "-c", "echo started; sleep 100"], frozenset(), {}, tmp_path, limit=0.3)


# ---- two builds -------------------------------------------------------------------------------------------------------

def test_ratios_that_scatter_are_told_with_how_far():
    assert against.middle_of_resamples([1.5] * 9) == (1.5, 1.5)
    low, high = against.middle_of_resamples([0.5, 0.9, 1.0, 1.1, 2.0])
    assert low <= 1.0 <= high and low < high
    said = against.line("case figure", [2.0, 4.0, 8.0], [1.0, 2.0, 4.0])
    assert "before          4  after          2  ratio 0.500 [0.500, 0.500]" in said


def test_what_is_not_there_to_compare_with_is_named(capsys):
    with pytest.raises(SystemExit) as end:
        against.main(["no-such-file", "--only", "redis-1"])
    assert end.value.code == 2
    assert "no-such-file is not there" in capsys.readouterr().err
