#!/usr/bin/env python3
"""How much of a program's stack each function that libvma.so exports takes, at the most: `stack.py [BUILD] [--all] [--path NAME]`.

Read from the products that a build left in BUILD (the folder it is called in): what each instruction has below the caller's frame, as
unwinders know it; whom it calls, in either product; and where it calls by a table, what the tables have there. So it is what is executed,
with what the compiler inlines. Not in it is what libc's functions and the program's own take, what runs on a stack of our own
(compat/src/base/own_stack.hpp), calls by a pointer that no table has (--unknown), other devices than that of connections within a host, and
what is rare (RARE; --rare counts it).

Fails where one takes more than LIMIT.
"""

import argparse
import collections
import pathlib
import platform
import re
import subprocess
import sys

import tree

SKIP = 77
LIMIT = 4096  # bytes: the smallest stack of a coroutine that is in use, and what an alternate stack has above the kernel's frame
# What takes more, and how much: what a receiver has unread in memory goes to a pipe by a copy, receive() and all.
BEYOND = {name: 4352 for name in ("splice", "sendfile", "sendfile64")}
# Several parts are gathered. Who sends one has none of it, which the graph can't tell.
OF_ONE_PART = re.compile(r"^(__)?(send|sendto|write|sendfile(64)?|eventfd_write)$")
GATHERS = re.compile(r"transmit_gathered")
LIBRARIES = ("libvma.so", "libvma-fi.so")
# What ends the process, runs on a stack of our own, or is none of the sockets': they open no endpoint of reliable datagrams.
NEVER = re.compile(r"^(vma_call_on_stack|std::__throw_|std::terminate|__cxa_|__gnu_cxx::__|_Unwind_|abort|vma::rdm::|vma::libc::.*crash|.*\bcall_wrapper\b)")
# What a call comes to at a connection's beginning and end, not while bytes move; a line of the log, which libc prints with KiBs anyway; a
# receive callback of the program's.
RARE = re.compile(
    r"^(vma::config::.*log_list|vma::core::log_line"
    r"|vma::local::(Link|GuestListener)::on_ready|vma::local::ConnectionManager::|vma::local::Endpoint::(end|~Endpoint|attach)"
    r"|vma::(verbs|ether|local)::.*close_endpoint|vma::verbs::.*(report_broken|on_broken)|vma::ofi::Eq::"
    r"|vma::local::cm_stand_beside|vma::extra::(screen|receive_screened)|opendir"
    r"|vma::sock::(release|fall_back|return_one|forget|start_leaving|finish_leaving|pin_to_kernel|stay_in_sandbox|stop_offloading|ring_seen|engine_start|load_what_is_wanted)\b)"
)
# Tables by what stands before a call through one, in the source: whose symbols they are.
TABLES = (
    (re.compile(r"protocol\("), re.compile(r"^vma::sock::storage::(streams|datagrams)$")),
    (re.compile(r"transport\(|kSharedRing|kRemoteRing|kPort\b"), re.compile(r"^vma::sock::storage::(shared_ring|remote_ring|port)$")),
    (re.compile(r"kMultiplexers|observer|each_mux"), re.compile(r"^vma::sock::kMultiplexers$")),
    (re.compile(r"kExtraApi"), re.compile(r"^vma::sock::kExtraApi$")),
    (re.compile(r"g_wait_calls"), re.compile(r"^vma::mux::g_wait_calls$")),
    (re.compile(r"kDescriber"), re.compile(r"^vma::sock::kDescriber$")),
)
DEVICES = ("vma::local::", "vma::ofi::")  # of connections within a host
REAL = re.compile(r"\breal\.\w|\breal\)?->|std::\w+\(")  # libc's own
# Of libfabric's objects, by how its headers' functions call them: the provider's tables have these names.
MEMBER = re.compile(r"(\w+)->(\w+)->\w+\(")
OF_MEMBER = {
    "cm": r"cm_ops$", "msg": r"msg_ops$", "rma": r"rma_ops$", "tagged": r"tagged_ops$", "atomic": r"atomic_ops$", "mr": r"mr_ops$",
    "cq": r"(cq_ops|kOps|g_ops)<|owned_cq_ops$", "eq": r"eq_ops$", "cntr": r"cntr_ops$", "fid": r"fid_ops$", "ep": r"ep_ops$",
    "pep": r"ep_table$", "domain": r"domain_ops$", "fabric": r"fabric_ops$", "av": r"av_ops$", "pollset": r"poll_ops$",
}


