#!/usr/bin/python3
"""What of the whole-program tests is one pytest of its own: a file, or a part of one that takes long. The longest begin first.

    units.py LOGS    writes seconds.txt anew, from the reports that a check of fabtests left in LOGS
"""

import collections
import dataclasses
import math
import pathlib
import re
import sys
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parents[2]
SECONDS = pathlib.Path(__file__).with_name("seconds.txt")
ELSEWHERE = ("lab", "packages")  # stages of their own
# Folders and files that say most for their time: every pairing and call form, what faults and other users do, conservation, datagrams, the
# order of events, the extra API, libfabric's conformance, MPI; the rest is for `check --all`.
CORE = ("test_linkage.py", "test_world.py", "extra", "fabric", "posix/test_messages.py", "posix/test_order.py",
        *(f"sockets/test_{name}.py" for name in (
            "bad_pointers", "compared", "conserve", "datagram_hostile", "datagrams", "event_order", "faults", "first_byte", "multicast", "offers", "programs",
            "rules", "semantics", "short_connections", "stream_forms", "users")),
        *(f"util/test_{name}.py" for name in ("vma", "vma_lat", "vma_stats", "vmad_broker")))
LONGEST = 40  # seconds of a unit
NEW = 60  # seconds of a file that seconds.txt doesn't know: early, as it may be a long one
ALL_ALONE = re.compile(r"^pytestmark = .*\bpytest\.mark\.alone\b", re.MULTILINE)
SOME_ALONE = re.compile(r"\bpytest\.mark\.alone\b")


@dataclasses.dataclass(frozen=True)
class Unit:
    file: str  # from the top folder on
    part: int
    parts: int
    alone: bool  # its cases measure, or count on a processor for each of their programs
    chosen: tuple  # more arguments of pytest
    seconds: float

    @property
    def name(self):
        words = pathlib.PurePath(self.file).with_suffix("").parts[1:]
        return "-".join((*words, *(["alone"] if self.alone else []), *([str(self.part + 1)] if self.parts > 1 else [])))

    @property
    def arguments(self):
        return [self.file, *self.chosen]

    @property
    def environment(self):
        return {"FABTESTS_PART": f"{self.part}/{self.parts}"}


def known(file=SECONDS):
    """{file: seconds that its cases take one after the other}."""
    lines = (line.split() for line in file.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#"))
    return {name: float(seconds) for seconds, name in lines}


def of_file(path, seconds):
    """The units of a test file. Those that are alone are one."""
    name, text = str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")
    if ALL_ALONE.search(text):
        return [Unit(name, 0, 1, True, (), seconds)]
    some = bool(SOME_ALONE.search(text))
    parts = max(1, math.ceil(seconds / LONGEST))
    beside = [Unit(name, part, parts, False, ("-m", "not alone") if some else (), seconds / parts) for part in range(parts)]
    return [*beside, *([Unit(name, 0, 1, True, ("-m", "alone"), seconds)] if some else [])]


def is_core(path):
    return any(path.is_relative_to(ROOT / "fabtests" / name) for name in CORE)


def find(core):
    """Those of the core, or all others: which may run beside others, and which are alone; of each the longest first."""
    seconds = known()
    files = [path for path in sorted((ROOT / "fabtests").rglob("test_*.py")) if path.parent.name not in ELSEWHERE and is_core(path) == core]
    found = [unit for path in files for unit in of_file(path, seconds.get(str(path.relative_to(ROOT)), NEW))]
    found.sort(key=lambda unit: -unit.seconds)
    return [unit for unit in found if not unit.alone], [unit for unit in found if unit.alone]


def write(logs):
    spent = collections.Counter()
    for report in (*logs.glob("core-*.xml"), *logs.glob("fabtests-*.xml")):
        for test in xml.etree.ElementTree.parse(report).iter("testcase"):
            spent[f"fabtests/{test.get('file')}"] += float(test.get("time"))
    with open(SECONDS, "w", encoding="utf-8") as out:
        out.write(f"# Seconds of each file's cases, one after the other: `contrib/checks/units.py LOGS`, {len(spent)} files.\n")
        out.writelines(f"{math.ceil(seconds)} {name}\n" for name, seconds in sorted(spent.items(), key=lambda one: (-one[1], one[0])))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    write(pathlib.Path(sys.argv[1]))
