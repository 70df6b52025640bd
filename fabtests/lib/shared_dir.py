# SPDX-License-Identifier: BSD-2-Clause
"""The library's shared directory, seen from outside: what is in it, and whether it belongs to somebody alive."""

import os
import pathlib
import socket
import stat

from . import build

# What belongs to no process and stays: the link to the words that say when offers have changed, one for each IPC namespace.
_LASTING = "generation-"


def entries(shm: pathlib.Path) -> list[str]:
    """Everything in the directory but directories, as relative paths."""
    return sorted(os.path.join(os.path.relpath(folder, shm), name).removeprefix("./")
                  for folder, folders, files in os.walk(shm) for name in files
                  ) + sorted(str(p.relative_to(shm)) for p in shm.glob("**/*") if p.is_dir() and p.is_symlink())


def of_the_dead(shm: pathlib.Path) -> list[str]:
    """Called when every process that used the directory is gone: what they left."""
    return [name for name in entries(shm) if not os.path.basename(name).startswith(_LASTING)]


def _is_answered(path: pathlib.Path) -> bool:
    """Somebody listens under the name."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK) as caller:
        try:
            caller.connect(str(path))
        except BlockingIOError:
            return True
        except OSError:
            return False
    return True


def left_for_good(runner) -> list[str]:
    """What processes that are gone left, and the next start of a program did not remove."""
    shm = runner.shm
    info = shm.stat()
    if stat.S_IMODE(info.st_mode) != 0o700 or info.st_uid != os.geteuid():
        return []  # no directory that the library would use

    def files():  # the next program may choose the name of a dead one for itself: another file then
        return {(name, (shm / name).lstat().st_ino) for name in of_the_dead(shm)}

    if not files():
        return []
    # A process that another one has killed, as a launcher does with its ranks, may take a while to end.
    runner.wait_until(lambda: not any(_is_answered(shm / name) for name, _ in files()), "who listens in the directory to end")
    left = files()
    runner.rules.write_text("")
    runner.run("next", [build.program("sockets/programs/one_process")], vma=True, mode="latency", env={"FABTEST_LIFT": "1"})
    return [f"{name} of a dead process is still in the shared directory" for name, _ in sorted(left & files())]