BOUNDED = re.compile(r"^\$\(libvmaprov_core_a_OBJECTS\): AM_CXXFLAGS \+= -Wframe", re.MULTILINE)  # optimized, and no sanitizer's


class Library:
    """One product: its functions, what they take, whom they call."""

    def __init__(self, path):
        self.path = path
        self.names, self.starts, self.tables, self.exports = {}, {}, {}, {}
        self.read_symbols()
        self.pointers = self.read_pointers()
        self.frames = self.read_frames()

    def tool(self, *command):
        return subprocess.run([*command, self.path], check=True, capture_output=True, text=True, errors="replace").stdout

    def read_symbols(self):
        for line in self.tool("readelf", "-sWC").splitlines():
            found = re.match(r"\s*\d+: ([0-9a-f]+)\s+(\S+) (FUNC|OBJECT|IFUNC)\s+(\S+)\s+\S+\s+(\S+) (.*?)(@.*)?$", line)
            if not found or found[5] == "UND":
                continue
            address, size, name = int(found[1], 16), int(found[2], 0), re.sub(r"\s*\[clone (\.cold)?[^]]*\]", r"\1", found[6])
            if found[3] == "OBJECT":
                self.tables[address] = (size, name)
                continue
            self.names.setdefault(address, name)
            if found[4] in ("GLOBAL", "WEAK") and "vma::" not in name and "std::" not in name:
                self.exports[name] = address

    def read_pointers(self):
        """{address of a word of data: the function that it points to, by its address or, of another library, its name}."""
        pointers = {}
        for line in self.tool("readelf", "-rWC").splitlines():
            found = re.match(r"([0-9a-f]+)\s+[0-9a-f]+ R_X86_64_(RELATIVE|64|GLOB_DAT|JUMP_SLOT)\s+(.*)", line)
            if found and found[2] == "RELATIVE":
                pointers[int(found[1], 16)] = int(found[3], 16)
            elif found:
                words = found[3].split(" ", 1)
                address = int(words[0], 16)
                pointers[int(found[1], 16)] = address or re.sub(r"@.*", "", words[1])
        return pointers

    def read_frames(self):
        """[(first address, what lies between there and the caller's frame)], sorted; None where another register tells it."""
        rows = []
        for line in self.tool("readelf", "--debug-dump=frames-interp").splitlines():
            found = re.match(r"([0-9a-f]{16}) (\w+)(?:\+(\d+))?", line)
            if found and "FDE" not in line and "CIE" not in line:
                rows.append((int(found[1], 16), int(found[3]) if found[2] == "rsp" else None))
                continue
            found = re.search(r"FDE .*pc=([0-9a-f]+)\.\.", line)
            if found:
                rows.append((int(found[1], 16), 8))
        return sorted(dict(rows).items())


class Function:
    def __init__(self):
        self.own = 8
        self.calls = []  # (what lies below the caller's frame, library, address)
        self.unknown = []


