# SPDX-License-Identifier: BSD-2-Clause
"""Reads Prometheus' text format 0.0.4 as strictly as its own promtool does, without it; and the metrics that an expression names."""

import re
import typing

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(,|\Z)')
SAMPLE = re.compile(rf"({NAME})(?:\{{(.*)\}})? (\S+)")
UNITS = {"bytes", "seconds", "ratio", "packets", "frames", "info"}
ABBREVIATED = re.compile(r"_(ms|us|ns|sec|secs|milliseconds|microseconds|nanoseconds|kb|mb|kilobytes|bits|percent)(_|$)")
ESCAPED = {r"\\": "\\", r"\"": '"', r"\n": "\n"}


class Sample(typing.NamedTuple):
    labels: dict
    value: float


class Family:
    def __init__(self, name, text):
        self.name, self.help, self.type, self.samples = name, text, None, []

    def sum(self, **labels):
        return sum(one.value for one in self.samples if labels.items() <= one.labels.items())


def _labels(text):
    labels, at = {}, 0
    while at < len(text):
        part = LABEL.match(text, at)
        assert part, f"no labels: {text[at:]!r}"
        name = part[1]
        assert name not in labels and not name.startswith("__") and name not in ("le", "quantile"), f"label {name}"
        labels[name] = re.sub(r'\\["\\n]', lambda found: ESCAPED[found[0]], part[2])
        at = part.end()
    return labels


def _check_name(family):
    name = family.name
    assert re.fullmatch(NAME, name) and name == name.lower(), name
    assert (family.type == "counter") == name.endswith("_total"), f"{name} is a {family.type}"
    assert not name.endswith(("_count", "_sum", "_bucket")) and not ABBREVIATED.search(name), name
    assert family.help.strip() and family.samples, name


def parse(text):
    """{name: Family} of a page, which is bytes or text. Fails on whatever Prometheus or `promtool check metrics` would not take."""
    if isinstance(text, bytes):
        text = text.decode()  # UTF-8, or it is refused as a whole
    assert text.endswith("\n") and "\r" not in text and "\0" not in text
    families, family = {}, None
    for line in text[:-1].split("\n"):
        if line.startswith("# HELP "):
            _, _, name, words = line.split(" ", 3)
            assert name not in families, f"{name} twice, or its samples are not together"
            family = families[name] = Family(name, words)
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert family and name == family.name and family.type is None and not family.samples, line
            assert kind in ("counter", "gauge"), line
            family.type = kind
        else:
            found = SAMPLE.fullmatch(line)
            assert found, f"no sample: {line!r}"
            assert family and found[1] == family.name and family.type, f"out of its family: {line}"
            sample = Sample(_labels(found[2] or ""), float(found[3]))
            assert family.type == "gauge" or sample.value >= 0, line
            family.samples.append(sample)
    for one in families.values():
        _check_name(one)
        known = [tuple(sorted(sample.labels.items())) for sample in one.samples]
        assert len(known) == len(set(known)), f"{one.name} has a sample twice"
    return families


def labels_of(families):
    """{name: all label names that its samples have}."""
    return {name: set().union(*(sample.labels for sample in family.samples)) for name, family in families.items()}


WORD = re.compile(rf"({NAME})\s*(\(|\{{[^}}]*\}})?")
MATCHER = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*(=~|!~|!=|=)\s*"(?:[^"\\]|\\.)*"\s*(?:,|\Z)')
GROUPING = re.compile(r"\b(?:by|without|on|ignoring)\s*\(([^)]*)\)")
FUNCTIONS = {"sum", "rate", "count", "max", "min", "avg", "increase", "topk", "histogram_quantile", "label_values"}


def used_by(expression):
    """[(metric, labels that are compared)] and the labels by which an expression of PromQL groups. Fails on a function that it doesn't
    know, and on matchers that are none."""
    grouped = {label.strip() for found in GROUPING.findall(expression) for label in found.split(",") if label.strip()}
    rest = re.sub(r"\[[^\]]*\]", "", GROUPING.sub("", expression))  # ranges
    metrics = []
    for name, tail in WORD.findall(rest):
        if tail == "(":
            assert name in FUNCTIONS, f"{name} in {expression}"
            continue
        inside, labels, at = tail[1:-1] if tail else "", [], 0
        while at < len(inside):
            found = MATCHER.match(inside, at)
            assert found, f"no matcher: {inside[at:]} in {expression}"
            labels.append(found[1])
            at = found.end()
        metrics.append((name, labels))
    return metrics, grouped
