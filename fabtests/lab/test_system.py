# SPDX-License-Identifier: BSD-2-Clause
"""A whole machine with libvma.so in /etc/ld.so.preload: this machine's file system, booted by its own init in an emulated host. Its services
run and are used, its users log in, apt works, nothing of the library is in any log, and an idle service takes little memory for it."""

import re
import shlex

import pytest

from lib import build, rxe
from rxelab.system import System, missing

SERVICES = ("cron", "dbus", "dnsmasq", "haproxy", "memcached", "mosquitto", "nats-server", "nginx", "postfix@-", "postgresql@15-main",
            "redis-server", "ssh", "systemd-journald", "systemd-logind")
RESTARTED = ("cron", "dnsmasq", "haproxy", "memcached", "mosquitto", "nats-server", "nginx", "redis-server", "ssh")
MOST_PRIVATE_KB = 1536  # of an idle service, for the library

# The name of each process that has libc but not the library; kernel threads and static programs have neither.
WITHOUT = """
import glob
for path in glob.glob("/proc/[0-9]*/maps"):
    try:
        maps = open(path).read()
        if "libc.so.6" in maps and "libvma.so" not in maps:
            print(open(path.replace("maps", "comm")).read())
    except OSError:
        pass  # it has ended
"""

# The name of each process whose tables, which the kernel maps right behind the library's file, have huge pages.
HUGE = """
import glob, re
for path in glob.glob("/proc/[0-9]*/smaps"):
    try:
        behind = False
        for line in open(path):
            if re.match("[0-9a-f]+-", line):
                name = line.split()[5:]
                ours = behind and not name
                behind = bool(name) and "libvma.so" in name[0]
            elif line.startswith("AnonHugePages:") and ours and int(line.split()[1]) != 0:
                print(open(path.replace("smaps", "comm")).read())
    except OSError:
        pass
"""

JOB = "* * * * * root [ -e /run/ran ] || echo ran >/run/ran"

# What a service's processes have for themselves, in KiB: those of its control group.
PRIVATE = """
for unit in %s; do
    total=0 count=0 group=$(systemctl show -P ControlGroup $unit)
    for pid in $(cat /sys/fs/cgroup$group/cgroup.procs); do
        private=$(awk '/^Private_Dirty|^Swap:/ { sum += $2 } END { print sum }' /proc/$pid/smaps_rollup) || continue  # it has ended
        total=$((total + private)) count=$((count + 1))
    done
    echo $unit $total $count
done
"""

ASK_NAME = r"""
import socket, struct
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(600)
s.sendto(struct.pack(">6H", 7, 256, 1, 0, 0, 0) + b"\x09localhost\0" + struct.pack(">2H", 1, 1), ("127.0.0.1", 53))
print(socket.inet_ntoa(s.recv(512)[-4:]))
"""

ASK_MEMCACHED = r"""
import socket
s = socket.create_connection(("127.0.0.1", 11211))
s.sendall(b"set k 0 0 3\r\nabc\r\nget k\r\n")
said = b""
while not said.endswith(b"END\r\n"):
    said += s.recv(100)
print(said)
"""


@pytest.fixture(scope="module")
def system():
    if build.sanitized():
        pytest.skip("a sanitizer's runtime does not start in every program")
    reason = missing()
    if reason:
        pytest.skip(f"no whole system: {reason}")
    with System(build.provider_dir()) as guest:
        guest.wait_running()
        sh(guest, f"echo {shlex.quote(JOB)} >/etc/cron.d/job")
        yield guest


def sh(system, script: str, **options) -> str:
    return system.run(["/bin/sh", "-ec", script], timeout=rxe.LIMIT, **options)


def python(system, program: str) -> str:
    return sh(system, f"python3 -c {shlex.quote(program)}")


def not_running(guest) -> set[str]:
    """Units that have failed, and services that are not there."""
    states = guest.start(["systemctl", "is-active", *SERVICES])
    states.wait(rxe.LIMIT)
    return guest.failed_units() | {unit for unit, state in zip(SERVICES, states.stdout().split()) if state != "active"}


def test_boots(system):
    """What does not run here does not run without the library either."""
    missed = not_running(system)
    if missed:
        with System(None) as plain:
            plain.wait_running()
            missed -= not_running(plain)
    assert missed == set(), sh(system, f"journalctl -b --no-pager {' '.join(f'-u {shlex.quote(unit)}' for unit in sorted(missed))}")


def test_each_program_has_the_library(system):
    assert python(system, WITHOUT) == ""
    assert python(system, HUGE) == ""


def test_redis(system):
    assert sh(system, "redis-cli set k abc; redis-cli get k").split() == ["OK", "abc"]


def test_nginx(system):
    assert sh(system, "curl -s -o /dev/null -w '%{http_code}' http://127.0.0.1/") == "200"


def test_memcached(system):
    assert "STORED" in python(system, ASK_MEMCACHED)


def test_mosquitto(system):
    assert sh(system, "mosquitto_sub -h 127.0.0.1 -t t -C 1 & mosquitto_pub -r -h 127.0.0.1 -t t -m hello; wait $!") == "hello\n"


