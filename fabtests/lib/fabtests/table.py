# SPDX-License-Identifier: BSD-2-Clause
"""The table of what libfabric's fabtests must say of the provider, and the comparison with what they said. A line is

    provider | group | test with its arguments | outcome | reason

The outcome is "pass", "not run", "fail", or "excluded" (not even started); ubertest's has figures: "pass 12/14". Whatever is not a
plain pass must have a reason. Lines behind "[libfabric >= 2.0]" hold with such a libfabric only, and go before the common ones
there."""

import dataclasses
import pathlib
import re

from lib.fabtests.output import EXCLUDED, FAIL, NOT_RUN, PASS, Result, shorten, verdict

UNSAID = "?"  # begins a reason that --write has made up; somebody has to word it


@dataclasses.dataclass
class Row:
    outcome: str
    reason: str = ""


Key = tuple[str, str, str]  # provider, group, test


@dataclasses.dataclass
class Section:
    """Rows of one range of versions. `head`: lines of the file before them."""

    condition: str
    head: list[str]
    rows: dict[Key, Row]

    def holds(self, version: tuple[int, int]) -> bool:
        if not self.condition:
            return True
        match = re.fullmatch(r"libfabric (>=|<) (\d+)\.(\d+)", self.condition)
        if not match:
            raise ValueError(f"[{self.condition}]: neither [libfabric >= 1.2] nor [libfabric < 1.2]")
        named = (int(match[2]), int(match[3]))
        return version >= named if match[1] == ">=" else version < named

    def put(self, key: Key, row: Row) -> None:
        """A new one stands behind the others of its group."""
        behind = [] if key in self.rows else list(self.rows)
        alike = [place for place, other in enumerate(behind) if other[:2] == key[:2]]
        moved = {other: self.rows.pop(other) for other in (behind[alike[-1] + 1 :] if alike else [])}
        self.rows[key] = row
        self.rows.update(moved)


class Table:
    def __init__(self, text: str = ""):
        self.sections = [Section("", [], {})]
        for number, line in enumerate(text.splitlines(), 1):
            section = self.sections[-1]
            if match := re.fullmatch(r"\[(.*)\]", line.strip()):
                self.sections.append(Section(match[1], [line], {}))
                self.sections[-1].holds((0, 0))
            elif not line.strip() or line.startswith("#"):
                if section.rows:
                    self.sections.append(Section(section.condition, [line], {}))
                else:
                    section.head.append(line)
            else:
                fields = [field.strip() for field in line.split(" | ", 4)]
                fields[-1] = fields[-1].removesuffix(" |").strip()
                if len(fields) not in (4, 5) or verdict(fields[3]) not in (PASS, FAIL, NOT_RUN, EXCLUDED):
                    raise ValueError(f"line {number}: no provider | group | test | outcome | reason: {line}")
                key = (fields[0], fields[1], fields[2])
                if any(key in other.rows for other in self.sections if other.condition == section.condition):
                    raise ValueError(f"line {number}: a second line for {' | '.join(key)}")
                section.rows[key] = Row(fields[3], fields[4] if len(fields) == 5 else "")

    @classmethod
    def read(cls, path: pathlib.Path) -> "Table":
        try:
            return cls(path.read_text(encoding="utf-8") if path.exists() else "")
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error

    def text(self) -> str:
        lines = []
        for section in self.sections:
            lines += section.head
            for key, row in section.rows.items():
                lines.append(" | ".join([*key, row.outcome, *([row.reason] if row.reason else [])]))
        return "\n".join(lines) + "\n" if lines else ""

    def _place(self, key: Key, version: tuple[int, int]) -> Section | None:
        """The section whose row holds: of a range of versions before the common one."""
        found = [section for section in self.sections if key in section.rows and section.holds(version)]
        return next((section for section in found if section.condition), found[0] if found else None)

    def row(self, key: Key, version: tuple[int, int]) -> Row | None:
        section = self._place(key, version)
        return section.rows[key] if section else None

    def tests(self, provider: str, group: str, version: tuple[int, int]) -> dict[str, Row]:
        """All that is expected of a group."""
        keys = {key: None for section in self.sections if section.holds(version) for key in section.rows}
        return {key[2]: self.row(key, version) for key in keys if key[:2] == (provider, group)}

    def update(self, provider: str, group: str, results: list[Result], version: tuple[int, int]) -> None:
        """Makes the rows say what has been seen. A reason stays while the verdict does."""
        for result in results:
            key = (provider, group, result.name)
            section = self._place(key, version) or self.common(provider, group)
            section.put(key, Row(result.outcome, next_reason(section.rows.get(key), result)))

    def common(self, provider: str, group: str) -> Section:
        """Where a new row goes: behind others of its group, else at the end of the common ones."""
        common = [section for section in self.sections if not section.condition]
        alike = [section for section in common if any(key[:2] == (provider, group) for key in section.rows)]
        return (alike or common)[-1]


def plain_pass(outcome: str) -> bool:
    """Nothing is missing in it."""
    match = re.fullmatch(rf"{PASS} (\d+)/(\d+)", outcome)
    return match[1] == match[2] if match else outcome == PASS


def next_reason(old: Row | None, result: Result) -> str:
    if plain_pass(result.outcome):
        return ""
    if old and old.reason and verdict(old.outcome) == result.verdict:
        return old.reason
    errors = [line.strip() for line in result.said if re.search(r"ret=-|rror", line)]
    return f"{UNSAID} {errors[0] if errors else 'nothing was said'}"


def differences(rows: dict[str, Row], results: list[Result]) -> list[str]:
    """What is not as the table says, each with what the test printed. A row whose test was not among the results is none:
    another fabtests may have had it."""
    found = []
    for result in results:
        row = rows.get(result.name)
        said = "".join(f"\n      {line}" for line in shorten(result.said))
        if row is None:
            found.append(f"{result.name}: {result.outcome}, and the table does not name it{said}")
        elif row.outcome != result.outcome:
            better = result.verdict == PASS and verdict(row.outcome) != PASS
            found.append(f"{result.name}: {result.outcome}, and the table says {row.outcome}"
                         + (": update the table" if better else "") + said)
        elif not plain_pass(row.outcome) and (not row.reason or row.reason.startswith(UNSAID)):
            found.append(f"{result.name}: {row.outcome}, as the table says, but the table gives no reason{said}")
    return found


def absent(rows: dict[str, Row], results: list[Result]) -> list[str]:
    """Tests of the table that were not among the results."""
    there = {result.name for result in results}
    return [name for name in rows if name not in there]
