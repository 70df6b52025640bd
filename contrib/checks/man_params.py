#!/usr/bin/env python3
"""Do the manual pages say what the sources say? Compares

    man/libvma.7    PARAMETERS  with  compat/src/config/table.cpp     names, order, defaults, ranges, texts
                                and   compat/src/config/rows_*.hpp
    man/libvma.7    WHAT STAYS  with  compat/src                      reasons in the log for staying on the kernel
    man/fi_vma.7    FI_VMA_*    with  prov/vma/src                    names
    man/fi_vma.7    LIMITS      with  prov/vma/src/ofi/info/attr.hpp       numbers
    man/fi_vma.7    EXTENSIONS  with  include/rdma/fi_ext_vma*.h      names

and fails on a difference. With --fix it writes the entries of PARAMETERS anew from the table: heading, the line of
facts and the table's text. Paragraphs that follow them in an entry (from an .IP on) are written by hand, and kept.
"""

import ast
import operator
import re
import sys
import textwrap

import tree

LIBVMA = tree.ROOT / "man/libvma.7"
FI_VMA = tree.ROOT / "man/fi_vma.7"
TABLE = tree.ROOT / "compat/src/config/table.cpp"
LEVELS = tree.ROOT / "compat/src/config/log.hpp"
PARAMS = tree.ROOT / "compat/src/config/params.hpp"
SPECS = tree.ROOT / "compat/src/config/table.hpp"
PROVIDER = tree.ROOT / "prov/vma/src"
ATTRIBUTES = tree.ROOT / "prov/vma/src/ofi/info/attr.hpp"
EXTENSIONS = sorted((tree.ROOT / "include/rdma").glob("fi_ext_vma*.h"))

# Attribute as the page's LIMITS heads it -> the constants whose values its paragraph must name, in this order.
LIMITS = {
    "inject_size": ["kInjectSize"],
    "iov_limit": ["kIovLimit"],
    "rma_iov_limit": ["kRmaIovLimit"],
    "size": ["kDefaultQueueSize", "kMaxQueueSize"],
    "mr_iov_limit": ["kMrIovLimit"],
    "mr_key_size": ["kMrKeySize"],
    "cq_data_size": ["kCqDataSize"],
    "FI_OPT_CM_DATA_SIZE": ["kCmDataSize"],
}

OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.LShift: operator.lshift,
    ast.Div: operator.floordiv,
}


class Unreadable(Exception):
    """A source is written in a way that this script doesn't know."""


# ---- C++, as far as the table needs it


def number(text, names):
    """Value of a constant expression: integers, names of constants, + - * / <<."""

    def value(node):
        if isinstance(node, ast.Constant) and isinstance(node.value, int):
            return node.value
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return -value(node.operand)
        if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
            return OPERATORS[type(node.op)](value(node.left), value(node.right))
        if isinstance(node, ast.Name) and node.id in names:
            return names[node.id]
        raise Unreadable(f"not a number: {text}")

    expression = re.sub(r"static_cast<[^<>]+>|\blevel\b(?=\()", "", text.strip()).replace("'", "").replace("::", "__")
    expression = re.sub(r"\b(\d+)[uUlL]+\b", r"\1", expression)
    try:
        return value(ast.parse(expression, mode="eval").body)
    except SyntaxError:
        raise Unreadable(f"not a number: {text}") from None


def string(text):
    """Adjacent string literals as one."""
    parts = re.findall(r'"(?:[^"\\]|\\.)*"', text)
    if not parts or re.sub(r'"(?:[^"\\]|\\.)*"', "", text).strip():
        raise Unreadable(f"not a string: {text}")
    return "".join(ast.literal_eval(part) for part in parts)


def split(text, separator=","):
    """Parts of a list, at separators that are within no brackets or quotes. Comments are gone already."""
    parts, depth, start = [], 0, 0
    for match in re.finditer(r'"(?:[^"\\]|\\.)*"|[][(){},]', text):
        if match[0] in "([{":
            depth += 1
        elif match[0] in ")]}":
            depth -= 1
        elif match[0] == separator and depth == 0:
            parts.append(text[start : match.start()])
            start = match.end()
    parts.append(text[start:])
    return [part.strip() for part in parts if part.strip()]


