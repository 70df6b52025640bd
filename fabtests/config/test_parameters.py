# SPDX-License-Identifier: BSD-2-Clause
"""Every variable that VMA has, against the facts of parameters.txt and profiles.txt: default, values, what a wrong one
is answered with, and that one that can do nothing says so. Old names, unknown names, and the limits that depend on each
other. The library only loads here; what the parameters do is tested where sockets are."""

import dataclasses
import os
import pathlib
import re
import subprocess
import sys

import pytest

from lib import build, patience

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(build.TOP / "contrib" / "checks"))

import man_params  # noqa: E402

OTHERS = {"VMA_STATS_FD_NUM"}  # of a profile, and of another table
HEADER = re.compile(r"VMA \w+: (?P<rest>.*\S)\s+\[(?P<name>VMA_\w+)\]$")


@dataclasses.dataclass(frozen=True)
class Fact:
    name: str
    kind: str
    default: str
    values: tuple  # words, or (least, most) of a number
    difference: str


def lines(name):
    for line in (HERE / name).read_text().splitlines():
        if line and not line.startswith("#"):
            yield line


def read_facts():
    for line in lines("parameters.txt"):
        fact, _, difference = line.partition(" : ")
        name, kind, default, *values = fact.split()
        yield Fact(name, kind, default, tuple(values), difference)


def read_profiles():
    """{names: {variable: value}}"""
    for line in lines("profiles.txt"):
        names, _, values = line.partition(":")
        pairs = (value.rstrip("*").split("=") for value in values.split())
        yield tuple(names.split()), {f"VMA_{name}": value for name, value in pairs}


FACTS = {fact.name: fact for fact in read_facts()}
PROFILES = dict(read_profiles())
ROWS = {row["name"]: row for row in man_params.read_table()}


def load(run, **env):
    """The log of a program that does nothing."""
    return run.run("true", [build.tool("true")], vma=True, env={"VMA_TRACELEVEL": "details", **env}).log().lines


def header(log):
    """{variable: value as shown}"""
    shown = {}
    for line in log:
        match = HEADER.search(line)
        if match and match["name"] in ROWS:
            label = re.match(r'"(.*)"', ROWS[match["name"]]["label"])[1]
            if match["rest"].startswith(label):
                shown[match["name"]] = match["rest"].removeprefix(label).strip()
            else:  # what is off may have another label
                other = re.match(r'"(.*)"', ROWS[match["name"]]["label_if_off"])[1]
                assert re.fullmatch(re.escape(other) + " +Disabled", match["rest"])
                shown[match["name"]] = "0"
    return shown


def as_shown(name, value):
    row = ROWS[name]
    if row["kind"] == "flag":
        return ("1", "0")[value == "0"] if "as_digit" in row else ("Enabled", "Disabled")[value == "0"]
    for word, number, _ in row["choices"]:
        if word == value.lower():
            return next(label for _, n, label in row["choices"] if n == number and label)
    return value


def warning_of(log, name):
    return [line for line in log if "VMA WARNING" in line and f"{name}=" in line]


def is_idle(row):
    return row.get("idle") == "true"


@pytest.mark.parametrize("name", FACTS)
def test_the_table_has_it(name):
    fact, row = FACTS[name], ROWS[name]
    words = [word for word, _, _ in row["choices"]]
    default = {"text": row["fallback_text"] or "-", "words": man_params.shown(row, row["fallback"])}.get(
        fact.kind, str(row["fallback"]))
    assert fact.kind == ("words" if words else row["kind"])
    if fact.default != default:
        assert fact.difference, f"the default is {default}, VMA's is {fact.default}"
    else:
        assert not fact.difference
    if words:
        assert set(fact.values) <= set(words)
    elif fact.kind == "number":
        least, most = fact.values
        assert least in ("-", str(row["min"]))
        assert most in ("-", str(row["max"]))


def test_no_difference_is_unexplained(run):
    log = load(run)
    shown = header(log)
    assert set(FACTS) <= set(shown)
    for fact in FACTS.values():
        if fact.name not in ("VMA_TRACELEVEL", "VMA_LOG_FILE", "VMA_SHM_DIR", "VMA_CONFIG_FILE", "VMA_STATS_SHMEM_DIR") and not fact.difference:
            assert shown[fact.name] == as_shown(fact.name, "" if fact.default == "-" else fact.default), fact.name
    assert not [line for line in log if "VMA WARNING" in line]


