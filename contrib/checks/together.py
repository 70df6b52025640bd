#!/usr/bin/python3 -B
"""A compiler for builds that are made from nothing, and thrown away: `together.py COMPILER ARGUMENT...`, as CXX of configure.

Most of what a source of the products takes is its headers, and the templates that they instantiate. So those of one part are compiled
several at once: the first of them stands for all, and the objects of the others are empty. Where some do not go together, each half of them
is compiled, and so on, and the object is both. What make asks for, and which file depends on what, is as without this; it is no compiler
for what is installed, or measured.

    together.py --table    writes, in a build folder that was made with it, which files go together, as they may have changed
"""

import json
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FOLDER = "together"  # of the build folder, where compilers run
TABLE = f"{FOLDER}/table.json"  # {source: those that its object has}


def part(name):
    """The part of a product that a source belongs to, which goes into one archive, and which unit tests link by itself: they have others of
    their own in place of what it calls. None: any other source."""
    found = re.match(r"(?:compat|prov/vma)/src/[^/]+/", name)
    return found and found[0]


def write_table():
    import batches  # they are needed once in a build
    import tree

    os.makedirs(FOLDER, exist_ok=True)
    table = {}
    for files in batches.find([name for name in tree.files((".cpp",)) if part(name)], part):
        if len(files) > 1:
            table |= {name: [] for name in files}
            table[files[0]] = files
            write_batch(ROOT, files)
    write(TABLE, json.dumps(table))


def write(path, text):
    """Nothing is compiled again because of what is as it was. Several compilers may begin at once."""
    if os.path.exists(path):
        with open(path, encoding="utf-8") as old:
            if old.read() == text:
                return
    with open(f"{path}.{os.getpid()}", "w", encoding="utf-8") as new:
        new.write(text)
    os.replace(new.name, path)


def write_batch(root, files):
    """The source that includes them."""
    source = f"{FOLDER}/{files[0].replace('/', '-').removesuffix('.cpp')}-{len(files)}.cpp"
    write(source, "".join(f'#include "{root}/{name}"\n' for name in files))
    return source


def value_of(arguments, option):
    return arguments[arguments.index(option) + 1]


def with_value(arguments, option, value):
    place = arguments.index(option) + 1
    return [*arguments[:place], value, *arguments[place + 1:]]


def empty_object(arguments):
    """One without anything in it, which is made again whenever the table is another one."""
    output = value_of(arguments, "-o")
    with open(value_of(arguments, "-MF"), "w", encoding="utf-8") as dependencies:
        dependencies.write(f"{output}: {TABLE}\n{TABLE}:\n")
    return subprocess.run([arguments[0], "-c", "-x", "assembler", "-o", output, "/dev/null"], check=False).returncode


def compile_all(arguments, root, files):
    """The object of several sources. The last of the arguments is a source."""
    if len(files) == 1:
        return subprocess.run([*arguments[:-1], f"{root}/{files[0]}"], check=False).returncode
    source = write_batch(root, files)
    output, dependencies = value_of(arguments, "-o"), value_of(arguments, "-MF")
    # A class that has a member of a type of its own file's says so once, as that file is not the main one.
    together = [*arguments[:-1], "-Wno-subobject-linkage", source]
    if subprocess.run(together, check=False, capture_output=True).returncode == 0:
        with open(dependencies, "a", encoding="utf-8") as out:
            out.write(f"{source}:\n")  # it may not be there the next time
        return 0
    half = len(files) // 2
    parts = [(f"{output}-{number}", f"{dependencies}-{number}") for number in range(2)]
    for (mine, depends), some in zip(parts, (files[:half], files[half:])):
        if status := compile_all(with_value(with_value(arguments, "-o", mine), "-MF", depends), root, some):
            return status
    with open(dependencies, "w", encoding="utf-8") as out:
        out.write(f"{output}: {source}\n{source}:\n")
        for _, depends in parts:
            with open(depends, encoding="utf-8") as of_one:
                out.write(of_one.read())
    status = subprocess.run([arguments[0], "-r", "-nostdlib", "-o", output, *(mine for mine, _ in parts)], check=False).returncode
    for path in (path for both in parts for path in both):
        os.unlink(path)
    return status


def main():
    arguments = sys.argv[1:]
    if arguments == ["--table"]:
        return write_table()
    if "-c" in arguments and "-MF" in arguments:
        name = os.path.relpath(arguments[-1], ROOT)
        if part(name):
            if not os.path.exists(TABLE):
                write_table()
            with open(TABLE, encoding="utf-8") as table:
                files = json.load(table).get(name, [name])
            return compile_all(arguments, ROOT, files) if files else empty_object(arguments)
    os.execvp(arguments[0], arguments)


if __name__ == "__main__":
    sys.exit(main())
