# SPDX-License-Identifier: BSD-2-Clause
"""Debian's packages in a fresh system, as their user meets them: installed, used, upgraded over rules that were edited or not, removed and
purged, after which nothing is left."""

import re
import subprocess

import pytest

from lib import build, packages, patience

PORT = 7000
RULES = "etc/libvma.conf"


@pytest.fixture(scope="module", name="before")
def files_before(fresh):
    return fresh.files()


@pytest.fixture(name="system")
def installed(fresh, before, ours):
    """With the packages, whatever a test has done to them."""
    assert before
    if b"installed" not in subprocess.run(fresh.command("dpkg-query", "-W", "-f", "${db:Status-Status}", "libvma"), capture_output=True,
                                          timeout=patience.seconds(), check=False).stdout:
        fresh.install(*ours)
    return fresh


def test_redis(system):
    """By the name alone, with nothing said of where anything is."""
    script = (
        f'LD_PRELOAD=libvma.so VMA_TRACELEVEL=debug VMA_LOG_FILE=/tmp/server.log redis-server --port {PORT} --save "" >/tmp/said & '
        "grep -q -m 1 'Ready to accept' <(exec tail -n +1 -F /tmp/said 2>/dev/null) && "
        f"LD_PRELOAD=libvma.so VMA_LOG_FILE=/tmp/client.log redis-benchmark -p {PORT} -t set,get -n 20000 -q && "
        f"LD_PRELOAD=libvma.so vma_stats -p all -v 3 >/tmp/stats; redis-cli -p {PORT} shutdown nosave"
    )
    said = system.run("bash", "-c", script)
    log = (system.root / "tmp/server.log").read_text(errors="replace")
    assert "SET: " in said and "GET: " in said
    assert re.search(rf":{PORT}\b.* accelerated: device local", log), log[-3000:]


def test_libfabric_finds_the_provider(system):
    assert "provider: vma" in system.run("fi_info", "-p", "vma")


def test_the_rules_are_read(system):
    """The installed file, without a word of where it is."""
    rules = system.root / RULES
    shipped = rules.read_text(encoding="utf-8")
    try:
        rules.write_text(f"use os tcp_server *:{PORT}\n", encoding="ascii")
        assert "os: line 1 " in system.run("libvma-check", "tcp_server", f"*:{PORT}")
    finally:
        rules.write_text(shipped, encoding="utf-8")


def test_its_programs_compile(system, tmp_path):
    """With the headers of libvma-dev, an example that is there."""
    (example,) = (system.root / "usr/share/doc/libvma-dev/examples").glob("zcopy_receiver.c")
    packages.check([build.tool("cc"), "-I", system.root / "usr/include", example, "-o", tmp_path / "example"])


def test_vmad_is_enabled(system):
    wanted = system.root / "etc/systemd/system/multi-user.target.wants/vma.service"
    assert wanted.is_symlink()
    unit = (system.root / "lib/systemd/system/vma.service").read_text(encoding="utf-8")
    assert re.search(r"^ExecStart=/usr/sbin/vmad --console$", unit, re.MULTILINE)


def test_vmad_is_started_and_stopped(system):
    """By the script that VMA's users know, where no systemd runs."""
    system.run("sh", "-ec", "/etc/init.d/vma start; /etc/init.d/vma status; /etc/init.d/vma stop; ! /etc/init.d/vma status")


def newer(deb, folder, rules):
    """The package with the next version, and with these rules."""
    tree = folder / "tree"
    subprocess.run(["dpkg-deb", "-R", deb, tree], check=True, timeout=patience.seconds())
    control = tree / "DEBIAN/control"
    control.write_text(re.sub(r"(?m)^(Version: .*)$", r"\1+next", control.read_text(encoding="utf-8")), encoding="utf-8")
    (tree / RULES).write_text(rules, encoding="utf-8")
    subprocess.run(["dpkg-deb", "--root-owner-group", "-b", tree, folder / "newer.deb"], check=True, capture_output=True, timeout=patience.seconds())
    return folder / "newer.deb"


def test_rules_that_are_as_they_came_are_replaced(system, debs, tmp_path):
    system.install(newer(debs["libvma"], tmp_path, "# the next version's\n"))
    assert (system.root / RULES).read_text() == "# the next version's\n"
    system.install(debs["libvma"])
    assert "application-id * *" in (system.root / RULES).read_text()


def test_edited_rules_are_kept(system, ours, debs, tmp_path):
    edited = "# mine\nuse os tcp_server *:22\n"
    (system.root / RULES).write_text(edited)
    system.install(*ours)
    assert (system.root / RULES).read_text() == edited
    system.install(newer(debs["libvma"], tmp_path, "# the next version's\n"))
    assert (system.root / RULES).read_text() == edited
    assert (system.root / f"{RULES}.dpkg-dist").read_text() == "# the next version's\n"


def test_removed_it_leaves_the_rules_and_purged_nothing(system, before):
    (system.root / RULES).write_text("# mine\n")
    system.run("dpkg", "--remove", *packages.OURS)
    left = {name for name in system.files() if name not in before}
    assert RULES in left
    # That it was enabled is kept by Debian's helpers.
    started = r"etc/(init\.d|rc\w\.d)/(\w\d\d)?vma|(etc/systemd/system|var/lib/systemd/deb-systemd-helper-enabled)/.*vma\.service[\w.-]*"
    assert not [name for name in left if not re.fullmatch(f"{RULES}(\\.dpkg-dist)?|{started}", name)]
    system.run("dpkg", "--purge", *packages.OURS)
    after = system.files()
    assert {name: (before.get(name), after.get(name)) for name in before.keys() | after.keys() if before.get(name) != after.get(name)} == {}