def braced(text):
    """What stands within the braces around `text`."""
    text = text.strip()
    if not (text.startswith("{") and text.endswith("}")):
        raise Unreadable(f"no braces around: {text}")
    return text[1:-1]


def uncommented(text):
    return re.sub(r'("(?:[^"\\]|\\.)*")|//[^\n]*|/\*.*?\*/', lambda m: m[1] or " ", text, flags=re.DOTALL)


def constants(text):
    """Values of `constexpr ... kName = expression;`, and as Enum__kName of the enumerators `kName = number`."""
    names = {}
    for name, expression in re.findall(r"constexpr [\w:]+ (\w+) = ([^;{]+);", text):
        try:
            names[name] = number(expression, names)
        except Unreadable:
            pass
    for enum, body in re.findall(r"enum (?:class|struct) (\w+)[^{]*\{([^}]*)\}", text):
        for name, expression in re.findall(r"(\w+) = (-?\w+)", body):
            names[f"{enum}__{name}"] = number(expression, names)
    return names


def braced_after(text, start):
    """The braced list that begins at or after `start`, braces included."""
    depth = 0
    for match in re.finditer(r'"(?:[^"\\]|\\.)*"|[{}]', text[start:]):
        depth += {"{": 1, "}": -1}.get(match[0], 0)
        if depth == 0 and match[0] == "}":
            return text[text.index("{", start) : start + match.end()]
    raise Unreadable("braces don't match")


def read_table():
    """The rows of the table, each a dict of what it sets; choices as [(word, value, shown)]."""
    table = TABLE.read_text(encoding="utf-8")
    included = re.findall(r'#include "(compat/src/config/rows_\w+\.hpp)"', table)
    # The page has the file where packages have it; an installation elsewhere writes its own name into the page.
    text = "".join(uncommented(source).replace("LIBVMA_CONF", '"/etc/libvma.conf"') for source in [table] + [(tree.ROOT / path).read_text("utf-8") for path in included])
    params = uncommented(PARAMS.read_text(encoding="utf-8"))
    names = constants("".join(uncommented(path.read_text(encoding="utf-8")) for path in (LEVELS, SPECS)) + params + text)
    choices = {}
    for match in re.finditer(r"constexpr Choice (\w+)\[\] =", text):
        rows = [split(braced(row)) for row in split(braced(braced_after(text, match.end())))]
        choices[match[1]] = [(string(word), number(value, names), string(shown)) for word, value, shown in rows]
    flags = set(re.findall(r"\bbool (\w+);", params))
    texts = set(re.findall(r"const char \*(\w+);", params))
    rows = []
    for item in items(text):
        row = {"fallback": "0", "min": "0", "max": "0", "power_of_two": "false", "or_zero": "false"}
        for setting in split(braced(item)):
            name, equals, value = setting.partition("=")
            if not equals or not name.strip().startswith("."):
                raise Unreadable(f"in a row of the table: {setting}")
            row[name.strip()[1:]] = value.strip()
        field = row["field"].rpartition("::")[2]
        row |= {
            "name": string(row["name"]),
            "text": string(row["text"]),
            "fallback": number(row["fallback"], names),
            "fallback_text": string(row["fallback_text"]) if "fallback_text" in row else None,
            "kind": "text" if field in texts else "flag" if field in flags else "number",
            "min": number(row["min"], names),
            "max": number(row["max"], names),
            "power_of_two": row["power_of_two"] == "true",
            "or_zero": row["or_zero"] == "true",
            "choices": choices[row["choices"]] if "choices" in row else [],
            "overrides": overrides(row["overrides"], names, choices) if "overrides" in row else [],
        }
        rows.append(row)
    return rows


def items(text):
    """The rows of all groups, in the order in which they are joined."""
    joined = re.search(r"\bjoined\(((?:k\w+,?\s*)+)\)", text)
    if not joined:
        raise Unreadable("no joined(groups)")
    for group in split(joined[1]):
        match = re.search(rf"constexpr Parameter {group}\[\] =", text)
        if not match:
            raise Unreadable(f"no {group}")
        yield from split(braced(braced_after(text, match.end())))


