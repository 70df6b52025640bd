#!/usr/bin/env python3
"""clang-tidy over the products' sources, with the checks of .clang-tidy: `tidy.py BUILD [--jobs N] [FILE...]`.

BUILD is a configured build folder. A file that passed is not looked at again until it, a header of ours that it
includes, the flags or .clang-tidy change. Tests are left out: fixtures do on purpose what code should not.
"""

import argparse
import concurrent.futures
import hashlib
import json
import pathlib
import shutil
import subprocess
import sys

import includes
import tree


def is_product(name):
    return name.startswith(("prov/", "compat/", "util/")) and "/test/" not in name


def closure(name, seen):
    """`name` and every header of ours that it includes, however deep."""
    if name in seen:
        return seen
    seen.add(name)
    for line in (tree.ROOT / name).read_text(encoding="utf-8", errors="replace").splitlines():
        match = includes.INCLUDE.match(line)
        if match:
            target = includes.resolve(match[2], name, lambda path: (tree.ROOT / path).is_file())
            if target:
                closure(target, seen)
    return seen


def fingerprint(name, flags):
    digest = hashlib.sha256(flags)
    for part in sorted(closure(name, set())):
        digest.update(part.encode() + b"\0" + (tree.ROOT / part).read_bytes())
    return digest.hexdigest()


def tidy(tool, build, name, stamp):
    done = subprocess.run(
        [tool, "--quiet", "-p", build, str(tree.ROOT / name)], capture_output=True, text=True, check=False
    )
    if done.returncode == 0:
        stamp.touch()
        return ""
    return done.stdout or done.stderr


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("files", nargs="*")
    args = parser.parse_args()

    tool = shutil.which("clang-tidy-14") or shutil.which("clang-tidy")
    if tool is None:
        print("clang-tidy is not installed")
        return 77
    subprocess.run(["make", "-s", "-C", args.build, "compile_commands.json"], check=True)
    commands = json.loads((args.build / "compile_commands.json").read_text())
    flags = json.dumps(commands[0]["arguments"][:-1]).encode() + (tree.ROOT / ".clang-tidy").read_bytes()

    cache = args.build / "tidy-passed"
    cache.mkdir(exist_ok=True)
    names = args.files or [name for name in tree.files((".cpp",)) if is_product(name)]
    stamps = {name: cache / fingerprint(name, flags) for name in names}
    todo = [name for name in names if not stamps[name].exists()]
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        for said in pool.map(lambda name: tidy(tool, args.build, name, stamps[name]), todo):
            if said:
                failed += 1
                print(said)
    print(f"{len(names)} files, {len(names) - len(todo)} unchanged since they passed, {failed} with findings")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
