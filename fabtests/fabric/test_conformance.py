# SPDX-License-Identifier: BSD-2-Clause
"""libfabric's own tests over the provider, where they are installed: run_fabtests.sh, and what it makes of their output."""

import pathlib
import re
import subprocess

import pytest

from lib import build, patience
from lib.fabtests import run as fabtests_run
from lib.fabtests.output import FAIL, NOT_RUN, PASS, Reader, Result
from lib.fabtests.table import Table, differences

SCRIPT = pathlib.Path(__file__).resolve().parents[1] / "run_fabtests.sh"
LIMIT = 600  # seconds: a group takes a minute

# ---- the tests themselves ----------------------------------------------------------------------------------------------


@pytest.mark.skipif(build.sanitized(), reason="libfabric's tests are not linked with a sanitizer's runtime")
@pytest.mark.parametrize("group", ["unit", "short"])
@pytest.mark.parametrize("provider", fabtests_run.PROVIDERS)
def test_fabtests(run, provider, group):
    proc = run.start("fabtests", [SCRIPT, "-t", group, "-T", int(patience.seconds()), provider], env={"VMA_BUILD": str(build.build_dir())})
    proc.may_fail = True  # that it is skipped is no fault
    status = proc.wait(LIMIT)
    if status == fabtests_run.SKIPPED:
        pytest.skip(proc.stdout().strip().splitlines()[-1])
    assert status == 0, proc.stdout()


def test_without_fabtests():
    """One line says so, and the status that the check takes for skipped."""
    done = subprocess.run([SCRIPT], env={"PATH": "/usr/bin:/bin", "FABTESTS_PATH": "/nowhere"}, capture_output=True, text=True,
                          check=False, timeout=patience.seconds())
    assert done.returncode == fabtests_run.SKIPPED
    assert done.stderr == "" and re.fullmatch(r"libfabric's fabtests is not installed: .*/nowhere.*\n", done.stdout)


def test_help():
    done = subprocess.run([SCRIPT, "--help"], capture_output=True, text=True, check=True, timeout=patience.seconds())
    assert all(word in done.stdout for word in ("PROVIDER", "--groups", "--timeout", "--write", "FABTESTS_PATH", "VMA_BUILD"))


def test_the_table_has_reasons():
    table = Table.read(fabtests_run.EXPECTED)
    rows = [(key, row) for section in table.sections for key, row in section.rows.items()]
    assert {key[0] for key, _ in rows} == set(fabtests_run.PROVIDERS)
    for (provider, group, test), row in rows:
        said = [Result(test, row.outcome)]
        assert differences({test: row}, said) == [], f"{provider} {group}"
    assert table.text() == fabtests_run.EXPECTED.read_text()


def test_configurations_name_a_provider():
    named = [path for provider in fabtests_run.PROVIDERS for path in fabtests_run.configurations(provider)]
    assert sorted(named) == sorted(fabtests_run.CONFIGS.glob("*.test"))


# ---- reading what they print -------------------------------------------------------------------------------------------

NOT_OFFERED = "fi_getinfo(): common/shared.c:918, ret=-61 (No data available)"


def block(name, result, server="", client=""):
    lines = [f"- name:   {name}", "  timestamp: 20260101-000000+0000", f"  result: {result}", "  time:   3"]
    for side, said in (("server", server), ("client", client)):
        if said:
            lines += [f"  {side}_cmd: {name}", f"  {side}_stdout: |", *(f"    {line}" for line in said.splitlines())]
    return lines


def totals(passed, not_run, failed):
    return ["# ----", f"# Total Pass     {passed}", f"# Total Notrun/Excluded   {not_run}", f"# Total Fail    {failed}", "# ----"]


def read(lines, provider="vma"):
    reader = Reader(provider)
    results = [found for line in lines if (found := reader.feed(f"{line}\n"))]
    return results + ([last] if (last := reader.finish()) else []), reader


