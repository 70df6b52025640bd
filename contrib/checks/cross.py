#!/usr/bin/python3
"""Builds for another machine with Debian's cross compilers, and runs unit tests under QEMU's user mode.

`cross.py` builds both libraries for AArch64 in ./build-aarch64, and runs a list of unit tests; TEST... runs those named, as
`prov/vma/test/local/ring_test`. `--all` builds the tools as well, and runs every unit test, of which not all can pass by
QEMU. `--machine powerpc64le` builds the libraries only. doc/portability.md says what all that proves.

Headers are this machine's own, searched behind the compiler's: but for libc's, which that brings, they are the same on all. The few libraries
that a test or tool is linked with come as packages of the other architecture, by this machine's own apt, which keeps
state of its own below the build folder; nothing is installed. Exit status 77: they can't be had, and the last line says why.
"""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
MACHINES = {"aarch64": "arm64", "powerpc64le": "ppc64el"}  # and Debian's names of them
TOGETHER = ROOT / "contrib/checks/together.py"
PACKAGES = ("libcmocka0", "libncurses6", "libtinfo6")
PRECOMPILED = "contrib/standard.hpp.gch"  # made before what is compiled with it
LIBRARIES = (".libs/libvma.so", ".libs/libvma-fi.so")
TOOLS = ("vma_lat", "vma_stats", "vmad", "libvma-check")
# What a machine may do otherwise: rings and bells, atomics, faults, sums over the wire's bytes.
TESTS = (
    "prov/vma/test/local/litmus_test", "prov/vma/test/local/ring_test", "prov/vma/test/local/slots_test",
    "prov/vma/test/inet/checksum_test", "prov/vma/test/ofi/atomic_test", "compat/test/libc/fault_test",
    "compat/test/libc/handlers_test", "compat/test/libc/handlers_put_off_test", "compat/test/udp/udp_queue_test",
)
SKIP = 77


class Missing(Exception):
    """What this needs is not to be had here, and why."""


def run(*command, **options):
    print("$", *command, flush=True)
    return subprocess.run(command, check=False, **options).returncode


def fetch(folder, architecture):
    """The packages' libraries, unpacked below `folder`."""
    root = folder / "packages"
    if (root / "whole").exists():
        return root
    for part in ("state/lists/partial", "cache/archives/partial", "debs"):
        (root / part).mkdir(parents=True, exist_ok=True)
    (root / "status").touch()
    options = {
        "Dir::State": root / "state", "Dir::State::status": root / "status", "Dir::Cache": root / "cache", "APT::Architecture": architecture,
        "APT::Architectures": architecture, "Acquire::Languages": "none", "Acquire::Retries": 3, "APT::Sandbox::User": "root",
        "Debug::NoLocking": 1,
    }
    apt = ["apt-get", "-q", *(word for name, value in options.items() for word in ("-o", f"{name}={value}"))]
    if run(*apt, "update") or run(*apt, "download", *PACKAGES, cwd=root / "debs"):
        raise Missing(f"no packages of {architecture} here: apt-get does not get them")
    for package in (root / "debs").glob("*.deb"):
        if run("dpkg-deb", "-x", package, root):
            raise Missing(f"no packages of {architecture} here: {package.name} can't be unpacked")
    shutil.rmtree(root / "state")
    (root / "whole").touch()
    return root


def library(root, name):
    return str(next(root.glob(f"**/{name}")))


def configure(folder, machine, packages):
    if (folder / "Makefile").exists():
        return 0
    own = subprocess.run(["gcc", "-print-multiarch"], check=True, capture_output=True, text=True).stdout.strip()
    host = f"{machine}-linux-gnu"
    words = ["--host", host, "--enable-precompiled", f"CXX={TOGETHER} {host}-g++", "CXXFLAGS=-O1 -g1", "LDFLAGS=-Wl,-z,muldefs",
             f"CPPFLAGS=-idirafter /usr/include -idirafter /usr/include/{own}", "PKG_CONFIG=/usr/bin/pkg-config", "FUZZ_CXX=false"]
    if packages:
        words += [f"CMOCKA_LIBS={library(packages, 'libcmocka.so.0')}", "CMOCKA_CFLAGS= ", "NCURSES_CFLAGS= ",
                  f"NCURSES_LIBS={library(packages, 'libncurses.so.6')} {library(packages, 'libtinfo.so.6')}"]
    return run(ROOT / "configure", *words, cwd=folder)


def emulator(machine, packages):
    paths = {str(path.parent) for path in packages.glob("**/*.so.*")}
    return f"qemu-{machine} -L /usr/{machine}-linux-gnu -E LD_LIBRARY_PATH={':'.join(sorted(paths))}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--machine", choices=MACHINES, default="aarch64")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--all", action="store_true", help="every unit test")
    parser.add_argument("tests", nargs="*", metavar="TEST", help="these unit tests")
    args = parser.parse_args()
    folder = ROOT / f"build-{args.machine}"
    folder.mkdir(exist_ok=True)
    runs = args.machine == "aarch64"
    try:
        packages = fetch(folder, MACHINES[args.machine]) if runs else None
    except Missing as missing:
        print(missing)
        return SKIP
    make = ["make", "-C", folder, f"-j{args.jobs}"]
    if configure(folder, args.machine, packages):
        print("FAIL: configure")
        return 1
    run(TOGETHER, "--table", cwd=folder)
    if run(*make, PRECOMPILED) or run(*make, *LIBRARIES, *(TOOLS if args.all else ())):
        print("FAIL: build")
        return 1
    print("PASS: build")
    if not runs:
        return 0
    tests = "$(unit_tests)" if args.all else " ".join(args.tests or TESTS)
    environment = {**os.environ, "UNIT_RUNNER": emulator(args.machine, packages)}
    return run(*make, "check-TESTS", f"TESTS={tests}", f"check_PROGRAMS={tests}", "dist_check_SCRIPTS=", env=environment)


if __name__ == "__main__":
    sys.exit(main())
