# SPDX-License-Identifier: BSD-2-Clause
"""doc/guides/vma-manual.md has the examples of VMA's manual: each is run from the page as it is printed there, and shows
what the page shows. lib/manual/page.py says how the page marks them."""

import os
import re

import pytest

from lib import build, netns
from lib.manual import page
from lib.manual.desk import Desk

PAGE = build.TOP / "doc/guides/vma-manual.md"
SECTIONS = {section.title: section for section in page.read(PAGE)}
ENOUGH = 100  # packets: more than the first ones, which the kernel has


@pytest.fixture
def desk(run):
    host = netns.made(netns.Host)
    made = Desk(run, host)
    try:
        yield made
    finally:
        made.release()
        host.remove()


def do(terminal, block):
    """Types the commands of a block. Each ends well by itself, but for one that stays, or whose status is asked for next."""
    for number, command in enumerate(block.commands):
        if command.text:
            if terminal.count and terminal.ended() is None:
                terminal.interrupt()  # who reads has to, before he can type again
                terminal.wait_end()
            terminal.begin(command.text)
        terminal.wait_seen(command.seen)
        if command.interrupted:
            terminal.interrupt()
        is_last = number + 1 == len(block.commands)
        if is_last and "stays" in block.words:
            continue
        status = terminal.wait_end()
        is_asked = not is_last and block.commands[number + 1].text == "echo $?"
        assert status == 0 or is_asked or command.interrupted, f"{command.text}: status {status}\n{terminal.look()}"


def offloaded(files) -> int:
    """The most packets that passed the kernel by in one direction of a socket, of those in files of VMA_STATS_FILE."""
    found = re.findall(r"(?:Tx|Rx) Offload: \d+ / (\d+)", "".join(file.read_text() for file in files))
    return max(map(int, found), default=0)


def counts_on_processors(section) -> bool:
    return any("taskset -c 1" in block.text for block in section.runs)


@pytest.mark.parametrize("title", [pytest.param(title, marks=[pytest.mark.alone] * counts_on_processors(section))
                                   for title, section in SECTIONS.items() if section.runs])
def test_section(desk, title):
    section = SECTIONS[title]
    if os.cpu_count() < 2 and counts_on_processors(section):
        pytest.skip("one processor")
    for block in section.blocks:
        if block.kind != "console" and block.words:
            (desk.tmp / block.words[0]).write_text(block.text, encoding="utf-8")
    for number, block in enumerate(section.runs):
        terminal = desk.terminal(block.terminal)
        if block.commands[0].text and (terminal.count == 0 or terminal.ended() is not None):
            terminal.begin(f"export VMA_STATS_FILE=/tmp/.stats-{number}-%d" if "accelerated" in block.words
                           else "unset VMA_STATS_FILE")
            terminal.wait_end()
        do(terminal, block)
    desk.finish()
    for number, block in enumerate(section.runs):
        if "accelerated" in block.words:
            count = offloaded(desk.tmp.glob(f".stats-{number}-*"))
            assert count >= ENOUGH, f"line {block.line}: {count} packets past the kernel: {block.commands[-1].text}"


def test_what_is_not_run_has_a_reason():
    """The word is for what takes hardware or changes the machine: the page says which below its block."""
    text = PAGE.read_text(encoding="utf-8")
    blocks = [block for section in SECTIONS.values() for block in section.blocks if "not-run" in block.words]
    assert blocks
    for block in blocks:
        below = "\n".join(text.splitlines()[block.line:]).split("```", 1)[1]
        assert re.match(r"\n+Not run here: ", below), f"line {block.line}: no reason below it"


PROGRAMS = [block for section in SECTIONS.values() for block in section.blocks if block.kind == "c"]


@pytest.mark.parametrize("block", PROGRAMS, ids=lambda block: block.words[0])
def test_programs_have_no_warnings(run, tmp_path, block):
    source = tmp_path / block.words[0]
    source.write_text(block.text, encoding="utf-8")
    compiler = build.tool(os.environ.get("CC", "cc"))
    run.run("cc", [compiler, "-Wall", "-Wextra", "-Werror", "-O1", "-I", build.TOP / "include", "-fsyntax-only", source])


@pytest.mark.parametrize("line, text, alike", [
    ("N of N", "12  of -3.5", True), ("N of N", "12 of many", False), ("No. N", "No. 7", True), ("a (N%)", "a (7.25%)", True),
    ("VMA INFO: ... Fd=[N]", "VMA INFO: Fd=[3]", True), ("at ...", "attic", True), ("a ... b", "a b c", False), ("a+", "aa", False),
])
def test_what_a_line_of_the_page_stands_for(line, text, alike):
    assert (page.missing([line], f"before\n \x1b[2;35m{text}\x1b[0m\r\n") is None) == alike


def test_lines_come_in_order():
    assert page.missing(["one", "two"], "one\nother\ntwo\n") is None
    assert page.missing(["one", "two"], "two\none\n") == "two"
    assert page.missing(["one"], "one") == "one"  # of which more may come


def test_a_page_with_a_word_that_there_is_not(tmp_path):
    bad = tmp_path / "page.md"
    bad.write_text("# Title\n\n```console stay\n$ true\n```\n", encoding="utf-8")
    with pytest.raises(ValueError, match="line 3: console stay: there is no such word"):
        page.read(bad)
