#!/usr/bin/env python3
"""clang-tidy over the products' sources, with the checks of .clang-tidy: `tidy.py BUILD [--jobs N] [FILE...]`.

BUILD is a configured build folder. A file that passed is not looked at again until it, a header of ours that it
includes, the flags or .clang-tidy change. Tests are left out: fixtures do on purpose what code should not.

Most of the time goes into headers, the standard library's above all. So files are looked at several at once, one after
the other in one translation unit; where something is said of those, each half of them is looked at, and so on. What is
said of one file by itself counts.
"""

import argparse
import concurrent.futures
import hashlib
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

import batches
import includes
import tree


def is_product(name):
    return name.startswith(("prov/", "compat/", "util/")) and "/test/" not in name


def product(name):
    return name.split("/")[0]


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


class Tidy:
    """Runs clang-tidy in the build folder, with the compiler's flags that compile_commands.json has."""

    def __init__(self, tool, build, flags):
        self.tool = [tool, "--quiet", f"--config-file={tree.ROOT / '.clang-tidy'}"]
        self.build = build
        self.flags = flags

    def run(self, path, *more):
        """What clang-tidy says of one file, nothing if it passed."""
        command = [*self.tool, path, "--", *self.flags, *more]
        done = subprocess.run(command, cwd=self.build, capture_output=True, text=True, check=False)
        return (done.stdout or done.stderr) if done.returncode else ""

    def batch(self, names):
        """Findings of each of the files, in their order."""
        if len(names) == 1:
            return [self.run(tree.ROOT / names[0])]
        with tempfile.NamedTemporaryFile("w", suffix=".cpp", prefix="batch", dir=self.build / "tidy-passed", encoding="utf-8") as batch:
            batch.write("\n".join((tree.ROOT / name).read_text(encoding="utf-8") for name in names))
            batch.flush()
            said = self.run(batch.name, *sorted({f"-iquote{(tree.ROOT / name).parent}" for name in names}))
        if not said:
            return [""] * len(names)
        print(f"in halves: {', '.join(names)}")
        half = len(names) // 2
        return self.batch(names[:half]) + self.batch(names[half:])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("files", nargs="*")
    args = parser.parse_intermixed_args()

    tool = shutil.which("clang-tidy-14") or shutil.which("clang-tidy")
    if tool is None:
        print("clang-tidy is not installed")
        return 77
    subprocess.run(["make", "-s", "-C", args.build, "compile_commands.json"], check=True)
    commands = json.loads((args.build / "compile_commands.json").read_text())
    arguments = commands[0]["arguments"][1:-1]  # without the compiler's and the file's name
    flags = json.dumps(arguments).encode() + (tree.ROOT / ".clang-tidy").read_bytes()

    cache = args.build / "tidy-passed"
    cache.mkdir(exist_ok=True)
    names = args.files or [name for name in tree.files((".cpp",)) if is_product(name)]
    stamps = {name: cache / fingerprint(name, flags) for name in names}
    todo = [name for name in names if not stamps[name].exists()]
    parts, runner = batches.find(todo, product), Tidy(tool, args.build.resolve(), arguments)
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        for part, said in zip(parts, pool.map(runner.batch, parts)):
            for name, findings in zip(part, said):
                if findings:
                    failed += 1
                    print(findings)
                else:
                    stamps[name].touch()
    print(f"{len(names)} files, {len(names) - len(todo)} unchanged since they passed, {failed} with findings")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
