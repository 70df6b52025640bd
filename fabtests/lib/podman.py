# SPDX-License-Identifier: BSD-2-Clause
"""Containers by podman on a machine of the test's own. Their files are this machine's: a folder with the few that must be in it, and /usr, the
sources and the build where they are here. No image comes from anywhere."""

import os
import pathlib
import resource
import shutil
import subprocess

from . import build, patience
from .machine import NAME, USER

FOLDERS = ("usr", "etc", "proc", "sys", "dev", "run", "tmp", "var/tmp", "root")
LINKS = ("bin", "sbin", "lib", "lib64")
FILES = ("passwd", "group", "nsswitch.conf", "ld.so.cache", "alternatives")


def make_root(root: pathlib.Path, mount_points, user=0):
    """A container's files, the same for all that a test starts."""
    for place in (*FOLDERS, *(str(point).lstrip("/") for point in mount_points)):
        (root / place).mkdir(parents=True, exist_ok=True)
    for name in LINKS:
        if not (root / name).is_symlink():
            (root / name).symlink_to(f"usr/{name}")
    for name in FILES:
        there = pathlib.Path("/etc", name)
        if there.is_dir():
            shutil.copytree(there, root / "etc" / name, symlinks=True, dirs_exist_ok=True)
        elif there.exists():
            shutil.copy(there, root / "etc" / name)
    for name in ("etc/hosts", "etc/resolv.conf", "etc/hostname", "run/.containerenv"):
        (root / name).touch()
    (root / "tmp").chmod(0o1777)
    if user:
        for place, folders, files in os.walk(root):
            for name in (".", *folders, *files):
                os.lchown(os.path.join(place, name), user, user)
    return root


class Podman:
    """Of root's, or rootless: another user's."""

    def __init__(self, run, machine, rootless=False, runtime="crun"):
        self._run, self._machine, self._runtime = run, machine, runtime
        user = USER if rootless else 0
        self.binds = {"/usr": "ro", build.TOP: "ro", build.build_dir(): "ro", run.log_dir: "rw", "/run/vma": "ro"}
        self.root = make_root(run.work / ("rootless" if rootless else "root"), self.binds, user)
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        conf = run.work / "containers.conf"  # podman would ask for more descriptors than a user may have, and for the journal
        conf.write_text(f'[containers]\ndefault_ulimits = ["nofile={most}:{most}", "nproc=4096:4096"]\n'
                        'log_driver = "k8s-file"\n'
                        '[engine]\ncgroup_manager = "cgroupfs"\nevents_logger = "none"\n', encoding="ascii")
        home = machine.folder / "home"
        self._env = [f"CONTAINERS_CONF={conf}", *([f"HOME={home}", f"XDG_RUNTIME_DIR=/run/user/{USER}"] if rootless else [])]
        self._become = ["setpriv", f"--reuid={NAME}", f"--regid={NAME}", "--init-groups"] if rootless else []

    def command(self, *argv):
        return self._machine.command("env", *self._env, *self._become, build.tool("podman"), "--runtime", self._runtime, *argv)

    def do(self, *argv) -> str:
        """A command of podman's that ends by itself."""
        done = subprocess.run([str(word) for word in self.command(*argv)], capture_output=True, text=True, timeout=patience.seconds(), cwd=self._run.work,
                              check=False)
        assert done.returncode == 0, f"podman {argv}: {done.stderr}"
        return done.stdout.strip()

    def process(self, name) -> int:
        """The container's first."""
        return int(self.do("inspect", "--format", "{{.State.Pid}}", name))

    def settings(self, name, mode):
        """Of a program with the library."""
        made = {"LD_PRELOAD": build.preload(), "VMA_TRACELEVEL": "debug", "VMA_LOG_FILE": f"{self._run.log_dir}/{name}.%d.log"}
        return made | ({"VMA_SPEC": "latency"} if mode == "latency" else {})

    def start(self, name, argv, *options, vma=True, mode="latency", env=None, stdin=None, binds=None):
        """A process of the test's: podman, which says what the container says, and ends with its status."""
        said = {"LC_ALL": "C.UTF-8", **(self.settings(name, mode) if vma else {}), **(env or {})}
        binds = [word for what, how in (binds or self.binds).items() for word in ("-v", f"{what}:{what}:{how}")]
        settings = [word for what, value in said.items() for word in ("-e", f"{what}={value}")]
        command = self.command("run", "--rm", "--name", name, *(["-i"] if stdin else []), *binds, *settings, *options, "--rootfs", self.root, *argv)
        return self._run.start(name, command, stdin=stdin)