def test_resolver(system):
    assert python(system, ASK_NAME) == "127.0.0.1\n"


def test_postgresql(system):
    """By TCP, of one user at both ends: these are accelerated."""
    sh(system, """su postgres -c "psql -qc \\"alter user postgres password 'x'\\"" """)
    said = sh(system, "echo 'select 1;' >/var/tmp/q.sql; su postgres -c "
                      "'PGPASSWORD=x VMA_TRACELEVEL=debug pgbench -h 127.0.0.1 -n -c 2 -t 100 -f /var/tmp/q.sql postgres 2>&1'")
    assert "number of transactions actually processed: 200/200" in said
    assert "accelerated" in said, said


def test_mail(system):
    """By SMTP to the host itself, into a mailbox."""
    sh(system, "useradd -m reader; printf 'Subject: x\\n\\nhello\\n' | curl -s smtp://127.0.0.1 --mail-from root@localhost "
               "--mail-rcpt reader@localhost -T -")
    sh(system, "until grep -q hello /var/mail/reader 2>/dev/null; do sleep 0.2; done")


def test_logins(system):
    """By ssh with a key, a file by scp, and by su as another user."""
    sh(system, "mkdir -p -m 700 /root/.ssh; ssh-keygen -q -N '' -f /root/.ssh/lab; cat /root/.ssh/lab.pub >>/root/.ssh/authorized_keys")
    # Without this the first and the last session of a user start and end his systemd, ten seconds of an emulated processor.
    sh(system, "loginctl enable-linger root; systemctl start user@0")
    # Nor the default key exchange, which takes it five.
    options = "-q -o StrictHostKeyChecking=no -o KexAlgorithms=curve25519-sha256 -i /root/.ssh/lab"
    assert sh(system, f"ssh {options} root@127.0.0.1 'id -un; echo $SSH_CONNECTION'").startswith("root\n127.0.0.1 ")
    sh(system, f"scp {options} root@127.0.0.1:/etc/passwd /root/passwd; cmp /etc/passwd /root/passwd")
    assert sh(system, "useradd -m user; su - user -c 'id -un; pwd'").split() == ["user", "/home/user"]


def test_apt(system):
    """A package is made, installed, checked and removed."""
    sh(system, "mkdir -p /root/p/DEBIAN; cd /root/p; printf 'Package: lab-package\\nVersion: 1\\nArchitecture: all\\nMaintainer: a <a@b>\\n"
               "Description: x\\n' >DEBIAN/control; printf '#!/bin/sh\\ntouch /root/configured\\n' >DEBIAN/postinst; chmod 755 DEBIAN/postinst")
    apt = "apt-get -q -o Dir::State::lists=/run/lists"  # none: reading the machine's takes an emulated processor long
    sh(system, f"mkdir -p /run/lists/partial; dpkg-deb -b /root/p /root/p.deb; {apt} install -y /root/p.deb; test -e /root/configured; "
               f"{apt} check; {apt} remove -y lab-package", env={"DEBIAN_FRONTEND": "noninteractive"})


def test_network_services(system):
    """systemd's own, which the machine does not start by itself."""
    sh(system, "systemctl start systemd-networkd; systemctl is-active systemd-networkd; networkctl --no-pager; systemctl stop systemd-networkd")


def test_nothing_in_the_output_of_a_script(system):
    """Also not where the limits are low, the standard descriptors are closed, or a user has no right to anything."""
    said = sh(system, "exec 2>&1; true; env -i /bin/true; (ulimit -n 8; /bin/echo a); /bin/echo b 2>&-; setpriv --reuid 65534 --regid 65534 "
                      "--clear-groups /bin/echo c; curl -s http://127.0.0.1:1/ || echo d")
    assert said.split() == ["a", "b", "c", "d"]


def test_cron(system):
    sh(system, "until grep -q ran /run/ran 2>/dev/null; do sleep 0.5; done")


def test_journal(system):
    lines = system.run(["journalctl", "-b", "-o", "cat", "--no-pager"]).splitlines()
    assert len(lines) > 50
    assert [line for line in lines if re.search(r"libvma|\bVMA\b|ld\.so", line)] == []


def test_memory_of_idle_services(system):
    """The last test: the services are started again without the library, and compared. Without huge pages, which depend on where a
    service's own memory happens to lie."""
    sh(system, "echo never >/sys/kernel/mm/transparent_hugepage/enabled")
    restart = f"systemctl restart {' '.join(RESTARTED)}; systemctl is-active {' '.join(RESTARTED)}"

    def private():
        sh(system, restart)
        rows = [line.split() for line in sh(system, PRIVATE % " ".join(RESTARTED)).splitlines()]
        return {unit: int(kilobytes) / int(processes) for unit, kilobytes, processes in rows}

    with_it = private()
    sh(system, "rm /etc/ld.so.preload")
    without = private()
    more = {unit: round(with_it[unit] - without[unit]) for unit in RESTARTED}
    print("KiB more a process:", more)
    assert max(more.values()) <= MOST_PRIVATE_KB, more
