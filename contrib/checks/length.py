#!/usr/bin/env python3
"""One idea a file, a screen a function: fails where a source file of ours has more than 500 lines, a function more than
60, a comment more than 120 columns, or a folder more than 40 source files."""

import ast
import collections
import os.path
import re
import sys

import tree

MOST_LINES, MOST_OF_A_FUNCTION, MOST_COLUMNS, MOST_OF_A_FOLDER = 500, 60, 120, 40
ONE_BY_NATURE = {"include/rdma/fi_ext_vma.h"}  # what a program includes: a public header is one file
# As clang-format sets it: the braces of a function stand in lines of their own, and so do those of a class.
OPENS = re.compile(r"^( *)\{$")
# A line that is a comment; but for a table in one, such as how a program is called, which clang-format keeps as it stands.
COMMENT = re.compile(r"^\s*(//|/\*|\*)(?!   )")
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
    if lines > MOST_LINES and name not in ONE_BY_NATURE:
        yield f"{name}: {lines} lines, more than {MOST_LINES}: split it"
    for first, length in functions:
        if length > MOST_OF_A_FUNCTION:
            yield f"{name}:{first}: a function of {length} lines, more than {MOST_OF_A_FUNCTION}: split it"


def wide_comments(name, text):
    for number, line in enumerate(text.splitlines(), 1):
        if len(line) > MOST_COLUMNS and COMMENT.match(line):
            yield f"{name}:{number}: a comment of {len(line)} columns, more than {MOST_COLUMNS}: wrap it"


def crowded(names):
    for folder, number in sorted(collections.Counter(map(os.path.dirname, names)).items()):
        if number > MOST_OF_A_FOLDER:
            yield f"{folder}: {number} source files, more than {MOST_OF_A_FOLDER}: give those that belong together a folder"


def main():
    names = tree.files(tree.CXX + tree.SCRIPTS)
    said = list(crowded(names))
    for name in names:
        text = (tree.ROOT / name).read_text(encoding="utf-8", errors="replace")
        lines, functions = text.count("\n"), list(functions_of(name, text))
        said += findings(name, lines, functions)
        if name.endswith(tree.CXX):
            said += wide_comments(name, text)
    if said:
        print(*said, sep="\n")
    return 1 if said else 0


if __name__ == "__main__":
    sys.exit(main())
