"""Which source files the project has. The checks beside this file use it; it checks nothing itself."""

import os
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
CXX = (".cpp", ".hpp", ".h")
SCRIPTS = (".py", ".sh")
FOLDERS = ("compat", "contrib", "fabtests", "include", "prov", "util")


def files(suffixes=CXX):
    """Paths relative to ROOT, sorted: what git tracks, or in an unpacked tarball what the source folders hold."""
    if (ROOT / ".git").exists():
        # The clone may be another user's, as it is in a container that mounts it.
        git = ["git", "-c", "safe.directory=*", "-C", ROOT]
        out = subprocess.run([*git, "ls-files", "-z"], check=True, capture_output=True, text=True)
        names = [n for n in out.stdout.split("\0") if n]
    else:
        names = [
            os.path.relpath(os.path.join(folder, n), ROOT)
            for top in FOLDERS
            for folder, _, found in os.walk(ROOT / top)
            for n in found
        ]
    return sorted(n for n in names if n.endswith(suffixes) and (ROOT / n).is_file())