def test_what_is_out_of_range_is_warned_of(run):
    wrong = {name: "loud" if row["choices"] else str(row["max"] + 1) if row["max"] < 2**62 else "x"
             for name, row in ROWS.items() if row["kind"] == "number" and name != "VMA_TRACELEVEL"}
    wrong |= {name: "maybe" for name, row in ROWS.items() if row["kind"] == "flag"}
    log = load(run, **wrong)
    shown = header(log)
    for name, value in wrong.items():
        assert len(warning_of(log, name)) == 1, name
        assert f"{name}={value} is not valid (expected " in warning_of(log, name)[0]
        if name in FACTS and not FACTS[name].difference:
            assert shown[name] == as_shown(name, FACTS[name].default), name


@pytest.mark.parametrize("value", ["", "  ", "-2147483649", "99999999999999999999", "1e3", "%n%s", "0x10", "\x01", "9" * 5000])
def test_odd_values_do_no_harm(run, value):
    names = [name for name, row in ROWS.items() if row["kind"] != "text" and name != "VMA_TRACELEVEL"]
    log = load(run, **dict.fromkeys(names, value))
    assert len(header(log)) >= len(FACTS)


def test_the_limits_are_taken(run):
    for end in ("min", "max"):
        env = {name: str(row[end]) for name, row in ROWS.items()
               if row["kind"] == "number" and not row["choices"] and name != "VMA_LOG_DETAILS"}
        log = load(run, **env)
        shown = header(log)
        for name, value in env.items():
            bound_to_another = [line for line in warning_of(log, name) if "using" in line]
            assert shown[name] == value or bound_to_another or name == "VMA_CQ_AIM_INTERVAL_MSEC", name


def test_each_word_is_taken(run):
    choices = {name: row["choices"] for name, row in ROWS.items() if row["choices"] and name != "VMA_TRACELEVEL"}
    for i in range(max(map(len, choices.values()))):
        env = {name: list_[i % len(list_)][0].upper() for name, list_ in choices.items()}
        log = load(run, **env)
        assert not [line for line in log if "is not valid" in line]


def test_what_does_nothing_says_so(run):
    idle = {name: row for name, row in ROWS.items() if is_idle(row)}
    values = {name: row["fallback_text"] or "x" if row["kind"] == "text" else man_params.shown(row, row["fallback"])
              for name, row in idle.items()}
    log = load(run, **values)
    for name, row in idle.items():
        said = [line for line in log if f"VMA INFO: {name}: " in line]
        assert len(said) == 1 and row["text"] in said[0], name
    assert not [line for line in load(run) if "No effect here" in line]


def test_what_does_something_is_tested():
    tests = "".join(path.read_text() for root in ("fabtests", "compat/test") for path in (build.TOP / root).rglob("*")
                    if path.suffix in (".py", ".cpp") and path != pathlib.Path(__file__))
    tests += "VMA_LOG_COLORS"  # below
    untested = {name for name, row in ROWS.items()
                if not is_idle(row) and not re.search(rf"\b({name}|{row['field'].rpartition('::')[2]})\b", tests)}
    assert not untested, sorted(untested)


@pytest.mark.parametrize("name", [name for names in PROFILES for name in names])
def test_profiles(run, name):
    values = next(v for names, v in PROFILES.items() if name in names)
    log = load(run, VMA_SPEC=name.upper())
    shown = header(log)
    assert not [line for line in log if "VMA WARNING" in line]
    for variable, value in values.items():
        if variable not in OTHERS and variable != "VMA_TRACELEVEL":
            assert shown[variable] == as_shown(variable, value), variable
    ours = {"VMA_SPEC", "VMA_TRACELEVEL", "VMA_LOG_FILE", "VMA_LIFT_AFTER", "VMA_LIFT_AT_CONNECT", "VMA_SHM_DIR", "VMA_CONFIG_FILE", "VMA_STATS_SHMEM_DIR"}
    changed = {line.rpartition("[")[2][:-1] for line in log if HEADER.search(line) and "VMA INFO" in line}
    assert changed - ours <= set(values)


def test_a_profile_may_choose_the_level(run):
    env = {"VMA_SPEC": "7750", "VMA_TRACELEVEL": ""}
    assert run.run("true", [build.tool("true")], vma=True, env=env).log().lines == []


def test_an_unknown_profile_is_none(run):
    log = load(run, VMA_SPEC="turbo")
    assert header(log)["VMA_SPEC"] == "NONE"
    assert len(warning_of(log, "VMA_SPEC")) == 1


