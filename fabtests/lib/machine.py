# SPDX-License-Identifier: BSD-2-Clause
"""A machine for containers within this one: a network, mounts and control groups of its own, so that all that podman makes (bridges, rules,
names, groups) is nobody else's concern, and is gone with it. Run as a program it is the machine's keeper, who ends all processes and removes
everything when its standard input ends."""

import os
import pathlib
import select
import signal
import stat
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # for who runs it as a program

from lib import patience  # noqa: E402

# Who has rootless containers: a number of this machine's only, and those of its user namespaces.
USER, SUBORDINATE, NAME = 4343, (200000, 65536), "fabtests"
GROUPS = pathlib.Path("/sys/fs/cgroup")
INIT = "init"  # the group of commands: one with processes can have no groups with controllers of version 2 below it
NONE = "none"  # there can't be a machine
NAMESPACES = ("--mount", "--net", "--ipc", "--uts", "--cgroup")
# Joins the groups where the keeper sees them, then the namespaces. No process is left in between that would not hear a signal.
ENTER = 'while [ "$1" != -- ]; do echo 0 >"$1/cgroup.procs" || exit; shift; done; shift; exec nsenter --target "$0" ' + " ".join(
    NAMESPACES) + ' "$@"'


def call(*command):
    subprocess.run(command, check=True, timeout=patience.seconds())


def mount(kind, place, options="rw"):
    place.mkdir(parents=True, exist_ok=True)
    call("mount", "-t", kind, "-o", options, "none", place)


def hierarchies():
    """Of version 1: what mount(8) calls each, and the group of this process there."""
    lines = pathlib.Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    own = {kind: group for _, kind, group in (line.split(":", 2) for line in lines) if kind}
    return {f"none,{kind}" if kind.startswith("name=") else kind: group for kind, group in own.items()}


def version():
    """Of the control groups that limit memory on this host, which are those that the machine has."""
    return 1 if any("memory" in kind.split(",") for kind in hierarchies()) else 2


class Machine:
    """For a fixture. `command()` says how a process is started in it; what is in `work` is seen there at the same place."""

    def __init__(self, run):
        if os.geteuid() != 0:
            pytest.skip("only root can make a machine for containers")
        self._run, self.folder = run, run.work / "machine"
        for place in "etc", "home", "groups":
            (self.folder / place).mkdir(parents=True)
        os.chown(self.folder / "home", USER, USER)
        self.name = f"fabtests-{os.getpid()}-{id(self):x}"
        command = ["unshare", "--mount", sys.executable, "-B", __file__, "keep", self.name, self.folder]
        self._keeper = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True)
        said = self._keeper.stdout.readline().split()
        assert said, f"the machine's keeper ended with {self._keeper.wait(patience.seconds())}"
        if said[0] == NONE:
            self._keeper.communicate(timeout=patience.seconds())
            pytest.skip(f"no machine for containers here: {' '.join(said[1:])}")
        self._pid, self._groups = said[0], said[1:]

    def command(self, *argv):
        return ["nsenter", "--target", self._keeper.pid, "--mount", "sh", "-c", ENTER, self._pid, *self._groups, "--", *argv]

    def file(self, name) -> pathlib.Path:
        """A file of its network and the like, by name."""
        return pathlib.Path(f"/proc/{self._pid}/root", name.lstrip("/"))

    def remove(self):
        for proc in self._run.procs:
            proc.killed |= proc.alive()
        self._keeper.stdin.close()
        assert self._keeper.wait(patience.seconds()) == 0, "the machine's keeper failed"
        self._keeper.stdout.close()


# ---- the keeper


