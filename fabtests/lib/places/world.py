#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""A world of its own for who runs tests: run as a program, it makes one, is the first process in it, and starts COMMAND there.

    world.py COMMAND ARGUMENTS...

Network, processes, System V's and POSIX's shared memory, /dev/shm, /run, /tmp and /var/tmp are nobody else's, and end with COMMAND: no port,
broker, shared file or process is common to two worlds. Who isn't root has them by a user namespace of his own number; where none can be had,
COMMAND runs in the world that there is, and that is said."""

import ctypes
import fcntl
import os
import pathlib
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))  # for who runs it as a program

from lib.places.hardened import CHECKOUT, CLONE_NEWIPC, CLONE_NEWNS, MS_BIND, Kept, NotHere, mount, own_mounts, unshare, users  # noqa: E402

CLONE_NEWPID, CLONE_NEWNET = 0x20000000, 0x40000000
PR_SET_PDEATHSIG = 1
SIOCSIFFLAGS, IFF_UP = 0x8914, 1
INTERFACES = """link add eth0 type veth peer name nowhere
addr add 192.0.2.2/24 brd + dev eth0
addr add fd00::2/64 dev eth0 nodad
link set eth0 up
link set nowhere up
"""
MEMORY = {"/dev/shm": "mode=1777", "/run": "mode=755"}
DISK = ("/tmp", "/var/tmp")  # as they are on the disk: what tests put there is more than memory may hold
RUN = ("netns", "lock", "vma")  # what the machine's start made below /run, where it is there


def wire():
    """Interfaces as a host has them: loopback, and one with multicast and addresses of both families, on a wire that leads nowhere. Another
    user has loopback alone, as the programs that make others don't run with what he may in here."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", IFF_UP))
    if os.geteuid():
        return
    pathlib.Path("/proc/sys/net/ipv6/conf/default/accept_dad").write_text("0", encoding="ascii")  # a tentative address is none for 2 s
    subprocess.run(["ip", "-batch", "-"], input=INTERFACES, text=True, check=True)


def own_sys():
    """Whose network interfaces are this world's; what is mounted below it is the machine's."""
    below = [line.split()[1] for line in pathlib.Path("/proc/mounts").read_text(encoding="utf-8").splitlines() if line.split()[1].startswith("/sys/")]
    opened = [os.open(folder, os.O_PATH) for folder in below]
    mount("sysfs", "/sys", "sysfs")
    for folder, fd in zip(below, opened):
        mount(f"/proc/self/fd/{fd}", folder, flags=MS_BIND)


def furnish(place):
    """Mounts of this process's own. The build, and what else is to stay, may lie in a folder that is covered."""
    own_mounts()
    mount("proc", "/proc", "proc")
    if os.geteuid() == 0:
        own_sys()
    kept = Kept((CHECKOUT, os.environ.get("VMA_BUILD", CHECKOUT)), (*DISK, *MEMORY))
    there = [name for name in RUN if os.path.isdir(f"/run/{name}")]
    for folder in DISK:
        os.makedirs(place + folder)
        os.chmod(place + folder, 0o1777)
    own = [os.open(place + folder, os.O_PATH) for folder in DISK]
    for folder, fd in zip(DISK, own):
        mount(f"/proc/self/fd/{fd}", folder, flags=MS_BIND)
    for folder, how in MEMORY.items():
        mount("tmpfs", folder, "tmpfs", data=how)
    for name in there:
        os.mkdir(f"/run/{name}")
    kept.put_back()


def ends_with_parent():
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def reap_until(wanted):
    """What the first process of a world is for. Who interrupts it means `wanted`, whose exit status it returns, as shells say it."""
    signal.signal(signal.SIGINT, lambda *_: os.kill(wanted, signal.SIGINT))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    while True:
        pid, status = os.wait()
        if pid == wanted:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def spawn(body):
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # until it is known whom to tell
    pid = os.fork()
    if pid:
        return pid
    ends_with_parent()
    try:
        body()
    except BaseException as error:  # pylint: disable=broad-except # nobody is there who would say it
        print(f"world: {error}", file=sys.stderr, flush=True)
    os._exit(127)


def begin(command):
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    os.execvp(command[0], command)


def live(command, place):
    furnish(place)
    wire()
    os._exit(reap_until(spawn(lambda: begin(command))))


def main():
    command = sys.argv[1:]
    if not command:
        sys.exit(__doc__)
    try:
        if os.geteuid():
            users()
        unshare(CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWNS)
    except NotHere as error:
        print(f"no world of its own: {error}", file=sys.stderr)
        os.execvp(command[0], command)
    place = tempfile.mkdtemp(prefix="fabtests-world-")
    try:
        status = reap_until(spawn(lambda: live(command, place)))
    finally:
        shutil.rmtree(place, ignore_errors=True)
    os._exit(status)


if __name__ == "__main__":
    main()
