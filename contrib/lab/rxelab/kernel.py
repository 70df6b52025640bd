# SPDX-License-Identifier: BSD-2-Clause
"""The guests' kernel: Debian's package, downloaded by apt, unpacked and not installed: no boot loader runs. What is
kept, in the user's cache directory, is the kernel's image and the modules that the guests load."""

import lzma
import os
import pathlib
import re
import shutil
import struct
import subprocess
import tempfile
import zlib

from .errors import LabError, find

META_PACKAGE = "linux-image-amd64"
# What the guests load; what these need comes with them. crc32_generic: rdma_rxe asks the crypto API for it by name. The
# last three: nothing in the guest loads a module when the kernel wants one.
MODULES = ("virtio_pci", "virtio_console", "9pnet_virtio", "9p", "overlay", "virtio_net", "crc32_generic", "rdma_rxe",
           "ib_uverbs", "rdma_ucm", "sch_netem", "tcp_diag", "udp_diag", "unix_diag")


class Kernel:
    """`image` is what QEMU boots; `modules` are files, in the order in which they must be loaded."""

    def __init__(self, folder: pathlib.Path):
        self.image = folder / "vmlinux"
        self.modules = sorted((folder / "modules").iterdir())


def cache_dir() -> pathlib.Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return (pathlib.Path(base) if base else pathlib.Path.home() / ".cache") / "ofi-vma" / "lab"


def get(say=lambda text: None) -> Kernel:
    """From the cache, where it is put first if it is not there. `say` is told of what takes long."""
    # Another list of modules is another kernel to the cache.
    folder = cache_dir() / f"kernel-{zlib.crc32(' '.join(MODULES).encode()):08x}"
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="new-", dir=folder.parent) as work:
            _fetch(pathlib.Path(work), say)
            try:
                (pathlib.Path(work) / "keep").rename(folder)
            except OSError:
                if not folder.exists():  # else somebody else was faster, with the same
                    raise
    return Kernel(folder)


def _fetch(work: pathlib.Path, say):
    """Leaves in work/keep what Kernel wants to find."""
    package = _download(work, say)
    root = work / "root"
    _run("dpkg-deb", "-x", package, root)
    (version,) = os.listdir(root / "lib/modules")
    _run("depmod", "-b", root, version)
    keep = work / "keep"
    (keep / "modules").mkdir(parents=True)
    (keep / "vmlinux").write_bytes(_unpacked((root / "boot" / f"vmlinuz-{version}").read_bytes()))
    wanted = _run("modprobe", "-d", root, "-S", version, "-C", "/dev/null", "--show-depends", "-a", *MODULES)
    # Lines are "insmod PATH OPTION...", or "builtin NAME"; a module that several need is there several times.
    files = dict.fromkeys(re.findall(r"^insmod (\S+)", wanted, re.MULTILINE))
    for number, file in enumerate(files):
        shutil.copy(file, keep / "modules" / f"{number:02}-{os.path.basename(file)}")


def _unpacked(image: bytes) -> bytes:
    """The ELF file in a bzImage, which QEMU starts by its PVH entry: an emulated processor takes 5 s to unpack it.
    Offsets: the kernel's Documentation/x86/boot.rst, "The Real-Mode Kernel Header"."""
    setup_sectors = image[0x1F1] or 4
    offset, length = struct.unpack_from("<II", image, 0x248)
    packed = image[(setup_sectors + 1) * 512 + offset :][:length]
    try:
        return lzma.LZMADecompressor(lzma.FORMAT_XZ).decompress(packed)  # 4 bytes follow, the size
    except lzma.LZMAError as error:
        raise LabError(f"the kernel is not packed with xz, as Debian 12's is: {error}") from None


def _download(work: pathlib.Path, say) -> pathlib.Path:
    """The package file. Where apt's lists of the machine are missing or too old, lists of our own are fetched."""
    lists = work / "lists"
    (lists / "partial").mkdir(parents=True)
    own = ["-o", f"Dir::State::lists={lists}", "-o", f"Dir::Cache={work}"]
    failed = None
    for options in ([], own):
        try:
            if options:
                say("apt's package lists")
                _run("apt-get", *options, "-q", "update")
            depends = _run("apt-cache", *options, "depends", META_PACKAGE)
            name = re.search(r"Depends: (linux-image-\S+)", depends)
            if name is None:
                raise LabError(f"apt-cache knows no {META_PACKAGE}")
            say(name[1])
            # As root apt would download as another user, who may not write here.
            _run("apt-get", *options, "-q", "-o", "APT::Sandbox::User=root", "download", name[1], cwd=work)
            return next(work.glob("linux-image-*.deb"))
        except LabError as error:
            failed = error
    raise LabError(f"Debian's kernel package could not be had from apt: {failed}")


def _run(name, *arguments, cwd=None) -> str:
    done = subprocess.run([find(name), *map(str, arguments)], cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, env={**os.environ, "LC_ALL": "C"}, check=False)
    if done.returncode:
        raise LabError(f"{name} {' '.join(map(str, arguments))} ended with {done.returncode}: {done.stderr.strip()}")
    return done.stdout
