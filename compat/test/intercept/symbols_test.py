#!/usr/bin/env python3
"""Every function of this machine's C library is ours, or has a reason in symbols.txt why it need not be.

The list is libc's own dynamic symbol table, so that a function that was forgotten, or that a newer libc brings, fails here. What
libc's headers declare helps: a function that returns no int, and is given no descriptor, stream, or open list of arguments, is taken
for what it looks like; and a pattern of symbols.txt never covers one that is given a descriptor, which has to be named in full.
Run in a build folder, as `make check` does.
"""

import fnmatch
import pathlib
import re
import shutil
import subprocess
import sys

LIBRARY = pathlib.Path(".libs/libvma.so")
CLASSES = pathlib.Path(__file__).resolve().with_name("symbols.txt")

# The parameters of libc's headers that are descriptors, or hold one.
DESCRIPTOR = re.compile(r"\bint \**(?:\w*fd\w*|__fp|\w*fildes|__s|s|\w*sock\w*|\w*master|\w*slave|__pipedes\w*|__fds\w*|__ufd)\b"
                        r"|\bmqd_t\b|\bFILE\b|\bDIR\b|pollfd\b|fd_set\b|aiocb|file_actions_t|\bm?msghdr\b")
MAKES = re.compile(r"(?<!unsigned )(?<!long )(?<!short )\bint\b(?! ?\*)|pid_t\b|\bFILE\b|\bDIR\b|\bmqd_t\b|handler_t\b")
PROCESS = re.compile(r"_exit$|_Exit$|exec|fork|spawn|clone")  # what ends, replaces or copies a process
# Names that are made of another's: the checked forms of fortified programs, older and larger ones.
FORMS = [(r"^__(\w+)_chk$", r"\1"), (r"^__(\w+?)(?:64)?_2$", r"\1"), (r"^__libc_(\w+)$", r"\1"), (r"^(\w+)_time64$", r"\1"),
         (r"^_IO_(\w+)$", r"\1"), (r"^__?(\w+)$", r"\1"), (r"^(\w+)64$", r"\1"), (r"^__(\w+)64_time64$", r"\1")]


def output(*command, **options):
    return subprocess.run(command, capture_output=True, text=True, check=True, **options).stdout


def libc_functions(libc):
    """Public ones, of any version; what is only for glibc's own libraries is left out."""
    public = set()
    for line in output("readelf", "--dyn-syms", "-W", libc).splitlines():
        fields = line.split()
        if len(fields) < 8 or fields[3] not in ("FUNC", "IFUNC") or fields[6] == "UND":
            continue
        name, _, version = fields[7].partition("@")
        if version.lstrip("@") != "GLIBC_PRIVATE":
            public.add(name)
    return public


def exported():
    rows = (line.split() for line in output("nm", "-D", "--defined-only", str(LIBRARY)).splitlines())
    return {row[-1].split("@")[0] for row in rows if len(row) >= 3}


def header_names():
    """All of libc's own, by what the directories hold that its features.h lies in."""
    roots = [pathlib.Path("/usr/include"), *pathlib.Path("/usr/include").glob("*-linux-gnu*")]
    folders = [folder for root in roots for folder in [root] + [root / name for name in ("arpa", "net", "netinet", "protocols", "sys")]]
    skipped = {"sys/vm86.h", "sys/elf.h"}
    for folder in folders:
        root = next(r for r in reversed(roots) if folder == r or r in folder.parents)
        for header in sorted(folder.glob("*.h")):
            name = str(header.relative_to(root))
            if name not in skipped and "Free Software Foundation" in header.read_text(errors="replace")[:1200] and \
                    "GNU C Library" in header.read_text(errors="replace")[:1200]:
                yield name