def test_outcomes():
    results, reader = read([
        *block('fi_msg -p "vma"', "Pass"),
        *block('fi_cq_data -e msg -p "vma"', "Notrun", NOT_OFFERED, NOT_OFFERED),
        "server finished",
        *block('fi_rdm -U -p "vma"', "Fail", "fi_send(): x.c:1, ret=-22 (Invalid argument)"),
        *block('fi_poll -t queue -p "vma"', "Excluded"),
        *totals(1, 2, 1)])
    assert [(r.name, r.outcome) for r in results] == [
        ("fi_msg", "pass"), ("fi_cq_data -e msg", "not run"), ("fi_rdm -U", "fail"), ("fi_poll -t queue", "excluded")]
    assert reader.whole and not reader.stray
    assert [(r.passed, r.failed, r.not_run) for r in results] == [(1, 0, 0), (0, 0, 1), (0, 1, 0), (0, 0, 1)]
    assert "  fi_send(): x.c:1, ret=-22 (Invalid argument)" in results[2].said and results[2].seconds == 3


def test_cut_short():
    results, reader = read(["ssh: not found", *block('fi_msg -p "vma"', "Pass")])
    assert len(results) == 1 and not reader.whole and reader.stray == ["ssh: not found"]
    assert not read([*block('fi_msg -p "vma"', "Pass"), *totals(2, 0, 0)])[1].whole  # one was not read


@pytest.mark.parametrize("server, client, outcome", [
    (NOT_OFFERED, "ft_sock_recv(): common/shared.c:4365, ret=-107 (Transport endpoint is not connected)", NOT_RUN),
    ("[error] x.c:1: Provider disabled requested prefix mode.", "ft_sock_recv(): x.c:1, ret=-107 (not connected)", NOT_RUN),
    (NOT_OFFERED, "fi_cq_read(): x.c:1, ret=-5 (Input/output error)", FAIL),
    ("ft_sock_recv(): x.c:1, ret=-104 (Connection reset by peer)", "", FAIL),
    ("Segmentation fault", "", FAIL),
])
def test_one_side_sees_it_first(server, client, outcome):
    [result], reader = read([*block('fi_rdm_rma_trigger -p "vma"', "Fail", server, client), *totals(0, 0, 1)])
    assert result.outcome == outcome and reader.whole


def test_a_crash_is_no_lack():
    """The shell names it before the test."""
    crash = "/usr/bin/runfabtests.sh: line 552:   615 Segmentation fault      ${CLIENT_CMD} "
    results, reader = read([
        *block('fi_rdm -p "vma"', "Pass"), crash, *block('fi_flood -e msg -p "vma"', "Fail", NOT_OFFERED, NOT_OFFERED), *totals(1, 0, 1)])
    assert [r.outcome for r in results] == [PASS, FAIL] and results[1].said[0] == crash and not results[0].said and reader.whole


def ubertest(result, ends, cases=""):
    counts = "\n".join(f"{name}: {number}" for name, number in
                       zip(("Success", "Skipped", "ENODATA", "ENOSYS ", "EIO    ", "ERROR  "), ends))
    end = totals(1, 0, 0) if result.startswith("Pass") else totals(0, 0, 1)
    return read([*block("fi_ubertest", result, "ready", f"{cases}\n{counts}"), *end])


@pytest.mark.parametrize("ends, outcome, counts", [
    ((12, 0, 0, 0, 0, 0), "pass 12/12", (12, 0, 0)),
    ((12, 3, 5, 0, 0, 0), "pass 12/20", (12, 0, 8)),
    ((12, 0, 0, 1, 1, 2), "fail 12/16", (12, 4, 0)),
    ((0, 0, 0, 0, 0, 0), "fail", (0, 1, 0)),
])
def test_ubertest_counts_cases(ends, outcome, counts):
    [result], reader = ubertest("Pass [1/2]" if outcome.startswith("pass") else "Fail [1/2]", ends)
    assert (result.outcome, (result.passed, result.failed, result.not_run)) == (outcome, counts) and reader.whole


