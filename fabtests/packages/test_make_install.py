# SPDX-License-Identifier: BSD-2-Clause
"""`make install`, with the prefix that the build has: what is installed reads the rules that were installed with it, and all of it is gone
after `make uninstall`."""

import os
import re
import subprocess

import pytest

from lib import build, packages, patience


@pytest.fixture(scope="module", name="prefix")
def of_the_build():
    text = (build.build_dir() / "Makefile").read_text(encoding="utf-8")
    return re.search(r"^prefix = (/.*)$", text, re.MULTILINE)[1]


@pytest.fixture(name="installed")
def into_a_folder(tmp_path):
    packages.check(["make", "-C", build.build_dir(), "install", f"DESTDIR={tmp_path}"])
    return tmp_path


def names(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir()}


def test_it_reads_the_rules_that_it_installs(installed, prefix):
    if os.geteuid() != 0:
        pytest.skip("needs root, to have it where it says that it is")
    if not str(build.rules_file()).startswith(f"{prefix}/"):
        pytest.skip("this build has its rules elsewhere than under its prefix")
    rules = installed / str(build.rules_file())[1:]
    assert "use os udp_connect *:53" in rules.read_text(encoding="utf-8")
    rules.write_text("use os tcp_server *:7000\n", encoding="ascii")

    def there(*command, **env):
        how = 'mount --bind "$1" "$2" && shift 2 && exec "$@"'
        return subprocess.run(["unshare", "--mount", "sh", "-c", how, "sh", f"{installed}{prefix}", prefix, *command], capture_output=True,
                              env={**os.environ, **env}, text=True, timeout=patience.seconds(), check=True)

    assert "os: line 1 " in there(f"{prefix}/bin/libvma-check", "tcp_server", "*:7000").stdout
    said = there("true", LD_PRELOAD=f"{prefix}/lib/libvma.so", VMA_TRACELEVEL="details").stderr
    assert re.search(rf"Conf File +{build.rules_file()} ", said)
    for page in ("man5/libvma.conf.5", "man7/libvma.7", "man1/libvma-check.1"):
        text = (installed / f"{prefix[1:]}/share/man/{page}").read_text(encoding="utf-8")
        assert str(build.rules_file()) in text
    unit = (installed / f"{prefix[1:]}/lib/systemd/system/vma.service").read_text(encoding="utf-8")
    assert f"ExecStart={prefix}/sbin/vmad " in unit


def test_a_page_has_the_names_of_what_it_is_about(installed, prefix):
    pages = installed / f"{prefix[1:]}/share/man"
    for name, page in ("man1/udp_lat.1", "vma_lat.1"), ("man7/vma.7", "libvma.7"):
        assert os.readlink(pages / name) == page and (pages / name).is_file()


def test_rules_of_the_users_stay(installed):
    rules = installed / str(build.rules_file())[1:]
    rules.write_text("# mine\n", encoding="ascii")
    packages.check(["make", "-C", build.build_dir(), "install", f"DESTDIR={installed}"])
    assert rules.read_text(encoding="ascii") == "# mine\n"
    packages.check(["make", "-C", build.build_dir(), "uninstall", f"DESTDIR={installed}"])
    assert names(installed) == {str(rules.relative_to(installed))}


def test_uninstalled_it_leaves_nothing(installed):
    assert names(installed)
    packages.check(["make", "-C", build.build_dir(), "uninstall", f"DESTDIR={installed}"])
    assert names(installed) == set()
