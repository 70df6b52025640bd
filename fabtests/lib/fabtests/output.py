# SPDX-License-Identifier: BSD-2-Clause
"""What libfabric's runfabtests.sh prints, read test by test. It starts nothing, and knows nothing of what is expected."""

import dataclasses
import re

PASS, FAIL, NOT_RUN, EXCLUDED = "pass", "fail", "not run", "excluded"
_VERDICTS = {"Pass": PASS, "Fail": FAIL, "Notrun": NOT_RUN, "Excluded": EXCLUDED}

# A side that ends so wants something that is not offered (FI_ENODATA, FI_ENOSYS), or has lost a peer that had ended before
# (ECONNABORTED, ECONNRESET, ENOTCONN, ECONNREFUSED).
_NOT_OFFERED = {61, 38}
_PEER_LOST = {103, 104, 107, 111}

_NO_PREFIX = "Provider disabled requested prefix mode"

# The shell says of a crash before runfabtests.sh says of which test.
_CRASH = re.compile(r".*runfabtests\.sh: line \d+: .*(Segmentation fault|Aborted|Bus error|Illegal instruction|Floating point)")

_UBERTEST_ENDS = ("Success", "Skipped", "ENODATA", "ENOSYS", "EIO", "ERROR")


@dataclasses.dataclass
class Result:
    """One test: `outcome` as the table has it, how many cases it stands for, and what each side printed."""

    name: str
    outcome: str
    said: list[str] = dataclasses.field(default_factory=list)
    passed: int = 0
    failed: int = 0
    not_run: int = 0
    seconds: int = 0

    @property
    def verdict(self) -> str:
        """The outcome without figures."""
        return verdict(self.outcome)


def verdict(outcome: str) -> str:
    return re.sub(r" \d+/\d+$", "", outcome)


class Reader:
    """Takes the lines of `runfabtests.sh -vv` (or -vvv) as they come. feed() gives a test when the next thing begins;
    finish() the last one. `whole`: the script has come to its end, and counted what was read."""

    def __init__(self, provider: str):
        self._suffix = f' -p "{provider}"'
        self._lines: list[str] = []
        self._crashes: list[str] = []  # of the next test
        self._crashed: list[str] = []  # of the one whose lines are being read
        self._count = {PASS: 0, FAIL: 0, NOT_RUN: 0}
        self._totals: dict[str, int] = {}
        self.stray: list[str] = []  # lines that belong to no test

    def feed(self, line: str) -> Result | None:
        line = line.rstrip("\n")
        if _CRASH.match(line):
            self._crashes.append(line)
            return None
        if line.startswith("- name:"):
            done = self._result()
            self._lines, self._crashed, self._crashes = [line], self._crashes, []
            return done
        if line.startswith("# "):
            if match := re.match(r"# Total (Pass|Notrun/Excluded|Fail) +(\d+)$", line):
                self._totals[match[1]] = int(match[2])
            return self.finish()
        if self._lines:
            self._lines.append(line)
        elif line.strip() and line != "server finished":
            self.stray.append(line)
        return None

    def finish(self) -> Result | None:
        done = self._result()
        self._lines = []
        return done

    @property
    def whole(self) -> bool:
        return self._totals == {
            "Pass": self._count[PASS],
            "Notrun/Excluded": self._count[NOT_RUN],
            "Fail": self._count[FAIL],
        }

    def _result(self) -> Result | None:
        if not self._lines:
            return None
        name = self._lines[0].split(":", 1)[1].strip().replace(self._suffix, "")
        text = "\n".join(self._lines)
        match = re.search(r"^  result: (\w+)", text, re.M)
        outcome = _VERDICTS.get(match[1], FAIL) if match else FAIL
        self._count[NOT_RUN if outcome == EXCLUDED else outcome] += 1
        said = [line for line in self._lines[1:] if not re.match(r"  (timestamp|result|time):", line)]
        said = [line.removeprefix("  ") for line in said if line != "server finished"]
        said = self._crashed + said
        if outcome == FAIL and not self._crashed and lacks_only(said):
            outcome = NOT_RUN
        seconds = re.search(r"^  time: +(\d+)", text, re.M)
        result = Result(name, outcome, said, seconds=int(seconds[1]) if seconds else 0)
        if name.startswith("fi_ubertest"):
            _count_cases(result)
        else:
            result.passed, result.failed = outcome == PASS, outcome == FAIL
            result.not_run = outcome in (NOT_RUN, EXCLUDED)
        return result


def lacks_only(said: list[str]) -> bool:
    """Has a test failed only because its sides did not find in the same moment that something is not offered? fabtests counts
    it as not run only if both end with the same error; the second to look may lose its peer instead."""
    text = "\n".join(said)
    errors = [int(code) for code in re.findall(r"\bret=-(\d+) \(", text)]
    if _NO_PREFIX in text:
        errors.append(min(_NOT_OFFERED))
    return any(code in _NOT_OFFERED for code in errors) and all(code in _NOT_OFFERED | _PEER_LOST for code in errors)


def _count_cases(result: Result) -> None:
    """ubertest counts its cases at its end: the outcome then says how many of all have passed."""
    ends = {}
    for end in _UBERTEST_ENDS:
        found = re.findall(rf"^ *{end} *: (\d+)$", "\n".join(result.said), re.M)
        ends[end] = int(found[-1]) if found else 0
    result.passed = ends["Success"]
    result.not_run = ends["Skipped"] + ends["ENODATA"]
    result.failed = ends["ENOSYS"] + ends["EIO"] + ends["ERROR"]
    total = result.passed + result.not_run + result.failed
    if total == 0 or result.outcome == FAIL and result.failed == 0:
        result.outcome = FAIL  # it came to no end
        result.failed += 1
    else:
        result.outcome = f"{FAIL if result.failed else PASS} {result.passed}/{total}"
    result.said = _odd_cases(result.said)


def _odd_cases(said: list[str]) -> list[str]:
    """Of ubertest's output: what its cases were that did not succeed, and the end. The figures of the others are thousands
    of lines."""
    kept, case = [], []
    for line in said:
        if re.match(r" *Starting test \d+ / \d+", line):
            case = [line]
        elif match := re.match(r" *Ending test \d+ / \d+, result: (.*)", line):
            kept += [] if match[1].strip() == "Success" else [*case, line]
            case = []
        elif case:
            case.append(line)
        elif not re.match(r" *(lat|bw|name|bytes)\b", line):
            kept.append(line)
    return kept + case[-20:]


def shorten(said: list[str], most: int = 30) -> list[str]:
    """For people: the first and the last lines."""
    left_out = len(said) - most
    return said if left_out <= 0 else [*said[: most // 2], f"[{left_out} lines left out]", *said[-(most // 2) :]]