def test_ubertest_says_what_failed():
    good = "Starting test 1 / 2:\n[vma, first]\nlat 16 5\nEnding test 1 / 2, result: Success\n"
    bad = "Starting test 2 / 2:\n[vma, second]\nlat 16 5\nEnding test 2 / 2, result: Input/output error"
    [result], _ = ubertest("Fail [1/2]", (1, 0, 0, 0, 1, 0), good + bad)
    assert any("second" in line for line in result.said) and not any("first" in line for line in result.said)


# ---- comparing -----------------------------------------------------------------------------------------------------------

TEXT = """# head
vma | unit | fi_eq_test | pass
vma | unit | fi_mr_test | not run | there is none
vma | complex | fi_ubertest a.test | pass 3/4 | one asks for more

# of a newer one
[libfabric >= 2.0]
vma | unit | fi_eq_test | fail | it asks for what the API does not promise
"""
OLD, NEW = (1, 17), (2, 6)


def compare(outcome, test="fi_eq_test", version=OLD, group="unit", text=TEXT):
    return differences(Table(text).tests("vma", group, version), [Result(test, outcome, ["what it said"])])


def test_as_expected():
    assert compare(PASS) == compare(NOT_RUN, "fi_mr_test") == compare(FAIL, version=NEW) == []
    assert compare("pass 3/4", "fi_ubertest a.test", group="complex") == []


@pytest.mark.parametrize("outcome, test, said", [
    (FAIL, "fi_eq_test", "fail, and the table says pass"),
    (NOT_RUN, "fi_eq_test", "not run, and the table says pass"),
    (PASS, "fi_mr_test", "pass, and the table says not run: update the table"),
    (PASS, "fi_new_test", "the table does not name it"),
])
def test_differences(outcome, test, said):
    [found] = compare(outcome, test)
    assert said in found and "what it said" in found and found.startswith(f"{test}: ")


def test_a_case_of_ubertest_more_or_less():
    assert "the table says pass 3/4" in compare("pass 2/4", "fi_ubertest a.test", group="complex")[0]
    assert "the table says pass 3/4" in compare("pass 4/4", "fi_ubertest a.test", group="complex")[0]


def test_versions():
    assert "the table says fail: update" in compare(PASS, version=NEW)[0]
    assert compare(NOT_RUN, "fi_mr_test", version=NEW) == []  # the common lines hold for all


@pytest.mark.parametrize("reason", ["", " | ? fi_getinfo(): ret=-61"])
def test_nothing_without_a_reason(reason):
    [found] = compare(NOT_RUN, "x", text=f"vma | unit | x | not run{reason}\n")
    assert "no reason" in found


@pytest.mark.parametrize("line, said", [
    ("vma | unit | x", "line 1"),
    ("vma | unit | x | good", "line 1"),
    ("vma | unit | x | pass\nvma | unit | x | pass", "line 2: a second line"),
    ("[fabtests 2]", "neither"),
])
def test_bad_tables(line, said):
    with pytest.raises(ValueError, match=said):
        Table(line)


def test_written():
    table = Table(TEXT)
    assert table.text() == TEXT
    table.update("vma", "unit", [Result("fi_eq_test", PASS), Result("fi_mr_test", NOT_RUN), Result("fi_new", NOT_RUN, [NOT_OFFERED])], OLD)
    table.update("vma", "unit", [Result("fi_eq_test", NOT_RUN, [NOT_OFFERED])], NEW)
    assert table.text() == TEXT.replace(
        "there is none\n", f"there is none\nvma | unit | fi_new | not run | ? {NOT_OFFERED}\n").replace(
        "fail | it asks for what the API does not promise", f"not run | ? {NOT_OFFERED}")
