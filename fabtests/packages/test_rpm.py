# SPDX-License-Identifier: BSD-2-Clause
"""The RPMs, built by Debian's rpmbuild: the same parts as Debian's packages have, and rules that are kept."""

import os
import re
import subprocess

import pytest

from lib import packages, patience

NAMES = {"libvma", "libfabric-provider-vma", "libvma-utils", "libvma-devel"}
RULES = "etc/libvma.conf"


def query(rpm, *how):
    return subprocess.run(["rpm", "-qp", *how, rpm], capture_output=True, text=True, check=True, timeout=patience.seconds()).stdout.splitlines()


@pytest.fixture(scope="module")
def rpms(debs):
    """{name: file}. Compiled with the flags of Debian's packages, which have just been: ccache has it all."""
    assert debs
    flags = []
    for name in ("CXXFLAGS", "CPPFLAGS"):
        words = subprocess.run(["dpkg-buildflags", "--get", name], capture_output=True, text=True, check=True, timeout=patience.seconds(),
                               env={**os.environ, "DEB_BUILD_MAINT_OPTIONS": "hardening=-fortify"}).stdout.split()
        flags.append(f"--define 'build_{name.lower()} {' '.join(word for word in words if not word.startswith('-ffile-prefix-map'))}'")
    folder = packages.make("rpm", RPMBUILD_FLAGS=" ".join(flags))
    return {query(rpm, "--qf", "%{NAME}")[0]: rpm for rpm in folder.glob("RPMS/*/*.rpm")}


def test_the_same_parts(rpms, debs):
    """What Debian's have, but for what is Debian's own."""
    assert rpms.keys() == NAMES
    for name, rpm in rpms.items():
        deb = debs[name.replace("-devel", "-dev")]
        lines = subprocess.run(["dpkg-deb", "-c", deb], capture_output=True, text=True, check=True, timeout=patience.seconds()).stdout.splitlines()
        theirs = {line.split(maxsplit=5)[5].split(" -> ")[0] for line in lines if not line.startswith("d")}
        own = re.compile(r".*(/lintian/|/init\.d/|/changelog|/copyright|/LICENSE|/CHANGELOG|/licenses/|/examples/|/doc/[\w-]*$|/build-id)")

        def parts(paths, own=own):
            return {path.rsplit("/", 1)[1].removesuffix(".gz") for path in paths if "/" in path and not own.match(path)}

        assert parts(theirs) <= parts(query(rpm, "-l"))


def test_nothing_but_glibc_is_needed_by_the_provider(rpms):
    needed = {line.split("(")[0] for line in query(rpms["libfabric-provider-vma"], "--requires") if not line.startswith("rpmlib")}
    assert {one for one in needed if ".so" in one} <= {"libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}


def test_the_rules_are_configuration(rpms):
    assert query(rpms["libvma"], "-c") == [f"/{RULES}"]
    assert query(rpms["libvma"], "--qf", "%{EPOCH}") == ["1"]


def test_installed_and_erased(rpms, tmp_path):
    """Into a folder: edited rules are kept, as a file of another name when it is erased, and nothing else is."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to make the root of another system")

    def rpm(*how):
        packages.check(["rpm", "--root", tmp_path, "--force-debian", "--nodeps", "--noscripts", *how], limit=60)

    rpm("-i", *rpms.values())
    (tmp_path / RULES).write_text("# mine\n", encoding="ascii")
    rpm("-U", "--replacepkgs", rpms["libvma"])
    assert (tmp_path / RULES).read_text(encoding="ascii") == "# mine\n"
    assert (tmp_path / "usr/lib64/libvma.so").exists() and (tmp_path / "usr/sbin/vmad").exists()
    rpm("-e", *NAMES)
    left = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if not path.is_dir()}
    assert {name for name in left if "rpmdb" not in name} == {f"{RULES}.rpmsave"}
    assert (tmp_path / f"{RULES}.rpmsave").read_text(encoding="ascii") == "# mine\n"
