"""What both libraries need and show: they go into any process, so they bring their C++ runtime and keep it to themselves."""

import ctypes
import os
import pathlib
import re
import subprocess

import pytest

from lib import patience

# glibc only, and always there. Everything else (libfabric, rdma-core, hwloc, libbpf, libmnl) is opened at run time where it exists.
ALLOWED = {"libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}
BOTH = ["libvma.so", "libvma-fi.so"]

BUILD = pathlib.Path(os.environ.get("VMA_BUILD", pathlib.Path(__file__).parents[1] / "build")).resolve()
LIBRARIES = BUILD / ".libs"


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=patience.seconds()).stdout


def exports(path):
    return {line.split()[-1].split("@")[0] for line in output("nm", "-D", "--defined-only", path).splitlines()}


@pytest.mark.parametrize("name", BOTH)
def test_needs_only_libc(name):
    needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", output("readelf", "-d", LIBRARIES / name)))
    assert needed <= ALLOWED


@pytest.mark.parametrize("name", BOTH)
def test_resolved_at_load(name):
    """No lazy binding: the first call of a function must not enter the dynamic linker in the data path."""
    assert "BIND_NOW" in output("readelf", "-d", LIBRARIES / name)


@pytest.mark.parametrize("name", BOTH)
def test_no_executable_stack(name):
    stack = re.search(r"GNU_STACK.*\n?.*", output("readelf", "-lW", LIBRARIES / name))
    assert stack and " RWE " not in stack[0]


def test_provider_exports_its_entry_point_only():
    assert exports(LIBRARIES / "libvma-fi.so") == {"fi_prov_ini"}


def test_preload_library_exports_no_cxx():
    assert not {name for name in exports(LIBRARIES / "libvma.so") if name.startswith(("_Z", "__cxa", "__gxx"))}


def test_provider_goes_to_the_kernel_itself():
    """Its own code calls none of what libvma.so has in libc's place, nor what core/kernel.hpp has: a program may have one of its own, with
    a lock that another thread holds while it waits for ours. libstdc++, which it carries, has some that it doesn't come to."""
    header = (pathlib.Path(__file__).parents[1] / "prov/vma/src/core/kernel.hpp").read_text()
    direct = set(re.findall(r"^inline \w+ (\w+)\(", header, re.MULTILINE))
    assert {"close", "read", "epoll_wait", "unlinkat"} <= direct
    objects = output("nm", "--undefined-only", BUILD / "libvmaprov_core.a").splitlines()
    wanted = {line.split()[-1].split("@")[0] for line in objects if line.startswith(" ")}
    assert "syscall" in wanted
    ours = (exports(LIBRARIES / "libvma.so") | {"opendir", "fdopendir", "readdir", "closedir"}) - {"syscall", "__register_atfork"}
    assert not wanted & (direct | ours)


@pytest.mark.parametrize("archive", ["libvmacompat_core.a", "libvmaprov_core.a"])
def test_nothing_is_made_under_a_lock_of_the_compiler(archive):
    """A function's static variable that is made at run time has a lock. If a thread has it while another one forks, the child waits for
    ever: no handler of fork() knows it."""
    objects = output("nm", "-AC", "--undefined-only", BUILD / archive).splitlines()
    assert objects
    assert not [line for line in objects if "__cxa_guard_acquire" in line]


def test_no_environment_of_a_stranger_is_read():
    """getenv() alone: a program may have more rights than who starts it, by capabilities of its file too, and secure_getenv() knows that."""
    objects = [path for part in ("prov/vma/src", "compat/src", "util") for path in (BUILD / part).rglob("*.o") if "test" not in path.parts]
    assert {path.parts[len(BUILD.parts)] for path in objects} == {"prov", "compat", "util"}
    lines = output("nm", "-A", "--undefined-only", *objects).splitlines()
    assert any(line.endswith(" secure_getenv") for line in lines)
    assert not [line for line in lines if line.split()[-1].split("@")[0] in ("getenv", "__libc_getenv")]