class Graph:
    def __init__(self, libraries, usual):
        self.libraries, self.usual = libraries, usual
        self.functions = {}
        self.depths = {}
        self.unknown = collections.Counter()
        self.sources = {}
        for library in libraries:
            self.read_code(library)

    def line(self, place):
        """The source text around a place, or "" of what is not there any more."""
        name, _, number = place.partition(":")
        number = int(re.match(r"\d+", number)[0]) if re.match(r"\d+", number) else 0
        if "/compat/" in name or "/prov/" in name:
            name = tree.ROOT / re.sub(r"^.*?/((?:compat|prov)/)", r"\1", name)
        if name not in self.sources:
            try:
                self.sources[name] = pathlib.Path(name).read_text(encoding="utf-8", errors="replace").splitlines()
            except OSError:
                self.sources[name] = []
        return "\n".join(self.sources[name][max(0, number - 1):number + 1])

    def read_code(self, library):
        """Frames as they change along the code, and each call and jump out of its function."""
        frames, at = library.frames, 0
        current, place, below, pushed = None, "", 8, 0
        text = library.tool("objdump", "-d", "-l", "--no-show-raw-insn")
        for line in text.splitlines():
            if line[:1] != " ":
                head = re.match(r"([0-9a-f]{16}) <", line)
                if head:
                    current = self.functions.setdefault((library, int(head[1], 16)), Function())
                    start, pushed = int(head[1], 16), 8
                elif re.match(r"/.*:\d+", line):
                    place = line
                continue
            found = re.match(r"\s+([0-9a-f]+):\t(?:addr32 |bnd |notrack |rex\S* |cs |data16 )*(\S+)\s*(.*)", line)
            if not found or current is None:
                continue
            address, word, rest = int(found[1], 16), found[2], found[3]
            while at < len(frames) and frames[at][0] <= address:
                below = frames[at][1]
                at += 1
            # Where the frame is told by another register: all that was pushed and subtracted so far.
            if word == "push":
                pushed += 8
            elif word == "sub" and re.fullmatch(r"\$0x[0-9a-f]+,%rsp", rest):
                pushed += int(rest.split(",")[0][1:], 16)
            here = below if below is not None else pushed
            current.own = max(current.own, here)
            if word in ("call", "jmp") or (word[0] == "j" and "<" in rest):
                self.add(library, current, start, here - (0 if word == "call" else 8), word, rest, place)

    def add(self, library, current, start, here, word, rest, place):
        target = re.match(r"([0-9a-f]+) <([^>+]*)(\+0x[0-9a-f]+)?>", rest)
        if target:
            address = int(target[1], 16)
            # Into the part of a function that is rarely executed, and back.
            inside = int((target[3] or "+0")[1:], 16)
            back = inside != 0 and library.names.get(start, "").endswith(".cold")
            part = library.names.get(address - inside, "").endswith(".cold")  # whose frame is the same
            if address - inside != start and not back:
                current.calls.append((0 if part and word != "call" else here, library, address - inside))
            return
        if not rest.startswith("*") or (word == "jmp" and "%rip" not in rest and "(" not in rest and not rest.startswith("*%r")):
            return
        fixed = re.search(r"# ([0-9a-f]+)", rest)
        if fixed:
            pointed = library.pointers.get(int(fixed[1], 16))
            if isinstance(pointed, int):
                current.calls.append((here, library, pointed))
                return
            if pointed is not None:
                return  # another library's
            if self.owner(library, int(fixed[1], 16)) == "vma::libc::real":
                return
        self.add_by_table(library, current, here, word, rest, place)

    def owner(self, library, address):
        for start, (size, name) in library.tables.items():
            if start <= address < start + size:
                return name
        return None

    def add_by_table(self, library, current, here, word, rest, place):
        source = self.line(place)
        offset = re.match(r"\*(?:0x([0-9a-f]+))?\(", rest)
        offset = int(offset[1] or "0", 16) if offset else None
        found = []
        if REAL.search(source):
            return
        if "/rdma/" in place and offset is not None:
            member = MEMBER.search(source)
            wanted = OF_MEMBER.get(member[1] if member[2] == "ops" else member[2]) if member else None
            if wanted:
                found = [(other, other.pointers.get(start + offset)) for other in self.libraries
                         for start, (_, name) in other.tables.items() if re.search(wanted, name) and name.startswith(DEVICES)]
        elif offset is not None:
            for before, symbols in TABLES:
                if before.search(source):
                    found += [(library, library.pointers.get(start + offset)) for start, (_, name) in library.tables.items()
                              if symbols.match(name)]
            if not found:
                found = [(library, p) for p in self.of_vtables(library, offset, source)]
        found = [(other, p) for other, p in found if isinstance(p, int)]
        current.calls += [(here, *one) for one in found]
        if not found and (word == "call" or offset is not None):
            current.unknown.append(place)

    @staticmethod
    def of_vtables(library, offset, source):
        for start, (size, name) in library.tables.items():
            if name.removeprefix("vtable for ").startswith(DEVICES) and 16 + offset < size:
                pointed = library.pointers.get(start + 16 + offset)
                short = re.sub(r"\(.*", "", library.names.get(pointed, "")).rsplit("::", 1)[-1]
                if short and re.search(rf"\b{re.escape(short)}\(", source):
                    yield pointed

    def depth(self, library, address, cut=None, above=()):
        """(bytes below the caller's frame, the deepest path) without what `cut` names. What calls itself counts once."""
        key = (library, address)
        if (key, cut) in self.depths:
            return self.depths[key, cut]
        name = library.names.get(address, hex(address))
        function = self.functions.get(key)
        if cut and cut.search(name):
            return 0, ()
        if function is None or key in above or NEVER.search(name) or (self.usual and RARE.search(name)):
            return 0, ()
        best, path = function.own, ()
        for here, other, target in function.calls:
            deeper, more = self.depth(other, target, cut, (*above, key))
            if here + deeper > best:
                best, path = here + deeper, more
        self.depths[key, cut] = best, ((name, function.own), *path)
        return self.depths[key, cut]


