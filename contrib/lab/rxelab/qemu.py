# SPDX-License-Identifier: BSD-2-Clause
"""A QEMU process. All that it shares with us are inherited descriptors, so nothing is in the file system that somebody
could find or that could be left there; and the kernel kills it when we end, whichever way we do."""

import ctypes
import os
import signal
import socket
import subprocess
import tempfile

from . import initramfs
from .errors import find

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)
# quiet: a serial line is slow. mitigations: there is nobody to be guarded from. panic: QEMU ends then (-no-reboot).
_KERNEL_ARGUMENTS = "console=ttyS0 quiet panic=-1 mitigations=off no_timer_check random.trust_cpu=on"


class Machine:
    def __init__(self, guest, kernel, wire: socket.socket | None, port: socket.socket, memory: int):
        """`wire`, `port`: the guest's ends of its network and of its agent's channel; stay the caller's. `memory` in MiB."""
        self._console = tempfile.TemporaryFile()
        archive = initramfs.build(kernel, kind=guest.kind, role=guest.role, mtu=guest.mtu, address=guest.address,
                                  address6=guest.address6, library=guest.library)
        initrd = os.memfd_create("initramfs")
        try:
            with open(initrd, "wb", closefd=False) as file:
                file.write(archive)
            shared = [port.fileno(), initrd, *([wire.fileno()] if wire else [])]
            arguments = _arguments(guest, kernel, port.fileno(), initrd, memory)
            if wire:
                # A pair of UNIX datagram sockets is the wire: a frame is a datagram.
                arguments += ["-netdev", f"dgram,id=wire,local.type=fd,local.str={wire.fileno()}",
                              "-device", f"virtio-net-pci,netdev=wire,mac={guest.mac},romfile="]
            self._process = subprocess.Popen(
                [find("qemu-system-x86_64"), *arguments], stdin=subprocess.DEVNULL, stdout=self._console,
                stderr=subprocess.STDOUT, pass_fds=shared, start_new_session=True,
                preexec_fn=_die_with(os.getpid()))
        finally:
            os.close(initrd)

    def console(self) -> str:
        """What came over the serial line, and QEMU's own complaints."""
        return os.pread(self._console.fileno(), 1 << 20, 0).decode(errors="replace")

    def kill(self):
        self._process.kill()
        self._process.wait()


def _arguments(guest, kernel, port: int, initrd: int, memory: int) -> list[str]:
    # The emulated processor even where there is a real one (KVM): the same behaviour everywhere.
    return [
        "-machine", "q35", "-accel", "tcg", "-cpu", "max", "-m", str(memory), "-smp", str(guest.processors),
        "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-serial", "stdio",
        "-kernel", str(kernel.image), "-initrd", f"/proc/self/fd/{initrd}", "-append", _KERNEL_ARGUMENTS,
        "-fsdev", "local,id=machine,path=/,security_model=none,readonly=on,multidevs=remap",
        "-device", f"virtio-9p-pci,fsdev=machine,mount_tag={initramfs.TAG}",
        "-device", "virtio-serial-pci", "-chardev", f"socket,id=agent,fd={port}",
        "-device", "virtserialport,chardev=agent",
    ]


def _die_with(parent: int):
    def before_exec():
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(127)

    return before_exec
