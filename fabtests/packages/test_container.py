# SPDX-License-Identifier: BSD-2-Clause
"""contrib/container/Containerfile as an image: built by podman of Debian's packages as the tests have made them, on a Debian that the test has
made, as no registry is asked; and redis run in it, accelerated."""

import os
import re
import shutil
import subprocess
import tempfile

import pytest

from lib import build, packages, patience
from lib.machine import Machine
from lib.podman import Podman

BASE = "docker.io/library/debian:12"  # as the Containerfile's FROM is read
PORT = 7000
PRIVATE = "mount -t tmpfs none /run; mkdir -p /etc/cni/net.d; mount -t tmpfs none /etc/cni/net.d; exec \"$@\""


class Images:
    """Podman's, in a folder of their own."""

    def __init__(self, folder):
        self.folder = folder
        self.options = ["--root", f"{folder}/root", "--runroot", "/run/podman", "--cgroup-manager=cgroupfs", "--events-backend=none"]

    def run(self, *argv):
        """A command that makes one. It goes by this machine's network, and leaves nothing outside of the folder."""
        return packages.check(["unshare", "--mount", "sh", "-ec", PRIVATE, "sh", build.tool("podman"), *self.options, *argv],
                              env={**os.environ, "TMPDIR": self.folder})


@pytest.fixture(scope="module", name="images")
def with_the_base(fresh):
    folder = tempfile.mkdtemp(prefix="fabtests-")
    made = Images(folder)
    subprocess.run(["tar", "-C", fresh.root, "--exclude=./var/cache/apt", "-cf", f"{folder}/base.tar", "."], check=True, timeout=patience.seconds(packages.LIMIT))
    made.run("import", "-q", f"{folder}/base.tar", BASE)
    yield made
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module", name="image")
def of_the_containerfile(images, debs):
    """Its last stage. The first one, which makes the packages in the same way, would take minutes."""
    folder = build.TOP / "contrib/container"
    images.run("build", "--pull=never", "--network=host", "--isolation=chroot", f"--build-context=build={debs['changes'].parent.parent}",
               "-t", "ofi-vma", "-f", folder / "Containerfile", folder)
    return "ofi-vma"


@pytest.fixture(name="container")
def of_the_image(run, images, image):
    """container(command ...): what it says in one, which has no network but its own."""
    machine = Machine(run)
    podman = Podman(run, machine)
    yield lambda *argv: podman.do(*images.options, "run", "--rm", "--network=none", image, *argv)
    machine.remove()


def test_it_starts_vmad(images, image, container):
    assert '["vmad","--console","--agent-socket",""]' in images.run("image", "inspect", "--format", "{{json .Config.Cmd}}", image)
    assert "--console" in container("vmad", "--help")


def test_redis_is_accelerated_in_it(container):
    said = container("bash", "-c", (
        f'VMA_TRACELEVEL=debug VMA_LOG_FILE=/tmp/server.log vma run -- redis-server --port {PORT} --save "" >/tmp/said & '
        "grep -q -m 1 'Ready to accept' <(exec tail -n +1 -F /tmp/said 2>/dev/null) && "
        f"VMA_LOG_FILE=/tmp/client.log vma run -- redis-benchmark -p {PORT} -t set,get -n 20000 -q; "
        f"redis-cli -p {PORT} shutdown nosave; cat /tmp/server.log"
    ))
    assert "SET: " in said and "GET: " in said
    assert re.search(rf":{PORT}\b.* accelerated: device local", said), said[-3000:]


def test_the_check_says_what_is_missing(container):
    """Of a container that has nothing of the host's: vmad's folder alone."""
    said = container("sh", "-c", "vma check; true")
    assert "libvma.so" in said and "vmad is not at /run/vma/broker" in said, said
