#!/usr/bin/env python3
"""Do relative links in the Markdown pages, and the doc/ pages and manual pages that sources name, lead somewhere?"""

import re
import sys

import tree

LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)(?:#[^)]*)?\)")
NAMED = re.compile(r"\b((?:doc|man)/(?!foo\b)[\w-]+\.(?:md|[1-8]))\b")
TEXTS = (".md", ".cpp", ".hpp", ".h", ".py", ".sh", ".inc", ".am")


def main():
    missing = []
    for name in tree.files(TEXTS):
        path = tree.ROOT / name
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
            targets = [path.parent / link for link in LINK.findall(line)] if name.endswith(".md") else []
            targets += [tree.ROOT / page for page in NAMED.findall(line)]
            missing += [f"{name}:{number}: there is no {t.name}" for t in targets if not t.exists()]
    for fault in missing:
        print(fault)
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
