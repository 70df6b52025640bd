# SPDX-License-Identifier: BSD-2-Clause
"""Readers of what the tools print. Each takes text and raises ParseError when the figure is not in it."""
from __future__ import annotations

import csv
import json
import re
from collections import Counter
from collections.abc import Collection, Iterable
from typing import Any


class ParseError(ValueError):
    """The tool did not print what it should have; the message carries the end of what it did print."""


def _missing(what: str, text: str) -> ParseError:
    tail = " | ".join(text.strip().splitlines()[-4:])
    return ParseError(f"no {what} in the output: {tail or '(empty)'}")


_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_PERCENTILE = re.compile(r"percentile\s+([0-9.]+)\s*=\s*([0-9.]+)")


def sockperf_percentiles(text: str) -> dict[float, float]:
    """Percentile -> microseconds, from the summary of `sockperf ping-pong`."""
    found = {float(p): float(v) for p, v in _PERCENTILE.findall(_COLOUR.sub("", text))}
    if not found:
        raise _missing("percentiles", text)
    return found


def sockperf_log(lines: Iterable[str]) -> Counter[int]:
    """Histogram in nanoseconds of the last column of `sockperf ping-pong --full-log`."""
    rows = iter(lines)
    for line in rows:
        if line.startswith("packet,"):
            break
    counts = Counter(line.rpartition(",")[2].strip() for line in rows)
    histogram: Counter[int] = Counter()
    for text, count in counts.items():
        try:
            histogram[round(float(text) * 1000)] += count
        except ValueError:
            pass  # a line cut off at the end of the run
    if not histogram:
        raise ParseError("no observations in the log of sockperf")
    return histogram


def sockperf_bandwidth(text: str) -> float:
    """Gigabits a second, from the summary of `sockperf throughput` (its MBps are 2**20 bytes)."""
    match = re.search(r"BandWidth is ([0-9.]+) MBps", _COLOUR.sub("", text))
    if not match:
        raise _missing("bandwidth", text)
    return float(match[1]) * 2**20 * 8 / 1e9


def sockperf_sent(text: str) -> tuple[int, float]:
    """Messages and seconds, as the client of `sockperf throughput` counted them."""
    match = re.search(r"Total of (\d+) messages sent in ([0-9.]+) sec", _COLOUR.sub("", text))
    if not match or float(match[2]) == 0:
        raise _missing("count of sent messages", text)
    return int(match[1]), float(match[2])


def sockperf_messages(text: str) -> int:
    """What the client of `sockperf ping-pong` or `under-load` sent in all, its warm-up included."""
    match = re.search(r"Total Run\].*SentMessages=(\d+)", _COLOUR.sub("", text))
    if not match or int(match[1]) == 0:
        raise _missing("count of messages", text)
    return int(match[1])


def sockperf_rate(text: str) -> float:
    """Messages that the client of `sockperf ping-pong` or `under-load` sent a second, of all of its time."""
    match = re.search(r"Total Run\] RunTime=([0-9.]+) sec;.*SentMessages=(\d+)", _COLOUR.sub("", text))
    if not match or float(match[1]) == 0:
        raise _missing("time and count of messages", text)
    return int(match[2]) / float(match[1])


def sockperf_received(text: str) -> int:
    """Messages that `sockperf server` got, which it says when it is interrupted. The few of the warm-up are in it."""
    match = re.search(r"Total (\d+) messages received and handled", _COLOUR.sub("", text))
    if not match:
        raise _missing("count of received messages", text)
    return int(match[1])


def vma_lat_received_rate(text: str) -> float:
    """Messages a second that the server of `vma_lat --test throughput --json` received."""
    try:
        return float(json.loads(text)["tests"][0]["servers"][0]["per_second"])
    except (ValueError, LookupError, TypeError) as error:
        raise _missing("rate of the server", text) from error


def vma_lat_half_round_trip(text: str) -> float:
    """The median in microseconds, from `vma_lat --test ping-pong --json`."""
    try:
        return float(json.loads(text)["tests"][0]["rtt_ns"]["p50"]) / 2000
    except (ValueError, LookupError, TypeError) as error:
        raise _missing("round trips", text) from error