def test_a_variable_overrides_its_profile(run):
    shown = header(load(run, VMA_SPEC="latency", VMA_RX_POLL="7", VMA_INTERNAL_THREAD_AFFINITY="-1"))
    assert shown["VMA_RX_POLL"] == "7" and shown["VMA_INTERNAL_THREAD_AFFINITY"] == "-1"


@pytest.mark.parametrize("old, value, new, shown", [
    ("VMA_RX_POLL_OS_RATIO", "33", "VMA_RX_UDP_POLL_OS_RATIO", "33"),
    ("VMA_RX_SKIP_OS", "34", "VMA_RX_UDP_POLL_OS_RATIO", "34"),
    ("VMA_SELECT_POLL_OS_FORCE", "1", "VMA_SELECT_POLL_OS_RATIO", "1"),
    ("VMA_SELECT_POLL_OS_FORCE", "1", "VMA_SELECT_SKIP_OS", "1"),
    ("VMA_CQ_DRAIN_WCE_MAX", "35", "VMA_PROGRESS_ENGINE_WCE_MAX", "35"),
    ("VMA_UC_OFFLOAD", "0", "VMA_OFFLOADED_SOCKETS", "Disabled"),
    ("VMA_TX_OFFLOAD", "0", "VMA_OFFLOADED_SOCKETS", "Disabled"),
    ("VMA_RX_OFFLOAD", "0", "VMA_OFFLOADED_SOCKETS", "Disabled"),
    ("VMA_RX_SOCKET_MAX", "512", "VMA_RX_BYTES_MIN", "1048576"),
    ("VMA_SKIP_OS_CALL", "36", "VMA_SELECT_SKIP_OS", "36"),
])
def test_old_names(run, old, value, new, shown):
    log = load(run, **{old: value})
    assert header(log)[new] == shown
    assert [line for line in log if f"VMA WARNING: {old}={value} is an old name's: taken for {new}=" in line]
    log = load(run, **{old: value, new: "1"})
    assert header(log)[new] == as_shown(new, "1")
    assert [line for line in log if f"{old}={value} is an old name's, and not looked at: {new} is set" in line]


def test_an_old_name_may_be_wrong_too(run):
    log = load(run, VMA_RX_SKIP_OS="-3", VMA_SELECT_POLL_OS_FORCE="0")
    assert header(log)["VMA_RX_UDP_POLL_OS_RATIO"] == "100"
    assert len(warning_of(log, "VMA_RX_UDP_POLL_OS_RATIO")) == 2  # taken for, and not valid
    assert [line for line in log if "VMA_SELECT_POLL_OS_FORCE=0 is an old name's, and changes nothing" in line]


def test_names_that_mean_nothing_any_more(run):
    gone = ["HUGETBL", "TX_BLOCK", "TX_IP_CHECKSUM", "CHECKSUM", "TX_DROP_MODE", "RX_DRAIN_CQ", "SELECT_IB_INTR", "IGMP",
            "FORCE_QP_MC_ATTACH", "QP_LOGIC", "IPERF"]
    log = load(run, **{f"VMA_{name}": "1" for name in gone})
    page = build.TOP.joinpath("man/libvma.7").read_text()
    for name in gone:
        assert f"VMA_{name}" in page, name
        assert len([line for line in log if f"VMA WARNING: VMA_{name}=1 is not looked at: " in line]) == 1
    assert any("VMA_HUGETBL" in line and "no longer supported" in line for line in log)


def test_names_that_later_releases_pass_over(run):
    """They were swallowed without a word."""
    silent = ["IPOIB", "TSO", "TX_BUF_SIZE", "RX_SW_CSUM", "INTERNAL_THREAD_TCP_TIMER_HANDLING",
              "RX_UDP_HW_TS_CONVERSION", "SUPPRESS_IGMP_WARNING", "TX_BACKLOG_MAX", "MAX_INLINE"]
    log = load(run, **{f"VMA_{name}": "1" for name in silent})
    assert not [line for line in log if "VMA WARNING" in line]
    page = build.TOP.joinpath("man/libvma.7").read_text()
    for name in silent:
        assert len([line for line in log if f"VMA INFO: VMA_{name}=1 is not looked at: " in line]) == 1, name
        assert f"VMA_{name}" in page, name


