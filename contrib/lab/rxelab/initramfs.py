# SPDX-License-Identifier: BSD-2-Clause
"""What a guest starts from: busybox, kernel modules and a script that mounts the machine's file system and starts the
agent in it, or the machine's own init, which starts the agent among its services. A cpio archive ("newc", see the kernel's Documentation/driver-api/early-userspace/buffer-format.rst)."""

import pathlib
import shlex
import stat

from .errors import find

HERE = pathlib.Path(__file__).resolve().parent
TAG = "machine"  # of the 9p export; QEMU is told the same

_INIT = """#!/bin/busybox sh
# Steps run in this order; the first that fails ends the guest, and the console says which.
PATH=/bin
fail() { echo "lab: $* failed"; poweroff -f; }
try() { "$@" || fail "$*"; }
try mount -t proc none /proc
for module in /modules/*; do try insmod "$module"; done
try mount -t 9p -o ro,trans=virtio,version=9p2000.L,cache=loose,msize=512000 %(tag)s /machine
# Whatever the guest writes is in its memory, and gone with it.
try mount -t tmpfs none /writes
try mkdir /writes/upper /writes/work
try mount -t overlay -o lowerdir=/machine,upperdir=/writes/upper,workdir=/writes/work none /root
try mount -t proc none /root/proc
try mount -t sysfs none /root/sys
try mount -t devtmpfs none /root/dev
try mkdir -p /root/dev/shm /root/dev/pts
try mount -t devpts none /root/dev/pts
for place in dev/shm run; do try mount -t tmpfs none "/root/$place"; done
try hostname %(role)s
try ip link set lo up
"""

# A host with an RDMA device, and nothing else.
_DEVICE = """
echo 0 >/proc/sys/net/ipv6/conf/eth0/accept_dad
echo 1 >/proc/sys/net/ipv6/conf/all/keep_addr_on_down
try ip link set eth0 mtu %(mtu)s up
try ip addr add %(address)s/24 broadcast + dev eth0
try ip addr add %(address6)s/64 dev eth0
try chroot /root %(rdma)s link add rxe0 type rxe netdev eth0
umount /proc
exec chroot /root /usr/bin/python3 -I -S -B %(agent)s
"""

# A whole system: its /tmp is empty, as after a boot; its init mounts the rest itself. With `library`, a folder, each program has what is there.
_SYSTEM = """
units=/root/etc/systemd/system
try cp /root%(agent)s /root/usr/local/lib/lab-agent.py
if [ -n %(library)s ]; then
    try cp /root%(library)s/libvma.so /root%(library)s/libvma-fi.so /root/usr/lib/
    echo /usr/lib/libvma.so >/root/etc/ld.so.preload
fi
printf '%%s\n' '[Unit]' DefaultDependencies=no After=sysinit.target '[Service]' \
    'ExecStart=/usr/bin/python3 -I -S -B /usr/local/lib/lab-agent.py' StandardOutput=null >$units/lab-agent.service
try mkdir -p $units/basic.target.wants
try ln -sf ../lab-agent.service $units/basic.target.wants/
for place in tmp var/tmp; do
    try mount -t tmpfs none "/root/$place"
    try chmod 1777 "/root/$place"
done
# podman's storage can't lie on an overlay: of several podmans that a boot starts at once, those that see the first one's attempt fail.
try mkdir -p /root/var/lib/containers
try mount -t tmpfs none /root/var/lib/containers
for place in dev/pts dev/shm dev sys proc run; do try umount "/root/$place"; done
exec switch_root /root /lib/systemd/systemd
"""
_ENDS = {"device": _DEVICE, "system": _SYSTEM}
_APPLETS = ("chmod", "chroot", "cp", "hostname", "insmod", "ip", "ln", "mkdir", "mount", "poweroff", "switch_root", "umount")


def build(kernel, **values) -> bytes:
    """The archive. `values`: kind ("device" or "system"), role, address, address6, mtu, library."""
    values |= {"tag": TAG, "rdma": find("rdma"), "agent": HERE / "agent.py"}
    script = (_INIT + _ENDS[values["kind"]]) % {name: shlex.quote(str(value)) for name, value in values.items()}
    archive = bytearray()
    for folder in ("bin", "dev", "proc", "machine", "modules", "root", "writes"):
        archive += _entry(folder, stat.S_IFDIR | 0o755)
    archive += _entry("bin/busybox", stat.S_IFREG | 0o755, pathlib.Path(find("/bin/busybox")).read_bytes())
    for applet in _APPLETS:
        archive += _entry(f"bin/{applet}", stat.S_IFLNK | 0o777, b"busybox")
    for module in kernel.modules:
        archive += _entry(f"modules/{module.name}", stat.S_IFREG | 0o644, module.read_bytes())
    archive += _entry("init", stat.S_IFREG | 0o755, script.encode())
    return bytes(archive + _entry("TRAILER!!!", 0))


def _entry(name: str, mode: int, data: bytes = b"") -> bytes:
    """One member: 13 fields of 8 hexadecimal digits, the name, the data, the latter two padded to 4 bytes."""
    fields = [0] * 13
    _entry.inode += 1
    fields[0], fields[1], fields[4], fields[6], fields[11] = _entry.inode, mode, 1, len(data), len(name) + 1
    member = b"070701" + b"".join(b"%08X" % field for field in fields) + name.encode() + b"\0"
    member += bytes(-len(member) % 4) + data
    return member + bytes(-len(member) % 4)


_entry.inode = 0