def reason_to_skip(build):
    """Why there is nothing to measure."""
    makefile = build / "Makefile"
    text = makefile.read_text(encoding="utf-8") if makefile.exists() else ""
    if not all((build / ".libs" / name).exists() for name in LIBRARIES) or not BOUNDED.search(text) or platform.machine() != "x86_64":
        return "only where it is compiled with optimization for x86-64"
    return None


def measure(graph, unusual=False):
    """[((bytes, path), name)], the deepest first."""
    library = graph.libraries[0]
    found = [(graph.depth(library, address, GATHERS if OF_ONE_PART.match(name) and not unusual else None), name)
             for name, address in library.exports.items()]
    return sorted(found, key=lambda one: (-one[0][0], one[1]))


def arguments_given():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", nargs="?", type=pathlib.Path, default=pathlib.Path("."))
    parser.add_argument("--all", action="store_true", help="each function, not only those beyond the limit")
    parser.add_argument("--path", help="what the deepest path of this function is made of")
    parser.add_argument("--rare", action="store_true", help="with what happens at a connection's beginning and end")
    parser.add_argument("--unknown", action="store_true", help="where calls go by a pointer that no table has")
    return parser.parse_args()


def main():
    arguments = arguments_given()
    reason = reason_to_skip(arguments.build)
    if reason:
        print(reason)
        return SKIP
    sys.setrecursionlimit(10000)
    graph = Graph([Library(arguments.build / ".libs" / name) for name in LIBRARIES], not arguments.rare)
    if arguments.unknown:
        for (library, address), function in graph.functions.items():
            for place in function.unknown:
                print(library.names.get(address), place)
        return 0
    wrong = False
    for (size, path), name in measure(graph, arguments.rare):
        beyond = size > BEYOND.get(name, LIMIT)
        wrong |= beyond and not arguments.rare
        if arguments.all or beyond or name == arguments.path:
            print(f"{size:6} {name}")
        for step, own in path if name == arguments.path else ():
            print(f"    {own:6} {step}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
