# SPDX-License-Identifier: BSD-2-Clause
"""vma_stats --live, in a terminal."""

import re
import signal
import subprocess
import termios

import pytest

from lib import build, patience
from lib.terminal import Terminal
from lib.vmastats import make_sample, program


@pytest.fixture
def live(folder):
    opened = []

    def start(*arguments, **how):
        opened.append(Terminal([program("vma_stats"), "--live", "-k", folder, *map(str, arguments)], **how))
        return opened[-1]
    yield start
    for terminal in opened:
        terminal.close()


def wait_for(terminal, *texts):
    return terminal.wait(lambda screen: all(text in screen for text in texts), " and ".join(texts))


def test_shows_sockets(folder, sample, live):
    """Each socket with its way, and for the kernel's the reason; rates once there are two looks."""
    terminal = live("-p", sample.pid, columns=200)
    screen = wait_for(terminal, "0.0.0.0:7003", "q quit")
    assert f"gen pid {sample.pid}" in screen and "3 sockets, 2 accelerated" in screen
    assert re.search(r"^ +14 udp .* 0\.0\.0\.0:7003 +- +local, user 33, introduced by vmad, at most 1\.2M B/s$", screen, re.M)
    assert re.search(r"^ +900 tcp .* kernel: SO_ZEROCOPY$", screen, re.M)
    assert "port wire" in screen and "7 lent of 16.4k, to send 2.0k free of 2.0k; TCP memory 50% free" in screen
    assert "epoll[17]" in screen and "poll 99.9%" in screen and "polls 93% of the time" in screen
    assert re.search(r"^ +14 udp +0 +0 +0 +0 +100\.0 ", screen, re.M)
    make_sample(folder, sample, "later")
    terminal.wait(lambda text: re.search(r"^ +14 udp +(15\.2k|1[0-5]\.\dk|\d{4}|\d\.\dk) ", text, re.M), "a rate")
    terminal.type("q")
    assert terminal.finish() == 0


def test_keys(sample, live):
    terminal = live("-p", sample.pid, columns=160)
    wait_for(terminal, "SO_ZEROCOPY")
    terminal.type("a")
    terminal.wait(lambda text: "shown: accelerated" in text and "SO_ZEROCOPY" not in text, "accelerated ones alone")
    terminal.type("a")
    terminal.wait(lambda text: "shown: kernel" in text and "0.0.0.0:7003" not in text, "the kernel's alone")
    terminal.type("a")
    wait_for(terminal, "shown: all", "0.0.0.0:7003")
    terminal.type("s")
    wait_for(terminal, "sorted by rx packets")
    terminal.type("r")
    wait_for(terminal, "reversed")
    terminal.type("/10.99")
    wait_for(terminal, "filter: 10.99_")
    terminal.type("\n")
    terminal.wait(lambda text: 'with "10.99"' in text and "SO_ZEROCOPY" not in text and "10.99.0.2:41000" in text, "a filter")
    terminal.type("p")
    wait_for(terminal, "[paused]")
    terminal.type("+")
    wait_for(terminal, "every 2 s")
    terminal.type("z")
    wait_for(terminal, "begin at zero")
    terminal.type("q")
    assert terminal.finish() == 0


def descriptors(screen):
    return [row.split()[0] for row in screen.splitlines() if re.match(r" +\d+ (tcp|udp)", row)]


def test_order(sample, live):
    terminal = live("-p", sample.pid, columns=160)
    terminal.wait(lambda screen: descriptors(screen) == ["14", "15", "900"], "order by descriptor")
    terminal.type("r")
    terminal.wait(lambda screen: descriptors(screen) == ["900", "15", "14"], "the reverse")
    terminal.type("rsssss")
    terminal.wait(lambda screen: "sorted by poll misses" in screen, "another order")


@pytest.mark.parametrize("lines, columns", [(1, 1), (2, 20), (5, 300), (60, 120)])
def test_resize(sample, live, lines, columns):
    terminal = live("-p", sample.pid)
    wait_for(terminal, "fd")
    terminal.resize(lines, columns)
    terminal.signal(signal.SIGWINCH)
    terminal.resize(40, 160)
    terminal.signal(signal.SIGWINCH)
    wait_for(terminal, "SO_ZEROCOPY", "q quit")
    terminal.type("q")
    assert terminal.finish() == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_restore(sample, live, number):
    """The terminal is as it was."""
    terminal = live("-p", sample.pid)
    wait_for(terminal, "q quit")
    assert termios.tcgetattr(terminal.fd)[3] & termios.ECHO == 0
    terminal.signal(number)
    terminal.read_all()
    assert termios.tcgetattr(terminal.fd)[3] & termios.ECHO != 0
    assert terminal.close() == 0


def test_interrupt_key(sample, live):
    terminal = live("-p", sample.pid)
    wait_for(terminal, "q quit")
    terminal.type("\x03")
    assert terminal.finish() == 0


def test_process_ends(sample, live):
    terminal = live("-p", sample.pid, "-F")
    wait_for(terminal, f"pid {sample.pid}")
    sample.kill()
    wait_for(terminal, "(ended)", "7003")


def test_waits_for_a_process(run, folder, live):
    terminal = live()
    wait_for(terminal, "waiting for one")
    proc = run.start("gen", ["sleep", "1000"])
    proc.killed = True
    make_sample(folder, proc)
    wait_for(terminal, f"gen pid {proc.pid}")


def test_next_process(run, folder, sample, live):
    other = run.start("other", ["sleep", "1000"])
    other.killed = True
    make_sample(folder, other)
    terminal = live("-p", sample.pid)
    wait_for(terminal, f"pid {sample.pid}")
    terminal.type("n")
    wait_for(terminal, f"pid {other.pid}")
    terminal.type("N")
    wait_for(terminal, f"pid {sample.pid}")


def test_no_terminal(folder, sample):
    done = subprocess.run([program("vma_stats"), "--live", "-k", folder], capture_output=True, text=True, timeout=patience.seconds(),
                          env={"TERM": "nothing-such"})
    assert done.returncode == 1 and "needs a terminal" in done.stderr


def test_hostile_file(folder, sample, live):
    """A file that changes to nonsense meanwhile."""
    terminal = live("-p", sample.pid, "-F")
    wait_for(terminal, f"pid {sample.pid}")
    whole = sample.file.read_bytes()
    for data in b"", whole[:200], b"\xff" * len(whole), whole[:64] + b"\xff" * (len(whole) - 64):
        sample.file.write_bytes(data)
        terminal.type("+-")
    sample.file.write_bytes(whole)
    wait_for(terminal, "7003")
    assert build.build_dir()
    terminal.type("q")
    assert terminal.finish() == 0
