# SPDX-License-Identifier: BSD-2-Clause
"""Sockets before main() and after it, in handlers of fork(), in libraries that come and go, beside other libraries' wrappers: what a
program says that uses them at each of these moments is the same with the library and without."""

import difflib
import re

import pytest

from lib import build, suite

pytestmark = pytest.mark.skipif(build.sanitized(), reason="a sanitizer's runtime is not there before all constructors")

PROGRAM = "posix/programs/order/order"
OWN = "posix/programs/order/own"
ENDING = "posix/programs/order/ending"
LOADING = "posix/programs/order/loading"
NUMBERS = "posix/programs/order/numbers"
LIMIT = 200  # seconds for the three runs


def library(name):
    return build.build_dir() / "fabtests/posix/programs/order" / f"{name}.so"


def compare(run, places, *args, program=PROGRAM, before=(), behind=()):
    """`before`, `behind`: what else is preloaded, in front of ours and after it."""
    procs = {}
    for mode, place in places.items():
        vma, spec = suite.MODES[mode]
        ours = [build.preload()] if vma else []
        order = " ".join(str(one) for one in (*before, *ours, *behind))
        env = {"LD_PRELOAD": order} | ({"FABTEST_LIFT": "1"} if vma else {})
        procs[mode] = run.start(mode, [build.program(program), *args], vma=vma, mode=spec, timeout=LIMIT,
                                netns=place.file, env=env)
    for proc in procs.values():
        proc.ok()
    wanted = procs.pop("kernel").stdout().splitlines()
    for mode, proc in procs.items():
        found = list(difflib.unified_diff(wanted, proc.stdout().splitlines(), "kernel", mode, lineterm=""))
        assert not found, "\n".join(found)
        assert proc.log().accelerated() > 0, f"{mode}: no connection was accelerated"
    return wanted


def test_order(run, places):
    said = compare(run, places, library("plugin"))
    for stage in ("before all constructors", "constructor of a needed library", "handlers of main: prepare", "destructor of a plugin",
                  "atexit", "destructor of a needed library"):
        assert f"{stage}: a new connection" in said, f"{stage} is missing"


@pytest.mark.parametrize("first", ["ours", "theirs"])
def test_with_another_wrapper(run, places, first):
    wrapper = [library("wrapper")]
    said = compare(run, places, library("plugin"), **({"behind": wrapper} if first == "ours" else {"before": wrapper}))
    assert "the other library was called" in said


def test_plugin_in_a_namespace_of_its_own(run, places):
    """No library is preloaded there: what it makes is the kernel's."""
    compare(run, places, "--apart", library("stage"))


def test_functions_of_the_programs_own(run, places):
    """Nobody comes to them with a lock of ours: the program holds one of its own while it closes a connection."""
    compare(run, places, program=OWN)


@pytest.mark.parametrize("by", [[], ["datagrams"]], ids=["stream", "datagrams"])
def test_constructor_that_talks_to_another_thread(run, places, by):
    """The provider is loaded when that thread's first socket wants it: not before the constructor is done, for which no call waits.
    (Where latency is asked for a connection has it already, and a datagram's call waits.)"""
    compare(run, places, library("talker"), *by, program=LOADING)
    for proc in run.procs:
        vma, spec = suite.MODES[proc.name]
        if vma and not (by and spec == "latency"):
            debug = [line for line in proc.log().lines if "VMA DEBUG: " in line]
            assert debug and not any("a library is not loaded yet" in line for line in debug), proc.name


@pytest.mark.parametrize("call", ["dup", "fcntl", "open", "socket", "eventfd", "dup2", "close", "closefrom"])
def test_numbers_of_a_program_of_one_thread(run, places, call):
    """The linker has some while it loads the provider, and the program calls on: it meets none of them."""
    compare(run, places, call, program=NUMBERS)


@pytest.mark.parametrize("spec", ["default", "latency"])
def test_end_while_the_provider_is_opened(run, spec):
    """Every object's constructors run once: the provider, which looks whether libfabric has called it, comes to no object that exit()
    has done with, as the linker would take that for one that it has never set up."""
    linker = run.work / "linker"
    proc = run.start("ends", [build.program(ENDING)], vma=True, mode=spec, timeout=LIMIT,
                     env={"FABTEST_LIFT": "1", "LD_DEBUG": "files", "LD_DEBUG_OUTPUT": str(linker)})
    proc.ok()
    assert proc.stdout().splitlines() == ["ends while the provider is being opened"]
    text = "".join(part.read_text() for part in run.work.glob("linker.*"))
    begun = re.findall(r"calling init: (\S+)", text[text.index("initialize program: " + str(build.program(ENDING))):])
    ended = re.findall(r"calling fini: (\S+)", text)
    assert str(build.libvma()) in ended
    assert str(build.libvma()) not in begun, begun