def overrides(text, names, choices):
    """[(word of the profile, value)]; of a text the value is its literal."""
    while text.startswith("{{"):
        text = braced(text)
    specs = {value: word for word, value, shown in reversed(choices.get("kSpecs", [])) if shown}
    pairs = [split(braced(pair)) for pair in split(text) if pair.startswith("{")]
    return [
        (specs[number(spec, names)], string(word[0]) if word else number(value, names)) for spec, value, *word in pairs
    ]


# ---- the page


def roff(text):
    text = re.sub(r"(?<![\w])-(?=\d)", r"\-", text.replace("\\", r"\e"))
    return re.sub(r"^([.'])", r"\\&\1", text, flags=re.MULTILINE)


def shown(row, value):
    """A value as a user would write it."""
    for word, number_, label in row["choices"]:
        if number_ == value and label:
            return word
    return str(value)


def facts(row):
    if row["kind"] == "text":
        default = row["fallback_text"]
        parts = ["Default: not set." if default is None else f"Default: {default}."]
        return " ".join(parts + [f"With VMA_SPEC={spec}: {value}." for spec, value in row["overrides"]])
    parts = [f"Default: {shown(row, row['fallback'])}."]
    if row["choices"]:
        spellings = {}
        for word, value, _ in row["choices"]:
            spellings.setdefault(value, []).append(word)
        parts.append(f"Values: {'; '.join(' or '.join(words) for words in spellings.values())}.")
    elif row["kind"] == "flag":
        parts.append("Values: 0; 1.")
    else:
        zero = "0 or " if row["or_zero"] else ""
        power = ", a power of two" if row["power_of_two"] else ""
        parts.append(f"Range: {zero}{row['min']} to {row['max']}{power}.")
    parts += [f"With VMA_SPEC={spec}: {shown(row, value)}." for spec, value in row["overrides"]]
    return " ".join(parts)


def entry(row):
    """The lines of one parameter that come from the table."""
    sentences = re.sub(r"(?<=[.;:]) (?=[A-Z])", "\n", row["text"]).splitlines()
    lines = [line for sentence in sentences for line in textwrap.wrap(sentence, 115, break_on_hyphens=False)]
    return [".TP", f".B {row['name']}", roff(facts(row)), ".br", *roff("\n".join(lines)).splitlines()]


def parameters_section(page):
    """(lines before, {name: (lines from the table, lines by hand)}, lines after) of the PARAMETERS section."""
    lines = page.splitlines()
    start = next((i for i, line in enumerate(lines) if line == ".SH PARAMETERS"), None)
    if start is None:
        raise Unreadable("no section PARAMETERS")
    end = next((i for i in range(start + 1, len(lines)) if lines[i].startswith(".SH")), len(lines))
    heads = [i for i in range(start, end - 1) if lines[i] == ".TP" and lines[i + 1].startswith(".B VMA_")]
    heads.append(end)
    entries = {}
    for i, following in zip(heads, heads[1:]):
        own = next((j for j in range(i + 4, following) if re.match(r"\.(IP|RS|PP|TP|SS)", lines[j])), following)
        entries[lines[i + 1][3:]] = (lines[i:own], lines[own:following])
    return lines[: heads[0]], entries, lines[end:]


def check_parameters(fix):
    rows = read_table()
    before, entries, after = parameters_section(LIBVMA.read_text(encoding="utf-8"))
    if fix:
        body = [line for row in rows for line in entry(row) + entries.get(row["name"], ([], []))[1]]
        LIBVMA.write_text("\n".join(before + body + after) + "\n", encoding="utf-8")
        return []
    names = [row["name"] for row in rows]
    faults = [f"{name}: in the table, not in the page" for name in names if name not in entries]
    faults += [f"{name}: in the page, not in the table" for name in entries if name not in names]
    if not faults and names != list(entries):
        faults.append("the page's order is not the table's")
    for row in rows:
        there = entries.get(row["name"], (entry(row), []))[0]
        faults += [
            f"{row['name']}: the page says {is_!r}, the table {should!r}"
            for is_, should in zip(there + [""], entry(row) + [""])
            if is_ != should
        ][:1]
    if faults:
        faults.append("contrib/checks/man_params.py --fix writes the entries from the table")
    return [f"man/libvma.7: {fault}" for fault in faults]


