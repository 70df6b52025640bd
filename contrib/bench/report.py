#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Prints what a result file of bench.py says: as text or as the Markdown of doc/figures.md, and draws pictures anew."""
from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

sys.dont_write_bytecode = True

from benchlib import pictures, results, tables  # noqa: E402


def put_between_marks(text: str, table: str) -> str:
    """`text` with `table` between the lines '<!-- figures begin ... -->' and '<!-- figures end -->'."""
    marks = re.search(r"(?ms)^<!-- figures begin[^\n]*-->\n(.*?)^<!-- figures end -->$", text)
    if not marks:
        raise ValueError("no marks '<!-- figures begin ... -->' and '<!-- figures end -->'")
    return text[:marks.start(1)] + table + "\n" + text[marks.end(1):]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path, nargs="?", default=Path("bench-out/bench.json"), help="default %(default)s")
    parser.add_argument("--markdown", action="store_true", help="the table of doc/figures.md")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="put that table between the marks of this file")
    parser.add_argument("--pictures", type=Path, metavar="DIR", help="draw the pictures into DIR")
    args = parser.parse_args()
    try:
        result = results.load(args.file)
    except (OSError, ValueError) as error:
        sys.exit(f"report.py: {error}")
    if args.write:
        try:
            args.write.write_text(put_between_marks(args.write.read_text(), tables.page(result)))
        except (OSError, ValueError) as error:
            sys.exit(f"report.py: {args.write}: {error}")
    else:
        print(tables.page(result) if args.markdown else tables.report(result))
    if args.pictures:
        for picture in pictures.draw(result, args.pictures):
            print(f"picture: {picture}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
