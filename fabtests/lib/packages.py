# SPDX-License-Identifier: BSD-2-Clause
"""The packages of this tree, and a fresh system to install them into: a folder that is the root of one, made of what the machine's own
apt sources have."""

import hashlib
import os
import pathlib
import re
import shutil
import stat
import subprocess

import pytest

from lib import build, patience

OURS = ("libvma", "libfabric-provider-vma", "libvma-utils", "libvma-dev")
LIMIT = 900  # seconds: several times what compiling everything takes
# What dpkg, apt and ldconfig write whatever is installed, and what is gone with the next boot.
NOT_OURS = re.compile(r"(var/lib/(dpkg|apt)|var/(log|cache)|run|tmp|proc|sys|dev|srv)(/.*)?|etc/ld\.so\.cache")

# In namespaces of its own, which end with it: a program has processes, a network and shared memory of its own.
ENTER = """
set -e
mount --make-rprivate /
mount -t proc proc "$1/proc"
mount --rbind /dev "$1/dev"
mount -t tmpfs none "$1/dev/shm"
ip link set lo up
cd "$1"
root=$1
shift
exec chroot "$root" "$@"
"""


def options():
    """DEB_BUILD_OPTIONS: the unit tests have been run, of the same sources."""
    return f"nocheck parallel={os.cpu_count()}"


def cache():
    """The environment with which ccache keeps what is compiled, in the folder of the build under test; a compiler's heap grows by what huge
    pages fit in."""
    return {"CCACHE_DIR": str(build.build_dir() / "ccache"), "CCACHE_SLOPPINESS": "locale", "PATH": f"/usr/lib/ccache:{os.environ['PATH']}",
            "GLIBC_TUNABLES": "glibc.malloc.top_pad=16777216"}


def make(goal, **env):
    """`make deb` or `make rpm`, in the folder of the build under test; both compile the same, so that the second finds what the first has
    left with ccache. The folder of the results."""
    folder = build.build_dir()
    if not (folder / "Makefile").exists():
        pytest.skip(f"{folder} is no build folder")
    said = check(["make", "-C", folder, goal], env={**os.environ, **cache(), "XZ_OPT": "-1", "DEB_BUILD_OPTIONS": options(), **env})
    # All other builds have precompiled headers, without which the compiler sees more; it is not asked for errors here, as packagers aren't.
    warnings = re.findall(r"^\S+:\d+:\d+: warning: .*$", said, re.MULTILINE)
    assert not warnings, "\n".join(warnings)
    return folder / goal


def check(command, limit=LIMIT, **more):
    """What a command printed. If it fails, the test does, with the end of that."""
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                          timeout=patience.seconds(limit), check=False, **more)
    if done.returncode:
        said = "\n".join(done.stdout.splitlines()[-60:])
        pytest.fail(f"exit status {done.returncode}: {' '.join(map(str, command))}\n{said}", pytrace=False)
    return done.stdout


def field(deb, name):
    return subprocess.run(["dpkg-deb", "-f", deb, name], capture_output=True, text=True, check=True, timeout=patience.seconds()).stdout.strip()


def of_others(debs):
    """The packages that these need, and do not have among them."""
    lists = [field(deb, name) for deb in debs for name in ("Depends", "Pre-Depends", "Recommends")]
    names = {re.match(r"[^\s(|]+", one.strip())[0] for text in lists for one in text.split(",") if one.strip()}
    return sorted(names - set(OURS))


class System:
    """A fresh Debian, of the release that this machine has."""

    def __init__(self, root):
        self.root = pathlib.Path(root)

    @classmethod
    def made(cls, root, included):
        """Skips the test where it can't be: the machine has no sources, or does not reach them."""
        if os.geteuid() != 0:
            pytest.skip("needs root, to make the root of another system")
        release = re.search(r"^VERSION_CODENAME=(\w+)$", pathlib.Path("/etc/os-release").read_text(encoding="utf-8"), re.MULTILINE)
        folder = pathlib.Path("/etc/apt/sources.list.d")
        sources = [path for path in (folder.with_suffix(""), *sorted(folder.glob("*.list")), *sorted(folder.glob("*.sources")))
                   if path.is_file()]
        if not release or not sources:
            pytest.skip("no fresh system can be made here: the machine has no apt sources")
        settings = subprocess.run(["apt-config", "dump", "Acquire"], capture_output=True, text=True, check=True, timeout=patience.seconds()).stdout
        how = [f"--aptopt={line}" for line in settings.splitlines() if re.match(r'Acquire::[\w:-]+ ".*";$', line)]
        done = subprocess.run(["mmdebstrap", "--mode=root", "--variant=apt", "--dpkgopt=force-unsafe-io", f"--include={','.join(included)}",
                               *how, release[1], root, *sources], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, timeout=patience.seconds(LIMIT), check=False)
        if done.returncode:
            errors = [line for line in done.stdout.splitlines() if line.startswith("E: ")]
            pytest.skip(f"no fresh system can be made here: {(errors or ['mmdebstrap failed'])[0]}")
        made = cls(root)
        policy = made.root / "usr/sbin/policy-rc.d"  # as containers have it: a package's daemons are not started
        policy.write_text("#!/bin/sh\nexit 101\n", encoding="ascii")
        policy.chmod(0o755)
        return made

    def command(self, *command):
        return ["unshare", "--mount", "--net", "--pid", "--ipc", "--fork", "--kill-child", "sh", "-c", ENTER, "sh", self.root,
                "/usr/bin/env", "-i", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8", "HOME=/root",
                "DEBIAN_FRONTEND=noninteractive", *command]

    def run(self, *command):
        """What it printed. It must succeed."""
        return check(self.command(*command), limit=120)

    def install(self, *debs):
        """As a user does, who has the files."""
        there = self.root / "srv"
        for deb in debs:
            shutil.copy(deb, there)
        return self.run("dpkg", "--force-confdef", "--force-confold", "-i", *(f"/srv/{deb.name}" for deb in debs))

    def files(self):
        """{path: what it is} of all that does not change with the packages of others."""
        found = {}
        for folder, folders, names in os.walk(self.root):
            for name in folders + names:
                path = pathlib.Path(folder, name)
                inside = str(path.relative_to(self.root))
                if not NOT_OURS.fullmatch(inside):
                    found[inside] = self.describe(path)
        return found

    @staticmethod
    def describe(path):
        status = path.lstat()
        what = [stat.filemode(status.st_mode), status.st_uid, status.st_gid]
        if stat.S_ISREG(status.st_mode):
            what.append(hashlib.blake2b(path.read_bytes()).hexdigest())
        elif stat.S_ISLNK(status.st_mode):
            what.append(os.readlink(path))
        return tuple(what)