@pytest.mark.parametrize("name, meant", [
    ("VMA_RX_POL", "VMA_RX_POLL"),
    ("VMA_SELCET_POLL", "VMA_SELECT_POLL"),
    ("VMA_TRACE_LEVEL", "VMA_TRACELEVEL"),
    ("VMA_OFFLOAD_SOCKETS", "VMA_OFFLOADED_SOCKETS"),
    ("VMA_CONFIG_FILES", "VMA_CONFIG_FILE"),
    ("VMA_SPECS", "VMA_SPEC"),
    ("VMA_SOMETHING_ELSE_ALTOGETHER", None),
])
def test_unknown_names(run, name, meant):
    said = [line for line in load(run, **{name: "1"}) if f"{name} is no parameter of this library" in line]
    assert len(said) == 1
    assert ("meant" in said[0]) == (meant is not None)
    assert meant is None or f"is {meant} meant?" in said[0]


def test_names_that_are_none_of_ours(run):
    log = load(run, VMA_BUILD="x", VMA_TEST_SEED="1", VMA_SIM_STORE="x", FI_VMA_DEVICE="local", vma_rx_poll="1",
               MY_VMA_THING="1", VMA_="", VMALLOC="1")
    assert not [line for line in log if "VMA WARNING" in line]


def test_many_unknown_names(run):
    log = load(run, **{f"VMA_NOBODY_KNOWS_{i}": "1" for i in range(60)}, **{"VMA_" + "X" * 3000: "1"})
    assert len([line for line in log if "is no parameter of this library" in line]) == 16
    assert any("44 more variables" in line for line in log)


@pytest.mark.parametrize("env, shown, expected", [
    ({"VMA_TX_WRE": "100"}, ("VMA_TX_WRE", "128"), "at least 128, twice VMA_TX_WRE_BATCHING"),
    ({"VMA_RX_WRE": "100"}, ("VMA_RX_WRE", "128"), "at least 128, twice VMA_RX_WRE_BATCHING"),
    ({"VMA_QP_COMPENSATION_LEVEL": "3"}, ("VMA_QP_COMPENSATION_LEVEL", "64"), "at least 64, as much as VMA_RX_WRE_BATCHING"),
    ({"VMA_CQ_MODERATION_COUNT": "9000"}, ("VMA_CQ_MODERATION_COUNT", "8000"), "at most 8000, half of VMA_RX_WRE"),
    ({"VMA_CQ_AIM_MAX_COUNT": "9000"}, ("VMA_CQ_AIM_MAX_COUNT", "8000"), "at most 8000, half of VMA_RX_WRE"),
    ({"VMA_TCP_TIMER_RESOLUTION_MSEC": "5"}, ("VMA_TCP_TIMER_RESOLUTION_MSEC", "10"),
     "at least 10, as much as VMA_TIMER_RESOLUTION_MSEC"),
])
def test_limits_that_depend_on_another(run, env, shown, expected):
    log = load(run, **env)
    assert header(log)[shown[0]] == shown[1]
    assert len(warning_of(log, shown[0])) == 1 and f"(expected {expected})" in warning_of(log, shown[0])[0]


@pytest.mark.parametrize("value, colours", [("1", True), ("0", False), ("", True)])
def test_colours_are_a_terminals(run, value, colours):
    ours, its = os.openpty()
    env = run.environment(True, "default", "true", {"VMA_LOG_FILE": "", "VMA_LOG_COLORS": value, "VMA_RX_POLL": "x",
                                                    "VMA_TRACELEVEL": "info"})  # nobody reads before it ends
    subprocess.run([build.tool("true")], env=env, stderr=its, check=True, timeout=patience.seconds())
    os.close(its)
    text = b"".join(iter(lambda: read_terminal(ours), b"")).decode()
    os.close(ours)
    warning = next(line for line in text.splitlines() if "VMA WARNING" in line)
    assert warning.startswith("\x1b[0;31m") == warning.endswith("\x1b[0m") == colours
    assert not [line for line in load(run, VMA_LOG_COLORS="1") if "\x1b" in line]


def read_terminal(fd):
    try:
        return os.read(fd, 65536)
    except OSError:  # nobody has the other end any more
        return b""


def test_polling_for_ever_needs_no_moderation(run):
    shown = header(load(run, VMA_RX_POLL="-1"))
    assert shown["VMA_CQ_MODERATION_ENABLE"] == "Disabled" and shown["VMA_CQ_AIM_INTERVAL_MSEC"] == "0"


def test_no_congestion_control_is_refused(run):
    log = load(run, VMA_TCP_CC_ALGO="2")
    assert header(log)["VMA_TCP_CC_ALGO"] == "1 (Cubic)"
    assert [line for line in log if "VMA_TCP_CC_ALGO=2 is not to be had" in line]
