"""Which source files may share a translation unit: tidy.py and together.py look at, or compile, several at once, as most of what a file
takes is its headers. It checks nothing itself."""

import re

import tree

MOST = 16  # files: clang-tidy takes a third less time than for 8; more are worse to share among processors
# What a file declares in a namespace (a line that is not indented), but for members of classes; and enumerators.
DECLARED = re.compile(
    r"^(?:(?!namespace|using|static_assert)\w[^(=;{}]*?(?<!:)\b(?=\w+(?: final)?\s*[(=;{\[])"
    r"|    (?=k\w+(?: = \w+)?,))"
    r"(\w+)",
    re.MULTILINE,
)


def find(names, kind):
    """Lists of files of one kind that may go together: no two of a list declare the same name. `kind(name)`: any value."""
    found = []
    for name in names:
        text = (tree.ROOT / name).read_text(encoding="utf-8")
        mine, declared = (kind(name), "<netinet/tcp.h>" in text), set(DECLARED.findall(text))  # the kernel's header has the same names
        for whose, others, files in found:
            if whose == mine and len(files) < MOST and not others & declared:
                files.append(name)
                others |= declared
                break
        else:
            found.append((mine, declared, [name]))
    return [files for _, _, files in found]