def check_reasons():
    """Each reason for staying on the kernel that the code logs is explained, and no other."""
    page = LIBVMA.read_text(encoding="utf-8").replace(r"\-", "-")
    section = re.search(r"^\.SH WHAT STAYS ON THE KERNEL\n(.*?)^\.SH ", page, re.MULTILINE | re.DOTALL)
    if not section:
        raise Unreadable("no section WHAT STAYS ON THE KERNEL")
    said = set(re.findall(r"^\.T[PQ]\n\.I (.*)$", section[1], re.MULTILINE))
    there = set()
    for path in sorted((tree.ROOT / "compat/src").rglob("*.[ch]pp")):
        source = uncommented(path.read_text(encoding="utf-8"))
        there |= set(re.findall(r'\b(?:pin|pin_to_kernel|pin_all|stay_on_kernel|refuse_offload|admit_call|admit_option)\([^"();]*"([^"]+)"(?:, (?:heir|Heir::\w+))?\)', source))
        there |= set(re.findall(r'(?:\bkernel_reason|\*(?:kTooMany|kNoRoom|kSetIsShared|kNotEntered|kNamesTaken|kLeftTooMuch)) = "([^"]+)"', source))
        there |= set(re.findall(r'\breturn_sockets\((?:.|\n){,200}?"([^"]+)",\s+Heir::\w+[,)]', source))
        if "kKernelOptions[]" in source:
            there |= set(re.findall(r'(?:\*k\w+ = |, )"([^"]+)"', source))
    return difference(LIBVMA, "reason", said, there)


def difference(page, what, said, there):
    return [f"man/{page.name}: {what} not in it: {name}" for name in sorted(there - said)] + [
        f"man/{page.name}: {what} that is nowhere in the sources: {name}" for name in sorted(said - there)
    ]


def check_provider():
    page = FI_VMA.read_text(encoding="utf-8").replace(r"\-", "-")
    source = "".join(uncommented(path.read_text(encoding="utf-8")) for path in sorted(PROVIDER.rglob("*.cpp")))
    faults = difference(
        FI_VMA,
        "parameter",
        set(re.findall(r"^\.TP\n\.B (FI_VMA_\w+)$", page, re.MULTILINE)),
        set(re.findall(r'"(FI_VMA_\w+)"', source)),
    )
    extensions = set(re.findall(r"#define (FI_\w*VMA_\w+) ", "".join(path.read_text(encoding="utf-8") for path in EXTENSIONS)))
    said = set(re.findall(r"\bFI_(?:OPT|EP)_VMA_\w+|\bFI_VMA_\w*(?:_KEY|_OPS|CLOCKS|MODERATE|COUNTERS|SPECIFIC|SLEEPERS|PLACES|INTRODUCED)\b", page))
    faults += difference(FI_VMA, "extension", said, extensions)
    values = constants(uncommented(ATTRIBUTES.read_text(encoding="utf-8")))
    for attribute, names in LIMITS.items():
        match = re.search(rf"^\.TP\n\.\w+ {attribute}\b[^\n]*\n(.*?)(?=^\.[TS][PHS])", page, re.MULTILINE | re.DOTALL)
        if not match:
            faults.append(f"man/fi_vma.7: {attribute} is not in LIMITS")
            continue
        said = [int(n.replace(",", "")) for n in re.findall(r"\b\d[\d,]*\b", match[1])]
        should = [values[name] for name in names]
        if said[: len(should)] != should:
            faults.append(f"man/fi_vma.7: {attribute}: says {said}, {ATTRIBUTES.name} says {should}")
    return faults


def main():
    fix = sys.argv[1:] == ["--fix"]
    if sys.argv[1:] and not fix:
        sys.exit("usage: man_params.py [--fix]")
    try:
        faults = check_parameters(fix) + check_reasons() + check_provider()
    except Unreadable as problem:
        faults = [f"man_params.py can't read this: {problem}"]
    for fault in faults:
        print(fault)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
