# SPDX-License-Identifier: BSD-2-Clause
"""A page of doc/guides whose examples can be run: its sections, and in each of them the fenced blocks.

What stands behind the three backquotes says what a block is. `console` has commands ("$ ", or "# " where root types them),
and below each what is seen; what stands before the first is seen of the command that the terminal is still at. Words behind
it are for the test: `second` or `third` is another terminal, `stays` a last command that goes on until the section ends,
`accelerated` one whose sockets have to leave the kernel, and `not-run` an example that takes a device or changes the
machine. Any other block with a second word is a file of that name.

In what is seen N is a number and `...` any text; a line of it alone, lines; ^C what a user types then. Lines come in this
order, maybe with others between."""

import dataclasses
import re

NUMBER = r"-?\d+(?:\.\d+)?"
TERMINALS = ("first", "second", "third")
WORDS = {*TERMINALS, "stays", "accelerated", "not-run"}
_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@dataclasses.dataclass
class Command:
    text: str  # "": no new one
    seen: list[str]  # lines of the page
    interrupted: bool = False  # by ^C, as the page shows it behind what is seen


@dataclasses.dataclass
class Block:
    line: int
    kind: str
    words: list[str]
    text: str
    commands: list[Command]

    @property
    def terminal(self) -> str:
        return next((word for word in self.words if word in TERMINALS), TERMINALS[0])


@dataclasses.dataclass
class Section:
    title: str
    blocks: list[Block]

    @property
    def runs(self) -> list[Block]:
        return [block for block in self.blocks if block.commands and "not-run" not in block.words]


def _commands(lines) -> list[Command]:
    found = []
    for line in lines:
        if line.startswith(("$ ", "# ")):
            found.append(Command(line[2:], []))
        elif line.startswith("> ") and found and not found[-1].seen:
            found[-1].text += "\n" + line[2:]
        elif line.strip() == "^C":
            found[-1].interrupted = True
        elif line.strip() not in ("", "..."):
            found = found or [Command("", [])]
            found[-1].seen.append(line)
    return found


def _block(number, info, lines) -> Block:
    kind, *words = info.split() or [""]
    if kind == "console" and not set(words) <= WORDS:
        raise ValueError(f"line {number}: {info}: there is no such word")
    return Block(number, kind, words, "\n".join(lines) + "\n", _commands(lines) if kind == "console" else [])


def read(path) -> list[Section]:
    """The sections that have blocks. A section is what a heading of any depth begins."""
    sections, inside = [], None
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        fence = re.fullmatch(r"```(.*)", line)
        if fence and inside is None:
            inside = (number, fence[1], [])
        elif fence:
            sections[-1].blocks.append(_block(*inside))
            inside = None
        elif inside is not None:
            inside[2].append(line)
        elif heading := re.fullmatch(r"#+ (.*)", line):
            sections.append(Section(heading[1], []))
    if inside is not None:
        raise ValueError(f"line {inside[0]}: a block without an end")
    return [section for section in sections if section.blocks]


def pattern(line) -> re.Pattern:
    """What a line of the page stands for."""
    parts = re.split(r"(\bN\b|\s*\.\.\.\s*|\s+)", line.strip())

    def meant(part):
        if part == "N":
            return NUMBER
        if part.strip() == "...":
            return ".*"
        return r"\s+" if part.isspace() else re.escape(part)

    return re.compile("".join(meant(part) for part in parts if part))


def plain(text) -> list[str]:
    """Whole lines of a terminal, without colours."""
    return [line.strip() for line in _ESCAPE.sub("", text).replace("\r", "").split("\n")[:-1]]


def missing(seen, text) -> str | None:
    """The first line of the page that the output does not have, behind those before it."""
    lines = iter(plain(text))
    return next((line for line in seen if not any(pattern(line).fullmatch(one) for one in lines)), None)
