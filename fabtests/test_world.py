# SPDX-License-Identifier: BSD-2-Clause
"""lib/places/world.py itself: nothing is common to two worlds, and nothing of one outlives it."""

import os
import pathlib
import signal
import socket
import subprocess
import sys

import pytest

from lib import build, patience

WORLD = [sys.executable, "-B", pathlib.Path(__file__).parent / "lib" / "places" / "world.py"]


def start(*command, **options):
    return subprocess.Popen([*WORLD, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


@pytest.fixture(name="ask", scope="module")
def asked():
    """ask(script): what a shell in a world prints."""

    def ask(script, **options):
        with start("sh", "-c", script, **options) as world:
            said, complaints = world.communicate(timeout=patience.seconds())
            assert (world.returncode, complaints) == (0, ""), complaints
            return said

    if "no world" in start("true").communicate(timeout=patience.seconds())[1]:
        pytest.skip("needs root, or a user namespace")
    return ask


def test_its_processes_are_counted_from_the_first(ask):
    own, *all_of_them = ask("echo $$; ls /proc | grep '^[0-9]'").split()
    assert int(own) < 10 and set(all_of_them) >= {"1", own} and len(all_of_them) < 10


def test_its_ports_are_nobody_elses(ask):
    with socket.create_server(("127.0.0.1", 0)) as here:
        port = here.getsockname()[1]
        program = f"import socket; print(*(socket.create_server((a, {port}), family=f).getsockname()[0] for a, f in (('127.0.0.1', 2), ('::1', 10))))"
        assert ask(f'{sys.executable} -c "{program}"').split() == ["127.0.0.1", "::1"]


def test_it_has_interfaces(ask):
    names = {"lo", "eth0", "nowhere"} if os.geteuid() == 0 else {"lo"}
    assert os.geteuid() != 0 or set(ask("ls /sys/class/net").split()) >= names
    assert {line.split()[1] for line in ask("ip -o addr").splitlines()} == names


@pytest.mark.parametrize("folder", ["/tmp", "/var/tmp", "/dev/shm", "/run"])
def test_its_files_are_nobody_elses(ask, folder):
    name = f"{folder}/fabtests-world-test-{os.getpid()}"
    assert ask(f"touch {name} && ls {name} && stat -c %a {folder}").split() == [name, "755" if folder == "/run" else "1777"]
    assert not os.path.exists(name)


def test_the_build_is_seen_where_it_is(ask, tmp_path):
    """Below a folder that is covered, too."""
    (tmp_path / "made").write_text("it\n", encoding="ascii")
    assert ask(f"cat {tmp_path}/made; test -e {build.libvma()}", env={**os.environ, "VMA_BUILD": str(tmp_path)}) == "it\n"
    assert ask(f"ls {build.TOP}/configure.ac").strip()


def test_system_v_memory_is_nobody_elses(ask):
    assert len(ask("ipcmk -M 4096 >/dev/null; ipcs -m").strip().splitlines()) == 3  # two lines of headings
    assert len(ask("ipcs -m").strip().splitlines()) == 2


def test_what_is_left_ends_with_it(ask):
    """A process in a session of its own holds the pipe, which ends with it."""
    with start("sh", "-c", "setsid sleep 1000 & echo begun") as world:
        said, _ = world.communicate(timeout=patience.seconds())
    assert (said, world.returncode) == ("begun\n", 0)


def test_exit_status(ask):
    for script, status in (("exit 5", 5), ("kill -KILL $$", 128 + signal.SIGKILL)):
        with start("sh", "-c", script) as world:
            assert world.wait(patience.seconds()) == status


WAITS = """
import signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
print("begun", flush=True)
signal.sigwait({signal.SIGINT})
print("interrupted", flush=True)
sys.exit(3)
"""


def test_an_interrupt_reaches_the_command(ask):
    with start(sys.executable, "-c", WAITS) as world:
        assert world.stdout.readline() == "begun\n"
        world.send_signal(signal.SIGINT)
        assert (world.stdout.read(), world.wait(patience.seconds())) == ("interrupted\n", 3)


def test_it_ends_with_who_started_it(ask, tmp_path):
    with start("sh", "-c", "echo begun; exec sleep 1000", env={**os.environ, "TMPDIR": str(tmp_path)}) as world:  # as it tidies nothing up
        assert world.stdout.readline() == "begun\n"
        world.kill()
        assert world.stdout.read() == ""  # nobody has the pipe any more
