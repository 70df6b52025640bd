# SPDX-License-Identifier: BSD-2-Clause
"""What this process is answered by calls that acceleration makes, with arguments of no effect: {name: error, or null if it is done}."""

import ctypes
import errno
import json
import os
import socket

KCMP, IO_URING_SETUP, NETLINK_SOCK_DIAG = 312, 425, 4  # the first on x86-64
libc = ctypes.CDLL(None, use_errno=True)


def checked(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), "refused")


def number(call, *arguments):
    checked(libc.syscall(ctypes.c_long(call), *map(ctypes.c_long, arguments)))


def pass_descriptor():
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    socket.send_fds(one, [b"x"], [0])
    socket.recv_fds(other, 1, 1)


CALLS = {
    "memfd_create": lambda: os.memfd_create("probe", os.MFD_ALLOW_SEALING),
    "eventfd": lambda: os.eventfd(0),
    "pidfd_open": lambda: os.pidfd_open(os.getpid()),
    "process_vm_readv": lambda: checked(libc.process_vm_readv(os.getpid(), None, ctypes.c_ulong(0), None, ctypes.c_ulong(0), ctypes.c_ulong(0))),
    "process_vm_writev": lambda: checked(libc.process_vm_writev(os.getpid(), None, ctypes.c_ulong(0), None, ctypes.c_ulong(0), ctypes.c_ulong(0))),
    "sock_diag": lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG),
    "passed descriptors": pass_descriptor,
    "kcmp": lambda: number(KCMP, os.getpid(), os.getpid(), 0, 0, 0),
    "io_uring_setup": lambda: number(IO_URING_SETUP, 1, 0),
}


def answer(call):
    try:
        call()
        return None
    except OSError as error:
        return errno.errorcode[error.errno]


if __name__ == "__main__":
    print(json.dumps({name: answer(call) for name, call in CALLS.items()}))
