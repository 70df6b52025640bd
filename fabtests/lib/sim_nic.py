# SPDX-License-Identifier: BSD-2-Clause
"""Whole programs on the simulated NIC (doc/simulated-nic.md): it stands between the left host's kernel and the wire."""

import ctypes
import pathlib

from lib import build

_CLONE_NEWNS, _MS_BIND, _MS_REC, _MS_PRIVATE = 0x20000, 0x1000, 0x4000, 0x40000
_libc = ctypes.CDLL(None, use_errno=True)


def _must(result):
    if result != 0:
        raise OSError(ctypes.get_errno(), "a mount namespace")


def make_sysfs(folder) -> pathlib.Path:
    """What the kernel would say of the device that the left host's interface belongs to."""
    table = folder / "sys/class/infiniband/sim0/ports/1/gid_attrs/ndevs"
    table.mkdir(parents=True)
    (table / "0").write_text("wire\n", encoding="ascii")
    return folder / "sys"


def enter(hosts, sysfs):
    """Before a program is started: the left host, whose /sys/class names the NIC."""
    hosts.left.enter()
    _must(_libc.unshare(_CLONE_NEWNS))
    _must(_libc.mount(None, b"/", None, _MS_REC | _MS_PRIVATE, None))
    _must(_libc.mount(bytes(sysfs / "class"), b"/sys/class", None, _MS_BIND, None))


def environment(hosts, preloaded, *more) -> dict[str, str]:
    """The NIC in rdma-core's place, behind the libraries that are preloaded already, and before those of ours that are named."""
    libraries = build.build_dir() / "fabtests/ether/programs"
    ours = [str(libraries / f"{name}.so") for name in ("sim_dlopen", *more)]
    return {"LD_PRELOAD": " ".join([*preloaded, *ours]), "IPATH_NO_BACKTRACE": "1",
            "SIM_NIC_LIBRARY": str(libraries / "sim_rdmacm.so"),
            "SIM_NIC_NETWORK": f"/run/netns/{hosts.middle.name}"}
