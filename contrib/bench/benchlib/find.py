# SPDX-License-Identifier: BSD-2-Clause
"""Where the library and our own small programs are: in a build tree, or installed."""
from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

TOP = Path(__file__).resolve().parents[3]


def _build_trees() -> list[Path]:
    return [Path.cwd() / "build", Path.cwd(), TOP / "build", TOP]


def library(wanted: str | None) -> Path | None:
    """libvma.so: the one asked for, else of the build tree nearest to where we are, else the installed one."""
    if wanted:
        path = Path(wanted).resolve()
        return path if path.is_file() else None
    places = [tree / ".libs" for tree in _build_trees()] + [TOP, Path("/usr/local/lib"), Path("/usr/lib")]
    places += sorted(Path("/usr/lib").glob("*-linux-gnu"))
    return next((place / "libvma.so" for place in places if (place / "libvma.so").is_file()), None)


def helper(name: str, lib: Path | None) -> Path | None:
    """A program of contrib/bench, or vma_lat, in the build tree that the library is of."""
    trees = ([lib.parent.parent] if lib else []) + _build_trees()
    for tree in trees:
        for path in (tree / "contrib" / "bench" / name, tree / name):
            if path.is_file() and os.access(path, os.X_OK):
                return path
    return None


def compiled(name: str, folder: Path, *command: str) -> Path:
    """A program of contrib/bench that is not in the build tree, as only its own benchmark needs it. `command` is a
    compiler with the files and options."""
    path = folder / name
    subprocess.run([*command, "-I", str(TOP), "-o", str(path)], check=True)
    return path


def program(name: str) -> Path | None:
    """A program of the system; servers may be in sbin, which is not on everyone's path."""
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin:/usr/local/sbin")
    return Path(found) if found else None
