# SPDX-License-Identifier: BSD-2-Clause
"""Every function that libvma.so exports, with every pointer bad: returns, errors, the errno that success leaves, and deaths are the
kernel's, in programs without sockets and with them, accelerated or not. The calls are a table, programs/bad_pointers/table.cpp."""

import pytest

from lib import build, pairing

PROGRAM = "sockets/programs/bad_pointers/bad_pointers"
PROCESSES = ["none", "epoll", "socket", "plain", "accelerated"]

# libc's own writes what is left of the time, and ends the process. What waits for a socket of ours leaves it, as the kernel does.
FORGIVEN = [f"{name}(64 b:fdset b:fdset b:fdset b:timeval) argument 5 read-only" for name in ("select", "__select")]

_reference = {}


def comparable(name, result):
    """What tells of no success says nothing by errno, which is that of a write within libc."""
    return result.split(", errno")[0] if result and "backtrace_symbols_fd" in name else result


def results(run, has, vma, stdin=None, env=None):
    proc = run.start(f"{has}-{'vma' if vma else 'kernel'}", [build.program(PROGRAM), has], vma=vma, mode="latency", stdin=stdin,
                     env=env, timeout=400)
    proc.may_fail = True
    status = proc.wait()
    lines = proc.stdout().splitlines()
    assert status == 0, f"status {status} after {lines[-1:]}\n{proc.stderr()}"
    return dict(line.rsplit(": ", 1) for line in lines), proc


def deadly(run):
    """The calls that end the process on the kernel: libc's own looks."""
    if "deadly" not in _reference:
        found, _ = results(run, "plain", False)
        _reference["deadly"] = [name for name, result in found.items() if result.startswith(("killed", "exit"))]
    return "\n".join(name.replace(", plain", ", accelerated") for name in _reference["deadly"]).encode()


def reference(run, has, stdin):
    if has not in _reference:
        _reference[has], _ = results(run, has, False, stdin)
    return _reference[has]


def test_the_table_is_whole(run):
    exported = {line.strip(" ;\n") for line in (build.TOP / "compat/libvma.map").read_text().split("global:")[1].split("local:")[0].splitlines()}
    named = set(run.run("names", [build.program(PROGRAM), "names"]).stdout().split())
    assert named == exported - {""}


@pytest.mark.parametrize("has", PROCESSES)
def test_as_the_kernel(run, has):
    if build.sanitized():
        pytest.skip("the sanitizer has handlers of SIGSEGV and SIGBUS of its own, and checks arguments before us")
    stdin = deadly(run) if has == "accelerated" else None
    wanted = reference(run, has, stdin)
    got, proc = results(run, has, True, stdin, {"FABTEST_LIFT": "1"} if has == "accelerated" else None)
    assert len(wanted) > (300 if has == "accelerated" else 900)
    if has == "accelerated":
        assert proc.log().accelerated() > 50
    differences = [f"{name}: {got.get(name)}, on the kernel {result}" for name, result in wanted.items()
                   if comparable(name, got.get(name)) != comparable(name, result) and name.split(",")[0] not in FORGIVEN]
    assert not differences, "\n".join(differences)
