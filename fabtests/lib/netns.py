# SPDX-License-Identifier: BSD-2-Clause
"""Network namespaces of a test: made by it, entered by the processes it starts, removed at its end."""

import ctypes
import itertools
import os
import pathlib
import subprocess

import pytest

from lib import patience, wire

_CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)
_numbers = itertools.count()


class Host:
    """A namespace with its loopback up, multicast on it allowed."""

    def __init__(self):
        self.name = f"fabtests-{os.getpid()}-{next(_numbers)}"
        ip("netns", "add", self.name)
        self.ip("link", "set", "lo", "up", "multicast", "on")
        wire.set_sysctl(self, "ipv6/conf/default/accept_dad", 0)  # a tentative address asks for no neighbour, for 2 s
        self.ip("route", "add", "224.0.0.0/4", "dev", "lo")

    def ip(self, *args):
        ip("-n", self.name, *args)

    @property
    def file(self) -> pathlib.Path:
        """For Runner.start(netns=...)."""
        return pathlib.Path("/run/netns", self.name)

    def enter(self):
        """This process itself."""
        fd = os.open(self.file, os.O_RDONLY | os.O_CLOEXEC)
        if _libc.setns(fd, _CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "setns")
        os.close(fd)

    def remove(self):
        subprocess.run(["ip", "netns", "del", self.name], capture_output=True, check=False)


def ip(*args):
    subprocess.run(["ip", *args], capture_output=True, text=True, check=True, timeout=patience.seconds())


def veth(one, name, other, other_name):
    ip("link", "add", name, "netns", one.name, "type", "veth", "peer", "name", other_name, "netns", other.name)


class Hosts:
    """Two hosts on one wire: 10.99.0.1 and 10.99.0.2, fd99::1 and fd99::2, interface `wire`. Or each on a wire to a third
    host `middle`, whose interfaces are `left` and `right`: somebody has to carry frames from one to the other."""

    def __init__(self, middle=False):
        self.all = []
        try:
            for _ in range(3 if middle else 2):
                self.all.append(Host())
            self.left, self.right = self.all[:2]
            if middle:
                self.middle = self.all[2]
                for side, host in (("left", self.left), ("right", self.right)):
                    veth(host, "wire", self.middle, side)
                    self.middle.ip("link", "set", side, "up")
            else:
                veth(self.left, "wire", self.right, "wire")
            for number, host in enumerate(self.all[:2], 1):
                host.ip("addr", "add", f"10.99.0.{number}/24", "brd", "+", "dev", "wire")
                host.ip("addr", "add", f"fd99::{number}/64", "dev", "wire", "nodad")
                host.ip("link", "set", "wire", "up")
        except BaseException:
            self.remove()
            raise

    def remove(self):
        for host in self.all:
            host.remove()


def only_root():
    """Skips whom the kernel gives no namespace of the network."""
    if os.geteuid() != 0:
        pytest.skip("only root can make network namespaces")


def made(kind, *args):
    """For a fixture: a Host or Hosts, or the reason why this machine has none."""
    only_root()
    try:
        return kind(*args)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"cannot make network namespaces: {getattr(error, 'stderr', None) or error}")


def hosts(middle=False):
    """For a fixture: two connected hosts."""
    return made(Hosts, middle)
