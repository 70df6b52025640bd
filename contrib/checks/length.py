#!/usr/bin/env python3
"""One idea a file, a screen a function: fails where a source file of ours has more than 500 lines, or a function more than 60."""

import ast
import re
import sys

import tree

MOST_LINES, MOST_OF_A_FUNCTION = 500, 60
ONE_BY_NATURE = {"include/rdma/fi_ext_vma.h"}  # what a program includes: a public header is one file
# Files that are still longer, and how long each may be at most. Nothing is added here; the list shrinks until it is empty.
LONG_STILL = {
    "compat/src/engine/engine.cpp": 523,
    "compat/src/transport/port.cpp": 546,
    "compat/src/transport/transmit.cpp": 574,
}
# Of these files the longest function, which may be as long as it is and no longer: likewise.
LONG_FUNCTIONS_STILL = {
    "compat/src/tcp/receive.cpp": 70,
}
# As clang-format sets it: the braces of a function stand in lines of their own, and so do those of a class.
OPENS = re.compile(r"^( *)\{$")
NO_HEAD = re.compile(r"^\s*//|[;{}:]$|^#|^$")
NO_FUNCTION = re.compile(r"^\s*(template <.*> )?(class|struct|union|enum|namespace|extern)\b")


def functions_of_cxx(lines):
    """(first line, lines) of each function: from the line that its head begins in, to the brace that ends it."""
    for number, line in enumerate(lines):
        opens = OPENS.match(line)
        if not opens:
            continue
        first = number
        while first > 0 and not NO_HEAD.search(lines[first - 1]):
            first -= 1
        if first == number or any(NO_FUNCTION.match(head) for head in lines[first:number]):
            continue
        last = next(at for at in range(number, len(lines)) if lines[at].rstrip(";") == f"{opens[1]}}}")
        yield first + 1, last - first + 1


def functions_of_python(text):
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.lineno, node.end_lineno - node.lineno + 1


def functions_of(name, text):
    if name.endswith(tree.CXX):
        return functions_of_cxx(text.splitlines())
    return functions_of_python(text) if name.endswith(".py") else ()


def findings(name, lines, functions):
    """What is too long."""
    most = LONG_STILL.get(name, MOST_LINES)
    if lines > most and name not in ONE_BY_NATURE:
        yield f"{name}: {lines} lines, more than {most}: split it"
    most = LONG_FUNCTIONS_STILL.get(name, MOST_OF_A_FUNCTION)
    for first, length in functions:
        if length > most:
            yield f"{name}:{first}: a function of {length} lines, more than {most}: split it"


def is_listed_in_vain(name, lines, functions):
    short = max((length for _, length in functions), default=0) <= MOST_OF_A_FUNCTION
    return name in LONG_STILL and lines <= MOST_LINES or name in LONG_FUNCTIONS_STILL and short


def main():
    said = []
    for name in tree.files(tree.CXX + tree.SCRIPTS):
        text = (tree.ROOT / name).read_text(encoding="utf-8", errors="replace")
        lines, functions = text.count("\n"), list(functions_of(name, text))
        said += findings(name, lines, functions)
        if is_listed_in_vain(name, lines, functions):
            print(f"{name}: is short enough now: its entry in a list of contrib/checks/length.py can go")
    if said:
        print(*said, sep="\n")
    return 1 if said else 0


if __name__ == "__main__":
    sys.exit(main())