def prototypes(compiler):
    """Name: (what it returns, its parameters), as the headers declare it."""
    source = "".join(f"#if __has_include(<{name}>)\n#include <{name}>\n#endif\n" for name in header_names())
    flags = ["-D_GNU_SOURCE", "-D_LARGEFILE64_SOURCE", "-w", "-E", "-P", "-x", "c", "-"]
    text = subprocess.run([compiler, *flags], input=source, capture_output=True, text=True, check=False).stdout
    attributes = r"__attribute__\s*\(\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)\)"
    text = re.sub(r"\s+", " ", re.sub(attributes, "", text))
    form = re.compile(r"(?:^|[;{}] ?)((?:\w+[ *]+)+?)\(?(\w+)\)? ?\(((?:[^()]|\((?:[^()]|\([^()]*\))*\))*)\) ?"
                      r"(?:__asm__ ?\([^)]*\))? ?(?=;)")
    return {match[2]: (match[1], match[3]) for match in form.finditer(text)}


def read_classes():
    """Exact names, and patterns with a wildcard; each with its reason."""
    names, patterns, reason = {}, {}, None
    for line in CLASSES.read_text(encoding="utf-8").splitlines():
        line = line.strip()
        if line.startswith("[") and line.endswith("]"):
            reason = line[1:-1]
            continue
        for word in line.split() if not line.startswith("#") else []:
            assert reason, f"{CLASSES.name}: {word} stands before the first reason"
            (patterns if set(word) & set("*?[") else names)[word] = reason
    return names, patterns


def bases(name):
    """The function, and those that it seems to be a form of."""
    found = [name]
    for current in found:
        for pattern, base in FORMS:
            other = re.sub(pattern, base, current)
            if other not in found:
                found.append(other)
    return found


class Sorter:
    def __init__(self, ours, declared):
        self.ours, self.declared = ours, declared
        self.names, self.patterns = read_classes()

    def is_given_descriptors(self, name):
        return any(base in self.ours or DESCRIPTOR.search(self.declared[base][1]) for base in bases(name)
                   if base in self.declared or base in self.ours)

    def looks_harmless(self, name):
        base = next((base for base in bases(name) if base in self.declared), None)
        if base is None or PROCESS.search(name) or self.is_given_descriptors(name):
            return False
        returned, parameters = self.declared[base]
        return "..." not in parameters and not MAKES.search(returned)

    def has_place(self, name):
        if name in self.ours or self.looks_harmless(name):
            return True
        if name in self.names:
            return True
        matches = any(fnmatch.fnmatchcase(name, pattern) for pattern in self.patterns)
        return matches and not self.is_given_descriptors(name)

    def has_place_without(self, name):
        """Would it have a place if it were not ours?"""
        self.ours.discard(name)
        found = self.has_place(name)
        self.ours.add(name)
        return found


def main():
    compiler = shutil.which("gcc") or shutil.which("cc") or shutil.which("clang")
    if shutil.which("readelf") is None or compiler is None or not LIBRARY.exists():
        print("readelf, a C compiler or the library is not here")
        return 77
    libc = next((line.split()[2] for line in output("ldd", str(LIBRARY)).splitlines() if "libc.so.6" in line), None)
    if libc is None:
        print("the library is not linked with glibc")
        return 77
    functions = libc_functions(libc)
    sorter = Sorter(exported(), prototypes(compiler))
    if len(functions) < 1000 or len(sorter.declared) < 1000:
        print(f"{len(functions)} functions and {len(sorter.declared)} declarations were found: this test reads them wrongly")
        return 1
    homeless = sorted(name for name in functions if not sorter.has_place(name))
    for name in homeless:
        returned, parameters = sorter.declared.get(name, ("", "no declaration"))
        print(f"{name}: exported by libc; neither by libvma.so nor in {CLASSES.name}: {returned}{name}({parameters})")
    blind = sorted(name for name in functions & sorter.ours if sorter.has_place_without(name))
    if blind:
        print(f"this test would not notice it if these were not exported: {' '.join(blind)}")
    both = sorted(name for name in sorter.names if name in sorter.ours)
    print(f"{len(functions)} functions, {len(functions & sorter.ours)} of them ours; {len(homeless)} without a place"
          + (f"; in {CLASSES.name} though they are ours: {' '.join(both)}" if both else ""))
    return 1 if homeless or both or blind else 0


if __name__ == "__main__":
    sys.exit(main())