def strace_calls(text: str, but: Collection[str] = ()) -> int:
    """All of `strace -c -U name,calls`, but those named."""
    calls = {name: int(count) for name, count in re.findall(r"^(\w+) +(\d+)$", text, re.MULTILINE)}
    if calls.pop("total", 0) == 0:
        raise _missing("system calls", text)
    return sum(count for name, count in calls.items() if name not in but)


def vma_dump_counts(text: str) -> dict[str, int]:
    """Packets "captured", "received" by its filter, and "dropped" by the programs, which vma_dump says at its end."""
    found = {what: int(number) for number, what in re.findall(r"^(\d+) packets (\w+)", text, re.MULTILINE)}
    if found.keys() != {"captured", "received", "dropped"}:
        raise _missing("counts of packets", text)
    return found


def iperf_bandwidth(text: str) -> float:
    """Gigabits a second that the receiver got, from `iperf3 --json`."""
    try:
        report = json.loads(text)
    except json.JSONDecodeError as error:
        raise _missing("JSON", text) from error
    if "error" in report:
        raise ParseError(f"iperf3: {report['error']}")
    try:
        return float(report["end"]["sum_received"]["bits_per_second"]) / 1e9
    except KeyError as error:
        raise ParseError(f"iperf3 gave no sum: {error}") from error


def redis_rates(text: str) -> dict[str, float]:
    """Test name -> requests a second, from `redis-benchmark --csv`."""
    rows = [line for line in text.splitlines() if line.startswith('"')]
    rates = {row["test"]: float(row["rps"]) for row in csv.DictReader(rows)} if rows else {}
    if not rates:
        raise _missing("rates", text)
    return rates


def redis_latencies(text: str) -> dict[str, dict[str, float]]:
    """Test name -> p50 and p99 in milliseconds, from `redis-benchmark --csv` of redis 7."""
    rows = [line for line in text.splitlines() if line.startswith('"')]
    try:
        found = {row["test"]: {"p50": float(row["p50_latency_ms"]), "p99": float(row["p99_latency_ms"])} for row in csv.DictReader(rows)}
    except (KeyError, ValueError) as error:
        raise _missing("latencies", text) from error
    if not found:
        raise _missing("latencies", text)
    return found


def wrk_latencies(text: str) -> dict[str, float]:
    """p50 and p99 in microseconds, from `wrk --latency`."""
    unit = {"us": 1.0, "ms": 1e3, "s": 1e6}
    found = {f"p{percent}": float(value) * unit[suffix]
             for percent, value, suffix in re.findall(r"^\s+(50|99)%\s+([0-9.]+)(us|ms|s)\s*$", text, re.MULTILINE)}
    if found.keys() != {"p50", "p99"}:
        raise _missing("latencies", text)
    return found


def wrk_rate(text: str) -> float:
    """Requests a second; an error in any answer makes the run worthless and raises."""
    match = re.search(r"Requests/sec:\s+([0-9.]+)", text)
    if not match:
        raise _missing("rate", text)
    refused = re.search(r"Non-2xx or 3xx responses: \d+", text)
    broken = re.search(r"Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)", text)
    if refused:
        raise ParseError(refused[0])
    if broken and any(int(count) for count in broken.groups()):
        raise ParseError(broken[0])
    return float(match[1])


def pgbench_rate(text: str) -> float:
    """Transactions a second, connections made before; a failed one makes the run worthless and raises."""
    failed = re.search(r"number of failed transactions: (\d+)", text)
    match = re.search(r"tps = ([0-9.]+)", text)
    if not match or not failed:
        raise _missing("rate", text)
    if int(failed[1]):
        raise ParseError(failed[0])
    return float(match[1])


def smaps_rollup(text: str) -> dict[str, int]:
    """Field -> KiB, from /proc/PID/smaps_rollup."""
    fields = {name: int(kib) for name, kib in re.findall(r"^(\w+):\s+(\d+) kB$", text, re.MULTILINE)}
    if "Rss" not in fields or "Pss" not in fields:
        raise _missing("Rss and Pss", text)
    return fields


def json_line(text: str) -> dict[str, Any]:
    """The last line that is a JSON object: what our own small programs print."""
    for line in reversed(text.strip().splitlines()):
        if line.startswith("{"):
            try:
                value = json.loads(line)
            except json.JSONDecodeError:
                continue
            return dict(value)
    raise _missing("JSON line", text)