OLDEST = (2, 31)  # glibc; a build on it has what is asked for here
# Not called by these names there: inline functions of the headers, and a word that libstdc++ looks at if it is there.
OTHERWISE = {"stat", "lstat", "fstat", "fstatat", "__libc_single_threaded"}
# Asked for by the parts of libstdc++ and libgcc that the products carry, whose older versions do without.
RUNTIME = {"arc4random", "_dl_find_object"}
# What the headers of glibc 2.38 make of the functions that read numbers, as C++ asks for C23's.
RENAMED = re.compile(r"__isoc23_\w+")


@pytest.fixture(scope="module", name="came")
def versions_of_libc():
    """{name: the glibc that had it first}, by this machine's, which keeps each version of a symbol that there ever was."""
    first = {}
    for library in ("libc.so.6", "libm.so.6"):
        for line in output("objdump", "-T", loaded_as(library)).splitlines():
            if found := re.search(r"\bGLIBC_(\d+)\.(\d+)[.\d]*\)?\s+(\S+)$", line):
                version = int(found[1]), int(found[2])
                first[found[3]] = min(version, first.get(found[3], version))
    assert first["read"] < OLDEST < first["arc4random"]
    return first


def test_glibc_2_31_has_all_that_is_called(came):
    """What libvma.so has in libc's place is its own."""
    own = exports(LIBRARIES / "libvma.so")
    objects = [path for part in ("prov/vma/src", "compat/src", "util") for path in (BUILD / part).rglob("*.o") if "test" not in path.parts]
    called = {}
    for line in output("nm", "-A", "--undefined-only", *objects).splitlines():
        called.setdefault(line.split()[-1].split("@")[0], line.split()[0])
    assert "syscall" in called
    late = {name: where for name, where in called.items() if came.get(name, OLDEST) > OLDEST}
    assert not {name: where for name, where in late.items() if name not in OTHERWISE | own and not RENAMED.fullmatch(name)}


def needed_symbols(path):
    """{(name, its version)} of what is asked of other libraries at load time."""
    lines = output("readelf", "-W", "--dyn-syms", path).splitlines()
    return set(re.findall(r" UND (\w+)@([\w.]+)", "\n".join(lines)))


@pytest.mark.parametrize("name", BOTH)
def test_a_product_asks_for_no_newer_symbol_without_need(name, came):
    """A symbol of a later glibc than the oldest makes the product one for that glibc. It may be there for the version alone, which the
    linker gives to what moved to libc.so.6, or for the C++ runtime. What libvma.so wraps, and older ones lack, is looked up at run time."""
    needed = needed_symbols(LIBRARIES / name)
    assert not {symbol for symbol, version in needed if not version.startswith("GLIBC_")}, "no C++ runtime is asked for"
    versions = {symbol: tuple(map(int, version.removeprefix("GLIBC_").split(".")))[:2] for symbol, version in needed}
    assert versions["free"] < OLDEST
    late = {symbol: version for symbol, version in versions.items() if version > OLDEST}
    assert not {symbol: version for symbol, version in late.items()
                if came[symbol] > OLDEST and symbol not in OTHERWISE | RUNTIME and not RENAMED.fullmatch(symbol)}


def loaded_as(library):
    """Where this process has it from."""
    ctypes.CDLL(library)
    lines = pathlib.Path("/proc/self/maps").read_text().splitlines()
    return next(line.split(maxsplit=5)[5] for line in lines if line.endswith("/" + library))


def test_a_program_runs_over_the_preload_library():
    env = {**os.environ, "LD_PRELOAD": str(LIBRARIES / "libvma.so")}
    done = subprocess.run(["/bin/echo", "hello"], env=env, capture_output=True, text=True, check=True, timeout=patience.seconds())
    assert done.stdout == "hello\n"
    assert "cannot be preloaded" not in done.stderr


def test_libfabric_loads_the_provider():
    done = subprocess.run(
        ["fi_info", "-l"],
        env={**os.environ, "FI_PROVIDER_PATH": str(LIBRARIES), "FI_PROVIDER": "vma", "FI_LOG_LEVEL": "warn"},
        capture_output=True,
        text=True,
        check=False,
        timeout=patience.seconds(),
    )
    assert "undefined symbol" not in done.stdout + done.stderr
