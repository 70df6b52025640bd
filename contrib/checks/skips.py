"""Which skipped cases the check allows: contrib/checks/skips.txt has them, with what is written where."""

import dataclasses
import fnmatch
import os
import pathlib

LIST = pathlib.Path(__file__).with_suffix(".txt")
NAME = "contrib/checks/skips.txt"  # as messages call it


@dataclasses.dataclass(frozen=True)
class Allowed:
    where: frozenset  # stages, "any" or "user"
    reason: str
    why: str

    def matches(self, stage, reason, root):
        here = "any" in self.where or stage in self.where or ("user" in self.where and not root)
        return here and fnmatch.fnmatchcase(reason, self.reason)


def parse(text):
    """The lines of a list. ValueError names the line that is none."""
    allowed = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        fields = [field.strip() for field in line.split(" | ")]
        if len(fields) != 3 or not all(fields):
            raise ValueError(f"{NAME}:{number}: not WHERE | REASON | WHY: {line}")
        allowed.append(Allowed(frozenset(fields[0].split()), fields[1], fields[2]))
    return allowed


def load():
    return parse(LIST.read_text(encoding="utf-8"))


def is_allowed(allowed, stage, reason, root=None):
    """Of a case that was skipped for `reason` in a stage of the check."""
    root = os.geteuid() == 0 if root is None else root
    return any(one.matches(stage, reason, root) for one in allowed)