class Groups:
    """One of each hierarchy, that of version 2 first. Its groups get controllers from the top alone; limits of version 1 hold below ours."""

    def __init__(self, name, folder):
        mount("cgroup2", folder / "unified")
        self.all = [folder / "unified" / name]
        for number, (kind, own) in enumerate(hierarchies().items()):
            mount("cgroup", folder / str(number), kind)
            self.all.append(folder / str(number) / own.lstrip("/") / name)
        for group in self.all:
            group.mkdir()
            for what in "cpuset.cpus", "cpuset.mems":  # of version 1: nobody can join before they are said
                if group != self.all[0] and (group / what).exists() and not (group / what).read_text(encoding="ascii").strip():
                    (group / what).write_text((group.parent / what).read_text(encoding="ascii"), encoding="ascii")
        (self.all[0] / INIT).mkdir()

    def join(self):
        for group in self.all:
            (group / "cgroup.procs").write_text("0", encoding="ascii")

    def of_commands(self):
        return [self.all[0] / INIT, *self.all[1:]]

    def end(self):
        """All processes, in the hierarchy that has them all; those that are stopped hear of it when they go on."""
        for group in self.all:
            for state in group.rglob("freezer.state"):
                if state.parent != group:
                    state.write_text("THAWED", encoding="ascii")
        (self.all[0] / "cgroup.kill").write_text("1", encoding="ascii")
        with open(self.all[0] / "cgroup.events", encoding="ascii") as events:
            waiter = select.poll()
            waiter.register(events, select.POLLPRI)
            while "populated 1" in events.read():
                assert waiter.poll(patience.seconds() * 1000), "processes of the machine outlive SIGKILL"
                events.seek(0)

    def remove(self):
        for group in self.all:
            for place, _, _ in os.walk(group, topdown=False):
                os.rmdir(place)


def keep(name, folder):
    try:
        groups = Groups(name, pathlib.Path(folder, "groups"))
    except (OSError, subprocess.CalledProcessError) as error:
        print(NONE, error, flush=True)
        return
    inside = ["unshare", *NAMESPACES, sys.executable, "-B", __file__, "live", folder]
    try:
        with subprocess.Popen(inside, stdout=subprocess.PIPE, text=True, preexec_fn=groups.join) as init:
            try:
                assert init.stdout.readline() == "up\n", "the machine doesn't come up"
                print(init.pid, *groups.of_commands(), flush=True)
                sys.stdin.read()
            finally:
                groups.end()
    finally:
        groups.remove()


# ---- its first process


def users(folder):
    """One more in the machine's own files."""
    lines = {"passwd": f"{NAME}:x:{USER}:{USER}::{folder}/home:/bin/sh", "group": f"{NAME}:x:{USER}:",
             **{f"sub{who}id": f"{NAME}:{SUBORDINATE[0]}:{SUBORDINATE[1]}" for who in "ug"}}
    for name, line in lines.items():
        there, own = pathlib.Path("/etc", name), folder / "etc" / name
        own.write_text((there.read_text(encoding="utf-8") if there.exists() else "") + line + "\n", encoding="utf-8")
        call("mount", "--bind", own, there)


def live(folder):
    mount("tmpfs", GROUPS, "mode=755")  # one of version 2 can't be mounted over another
    if version() == 2:
        mount("cgroup2", GROUPS)
        (GROUPS / INIT / "cgroup.procs").write_text("0", encoding="ascii")
    else:
        for kind in hierarchies():
            mount("cgroup", GROUPS / kind.removeprefix("none,name="), kind)
    for place, mode in (("/run", 755), ("/dev/shm", 1777), ("/var/lib/containers", 755), ("/etc/cni/net.d", 755)):
        mount("tmpfs", pathlib.Path(place), f"mode={mode}")
    for place in "/run/netns", "/run/lock", "/run/vma", f"/run/user/{USER}":
        pathlib.Path(place).mkdir(parents=True)
    os.chown(f"/run/user/{USER}", USER, USER)
    mount("tmpfs", pathlib.Path("/dev/net"), "mode=755")
    os.mknod("/dev/net/tun", stat.S_IFCHR | 0o666, os.makedev(10, 200))
    os.chmod("/dev/net/tun", 0o666)  # as udev makes it
    users(pathlib.Path(folder))
    call("ip", "link", "set", "lo", "up")
    print("up", flush=True)
    signal.pause()


if __name__ == "__main__":
    {"keep": keep, "live": live}[sys.argv[1]](*sys.argv[2:])
