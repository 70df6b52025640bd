# SPDX-License-Identifier: BSD-2-Clause
"""Where the build under test is, and what of it the tests use. Nothing here builds anything."""

import functools
import os
import pathlib
import re
import shutil
import subprocess

import pytest

TOP = pathlib.Path(__file__).resolve().parents[2]


# Without it sockperf ends with an error when there are more than 600,000 round trips a second.
SOCKPERF_MANY = ("--mps", 5_000_000)


@functools.lru_cache(maxsize=None)
def build_dir() -> pathlib.Path:
    """The build directory: $VMA_BUILD, else build/ beside the sources, else the sources themselves."""
    named = os.environ.get("VMA_BUILD")
    candidates = [pathlib.Path(named)] if named else [TOP / "build", TOP]
    for place in candidates:
        if (place / ".libs" / "libvma.so").exists():
            return place.resolve()
    pytest.exit(f"no build found in {', '.join(map(str, candidates))}: build first, or set VMA_BUILD", 2)


@functools.lru_cache(maxsize=None)
def libvma() -> pathlib.Path:
    return build_dir() / ".libs" / "libvma.so"


@functools.lru_cache(maxsize=None)
def provider_dir() -> pathlib.Path:
    """A value for FI_PROVIDER_PATH."""
    return build_dir() / ".libs"


@functools.lru_cache(maxsize=None)
def preload() -> str:
    """Value of LD_PRELOAD: a sanitizer's runtime must stand before a library that was built with it."""
    needed = subprocess.run(["ldd", libvma()], capture_output=True, text=True, check=True).stdout
    runtimes = [line.split("=>")[1].split()[0]
                for line in needed.splitlines() if "libasan" in line or "libtsan" in line]
    return " ".join(runtimes + [str(libvma())])


ERRNO_WATCH = "sockets/programs/errno_watch.so"


def preload_watched() -> str:
    """The same, and a program ends where a call succeeds and changes errno."""
    *runtimes, library = preload().split()
    return " ".join([*runtimes, str(program(ERRNO_WATCH)), library])


@functools.lru_cache(maxsize=None)
def intercepts() -> bool:
    """False of a library that is only a skeleton."""
    symbols = subprocess.run(["nm", "-D", "--defined-only", libvma()], capture_output=True, text=True, check=True)
    return any(line.split()[-1].split("@")[0] == "socket" for line in symbols.stdout.splitlines())


@functools.lru_cache(maxsize=None)
def sanitized() -> bool:
    return " " in preload()


@functools.lru_cache(maxsize=None)
def rules_file() -> pathlib.Path:
    """The libvma.conf that the libraries read unless they are told of another."""
    defined = (build_dir() / "config.h").read_text(encoding="utf-8")
    return pathlib.Path(re.search(r'^#define LIBVMA_CONF "(.+)"$', defined, re.MULTILINE)[1])


def program(name: str) -> str:
    """A test program of ours, by its path under fabtests/ (without .cpp)."""
    path = build_dir() / "fabtests" / name
    if not path.exists():
        pytest.fail(f"{path} is not built: run `make check` or `make fabtests-programs` first", pytrace=False)
    return str(path)


def tool(name: str) -> str:
    """A program of the system; the test is skipped, with the reason, when the machine lacks it."""
    path = shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin")
    if not path:
        pytest.skip(f"{name} is not installed")
    return path
