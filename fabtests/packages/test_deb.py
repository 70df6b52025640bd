# SPDX-License-Identifier: BSD-2-Clause
"""Debian's packages as files: what lintian says of them, what is in which, and that a second build gives the same bits."""

import hashlib
import os
import re
import shutil
import subprocess
import tempfile

import pytest

from lib import build, packages, patience

LIBRARY = "/usr/lib/*/"
CONTENTS = {
    "libvma": {
        "/etc/init.d/vma", "/etc/libvma.conf", "/lib/systemd/system/vma.service", "/usr/sbin/vmad",
        f"{LIBRARY}libvma.so", f"{LIBRARY}libvma.so.9", f"{LIBRARY}libvma.so.9.0.0",
        "/usr/share/doc/libvma/README.md.gz", "/usr/share/doc/libvma/VMA_VERSION",
        "/usr/share/man/man5/libvma.conf.5.gz", "/usr/share/man/man7/libvma.7.gz", "/usr/share/man/man7/vma.7.gz",
        "/usr/share/man/man8/vmad.8.gz",
    },
    "libfabric-provider-vma": {f"{LIBRARY}libfabric/libvma-fi.so", "/usr/share/man/man7/fi_vma.7.gz"},
    "libvma-utils": {
        "/usr/bin/libvma-check", "/usr/bin/udp_lat", "/usr/bin/vma", "/usr/bin/vma_dump", "/usr/bin/vma_lat", "/usr/bin/vma_stats",
        "/usr/share/bash-completion/completions/vma",
        "/usr/share/man/man1/libvma-check.1.gz", "/usr/share/man/man1/udp_lat.1.gz", "/usr/share/man/man1/vma.1.gz",
        "/usr/share/man/man1/vma_lat.1.gz", "/usr/share/man/man8/vma_dump.8.gz", "/usr/share/man/man8/vma_stats.8.gz",
    },
    "libvma-dev": {
        "/usr/include/mellanox/vma_extra.h", "/usr/include/rdma/fi_ext_vma.h", "/usr/include/rdma/fi_ext_vma_stream.h",
        f"{LIBRARY}pkgconfig/libvma.pc", "/usr/share/man/man3/vma_extra.3.gz",
    },
}
EACH_HAS = re.compile(r"/usr/share/(doc/[\w-]+/(changelog(\.Debian)?\.gz|copyright|examples/\w+\.c)|lintian/overrides/\w+)")


def listed(deb):
    """The files of a package, but for those that each has."""
    lines = subprocess.run(["dpkg-deb", "-c", deb], capture_output=True, text=True, check=True, timeout=patience.seconds()).stdout.splitlines()
    names = {line.split(maxsplit=5)[5].split(" -> ")[0][1:] for line in lines if not line.startswith("d")}
    return {re.sub(r"^/usr/lib/[\w-]+-linux-\w+/", LIBRARY, name) for name in names if not EACH_HAS.fullmatch(name)}


def test_lintian(debs):
    # What is suppressed asks for the report of a bug in Debian, where these were never uploaded to, and for a folder debian/ that is not
    # in the release's tarball.
    suppressed = "initial-upload-closes-no-bugs,no-debian-changes"
    packages.check(["lintian", "--fail-on=error,warning", f"--suppress-tags={suppressed}", debs["changes"]], limit=120)


@pytest.mark.parametrize("name", CONTENTS)
def test_contents(debs, name):
    assert listed(debs[name]) == CONTENTS[name]


def test_the_rules_are_kept(debs, tmp_path):
    subprocess.run(["dpkg-deb", "-e", debs["libvma"], tmp_path], check=True, timeout=patience.seconds())
    assert set((tmp_path / "conffiles").read_text().split()) == {"/etc/libvma.conf", "/etc/init.d/vma"}


def test_the_version_is_the_releases(debs):
    version = re.search(r'#define PACKAGE_VERSION "(.*)"', (build.build_dir() / "config.h").read_text())[1]
    for name in CONTENTS:
        assert packages.field(debs[name], "Version") == f"1:{version}-1"


@pytest.fixture(scope="module")
def again(debs):
    """{name of a file: its hash} of packages that were built elsewhere, of the source package. FABTESTS_LONG=1: with nothing of the
    first build; else with the objects of it that ccache knows by the same preprocessed source and flags."""
    folder = tempfile.mkdtemp(prefix="fabtests-another-place-")
    source = next(debs["changes"].parent.glob("*.dsc"))
    packages.check(["dpkg-source", "-x", source, f"{folder}/tree"])
    packages.check(["dpkg-buildpackage", "-b", "-us", "-uc"], cwd=f"{folder}/tree",
                   env={**os.environ, **({} if "FABTESTS_LONG" in os.environ else packages.cache()),
                        "DEB_BUILD_OPTIONS": packages.options(), "TZ": "Asia/Kathmandu", "LC_ALL": "C"})
    yield hashes(folder)
    shutil.rmtree(folder, ignore_errors=True)


def hashes(folder):
    return {name: hashlib.sha256(open(f"{folder}/{name}", "rb").read()).hexdigest() for name in os.listdir(folder) if name.endswith(".deb")}


def test_the_same_bits(debs, again):
    assert again == hashes(debs["changes"].parent)
