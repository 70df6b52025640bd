# SPDX-License-Identifier: BSD-2-Clause
"""A file of a file system that is a program's own (FUSE), which doesn't answer when the file is closed. Whoever closes it waits, and
no signal ends that: vmad is not to be who does. Run as a program, test_vmad_broker_files.py VMAD BROKER FOLDER file|queue is that file
system, with a child that passes the broker such a file, or a socket whose queue has one. VMAD is its process."""

import contextlib
import ctypes
import errno
import os
import pathlib
import signal
import socket
import struct
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # for who runs it as a program

from lib.broker import ASK, NOT_TCP, Asker, Connection, are_joined, introduced, request  # noqa: E402
from lib.guardian import killed  # noqa: E402

_NEW_MOUNTS, _MS_REC, _MS_PRIVATE = 0x20000, 0x4000, 0x40000
_LOOKUP, _FORGET, _GETATTR, _SETATTR, _OPEN, _WRITE, _RELEASE, _FLUSH, _INIT, _INTERRUPT, _BATCH_FORGET = 1, 2, 3, 4, 14, 16, 18, 25, 26, 36, 42
_UNANSWERED = (_FORGET, _INTERRUPT, _BATCH_FORGET)
_KEPT = {"file": (_FLUSH,), "queue": (_WRITE, _SETATTR)}  # what a close waits for
_WRITEBACK = 1 << 16 | 1 << 5
_ROOT, _FILE = 1, 2  # nodes


@pytest.fixture(params=["file", "queue"])
def giver(request, run, vmad):
    """Has passed vmad a file that can't be closed, and was asked to do that."""
    folder = run.work / "files"
    folder.mkdir()
    try:
        os.close(os.open("/dev/fuse", os.O_RDWR))
    except OSError as error:
        pytest.skip(f"no file system of a program's own here: {error}")
    made = run.start("giver", [sys.executable, "-B", __file__, str(vmad.proc.pid), vmad.path, folder, request.param])
    run.wait_until(lambda: not made.alive() or "kept" in made.stdout() and f"answer {NOT_TCP}" in made.stdout(), "the file to be closed", proc=made)
    if not made.alive() and made.wait() == 77:
        made.may_fail = True
        pytest.skip(f"no file system of a program's own here: {made.stderr().strip()}")
    yield made
    if made.alive():
        killed(made)


def test_others_are_served(ask, giver, vmad, run):
    before = vmad.descriptors()
    conn = Connection()
    assert are_joined(*introduced(ask(), conn.connector, ask(), conn.acceptor))
    killed(giver)  # which ends all waits for it
    run.wait_until(lambda: vmad.descriptors() <= before, "the child to have closed it")


def test_vmad_ends(giver, vmad):
    """Though somebody still waits with what was its."""
    assert giver.alive()
    assert vmad.proc.stop() == 0
    vmad.start()


def _say(line):
    """In one write, as the file system and its child say things into the same file. print() makes several where PYTHONUNBUFFERED is set,
    and a line of the other then comes in between."""
    os.write(sys.stdout.fileno(), f"{line}\n".encode())


def _attributes(node):
    mode = 0o40755 if node == _ROOT else 0o100666
    return struct.pack("=6Q10I", node, 0, 0, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)


def _reply(operation, node):
    """None: it isn't known here."""
    if operation == _INIT:
        return struct.pack("=4I2H2I2H2I", 7, 31, 65536, _WRITEBACK, 12, 9, 65536, 1, 16, 0, 0, 0).ljust(64, b"\0")
    if operation == _LOOKUP:
        return struct.pack("=4Q2I", _FILE, 0, 3600, 3600, 0, 0) + _attributes(_FILE)
    if operation == _GETATTR:
        return struct.pack("=Q2I", 3600, 0, 0) + _attributes(node)
    if operation == _OPEN:
        return struct.pack("=Q2I", 1, 0, 0)
    return b"" if operation == _RELEASE else None


def _serve(fuse, kept):
    while True:
        _, operation, number, node = struct.unpack_from("=2I2Q", os.read(fuse, 1 << 20))
        if operation in kept:
            _say("kept")
        if operation in _UNANSWERED or operation in kept:
            continue
        reply = _reply(operation, node)
        error = -errno.ENOSYS if reply is None else 0
        reply = reply or b""
        os.write(fuse, struct.pack("=IiQ", 16 + len(reply), error, number) + reply)


def _in_a_queue(path):
    """A socket that is the last to have a file, which was written to."""
    one, other = socket.socketpair()
    file = os.open(path, os.O_RDWR)
    writer = os.open(path, os.O_RDWR)
    socket.send_fds(other, [b"x"], [file])
    os.close(file)
    other.close()
    os.write(writer, b"x" * 65536)
    return one


def _give(vmad, broker, folder, alive, kind):
    asker, path = Asker(broker), f"{folder}/file"
    if kind == "file":
        socket.send_fds(asker.sock, [request(ASK, 1)], [os.open(path, os.O_RDWR)])
    else:
        given = _in_a_queue(path)
        os.kill(vmad, signal.SIGSTOP)
        asker.ask(given)
        given.close()  # not the last one: the message has it
        os.kill(vmad, signal.SIGCONT)
    _say(f"answer {asker.hear().result}")
    os.read(alive, 1)  # until the file system's end
    os._exit(0)


def _main(vmad, broker, folder, kind):
    libc = ctypes.CDLL(None, use_errno=True)
    fuse = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={fuse},rootmode=40000,user_id=0,group_id=0".encode()
    if libc.unshare(_NEW_MOUNTS) or libc.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None) or \
            libc.mount(b"files", folder.encode(), b"fuse", 0, options):
        print(os.strerror(ctypes.get_errno()), file=sys.stderr)
        sys.exit(77)
    alive, held = os.pipe()
    if os.fork():
        os.close(alive)
        with contextlib.suppress(OSError):
            _serve(fuse, _KEPT[kind])
    else:
        os.close(fuse)
        os.close(held)
        _give(int(vmad), broker, folder, alive, kind)


if __name__ == "__main__":
    _main(*sys.argv[1:])
