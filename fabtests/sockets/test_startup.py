# SPDX-License-Identifier: BSD-2-Clause
"""What the library costs, and says in, a program that has no socket, as where /etc/ld.so.preload brings it into all (here: the loader's own
--preload, which is no variable either). Counted, not timed: system calls and page faults, beside those of an empty library, as the kernel, the loader and
libc have their share in them; and pages that the loader writes, which the file says. doc/startup.md."""

import os
import re
import subprocess

import pytest

from lib import build, limits, patience

pytestmark = pytest.mark.alone

LOADER = "/lib64/ld-linux-x86-64.so.2"
HEADER = "VMA_VERSION"
PAGE = 4096
MOST_CALLS, MOST_FAULTS = 9, 14  # of the library's own doing, on any machine: they were 6, and 7 to 9
MOST_PAGES = 3


@pytest.fixture(autouse=True)
def plain():
    if build.sanitized():
        pytest.skip("a sanitizer's runtime has calls and pages of its own")
    if not os.path.exists(LOADER):
        pytest.skip(f"{LOADER} is not there: another architecture's loader has another name")


def library():
    return build.provider_dir() / "libvma.so"


def said(argv, **variables):
    """On standard output and standard error, with no variable but these."""
    done = subprocess.run([str(word) for word in argv], env=variables, capture_output=True, text=True, timeout=patience.seconds(), check=True)
    return done.stdout + done.stderr


def preloaded(file, *argv):
    return [LOADER, "--preload", file, *argv]


def unasked(*argv):
    return preloaded(library(), *argv)


@pytest.fixture
def empty(tmp_path):
    """A library in which there is nothing, which is what any costs."""
    subprocess.run(["gcc", "-shared", "-x", "c", "-o", tmp_path / "empty.so", os.devnull], check=True)
    return tmp_path / "empty.so"


def test_says_nothing_unasked():
    assert said(unasked("/bin/echo", "a")) == "a\n"
    assert said(unasked("/bin/echo", "a"), LD_PRELOAD="/lib/x86_64-linux-gnu/libm.so.6") == "a\n"


def test_says_what_it_is_where_it_is_asked():
    assert HEADER in said(unasked("/bin/true"), VMA_TRACELEVEL="info")
    assert HEADER in said(unasked("/bin/true"), VMA_RX_POLL="0")
    assert HEADER in said(["/bin/true"], LD_PRELOAD=str(library()))
    assert "VMA_RX_POLL=x is not valid" in said(unasked("/bin/true"), VMA_RX_POLL="x")


def test_says_what_it_is_where_it_is_linked(tmp_path):
    source, program = tmp_path / "linked.c", tmp_path / "linked"
    source.write_text("int main(void) { return 0; }\n")
    subprocess.run(["gcc", "-o", program, source, "-Wl,--no-as-needed", library(), f"-Wl,-rpath,{build.provider_dir()}"], check=True)
    assert HEADER in said([program])


def test_system_calls(tmp_path, empty):
    def calls(*argv):
        trace = tmp_path / "trace"
        subprocess.run(["strace", "-f", "-o", trace, *map(str, argv)], env={}, stderr=subprocess.PIPE, check=True, timeout=patience.seconds())
        return sum(1 for line in trace.read_text().splitlines() if "(" in line)

    without = calls(LOADER, "/bin/true")
    more, least = (calls(*preloaded(file, "/bin/true")) - without for file in (library(), empty))
    print(f"{more} system calls more, {least} with an empty library")
    assert 0 < least <= more <= least + MOST_CALLS


def test_pages_that_the_loader_writes():
    """Each is a fault and a copy in each program that starts: a constant table of pointers is many."""
    listed = subprocess.run(["readelf", "-rW", library()], capture_output=True, text=True, check=True).stdout
    pages = {int(match[1], 16) // PAGE for match in re.finditer(r"^([0-9a-f]{12,16}) ", listed, re.MULTILINE)}
    print(f"{len(pages)} pages")
    assert 0 < len(pages) <= MOST_PAGES


def test_page_faults(empty):
    """The fewest of some starts: where the file is not in the page cache yet there are more."""
    def faults(*argv):
        child = os.posix_spawn(str(argv[0]), [str(word) for word in argv], {})
        _, status, used = os.wait4(child, 0)
        assert status == 0
        return used.ru_minflt

    def fewest(*argv):
        return min(faults(*argv) for _ in range(5))

    with limits.without_huge_pages():
        without, ours, none = (fewest(*argv) for argv in ([LOADER, "/bin/true"], *(preloaded(file, "/bin/true") for file in (library(), empty))))
    more, least = ours - without, none - without
    print(f"{more} page faults more, {least} with an empty library")
    assert 0 < least <= more <= least + MOST_FAULTS
