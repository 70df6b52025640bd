#!/usr/bin/env python3
"""Who may include whom: reads every #include and fails, with file:line, on one that the layout forbids or that is
there twice.

    inet        core, and no socket, clock, thread or libfabric header of the system's; within, wire
                is below base, both are below tcp and udp, which also have the probes, and the stack is above all
    core        nothing else of ours but how a descriptor gets above the limit
    ofi         core
    a device    ofi and core; ether also inet, and the verbs device's table of functions. Within ether, nic
                (what NICs of both kinds share) is below xdp, raw and netlink, and those are below the rest
    rdm         the local device, on whose rings it is; that one opens its endpoints by rdm/open.hpp
    compat      its own, never the provider's: each folder those below it (COMPAT_FLOORS), so that they make no ring
    util        compat/src/stats, util/tool, and the tool's own folder; vmad also inet, core and what ether tells it, its broker
                the assembler of BPF and the messages that compat has; vma_stats the table of
                parameters; vma_dump what finds processes in vma_stats, and inet's headers of packets; libvma-check
                only compat/src/rules; vma the other tools, and what is named in VMA
    the sim     the verbs device's table of functions
    every one   include/ (inet and core excepted) and headers that are not ours

    fabtests    no headers but its own; in fabtests/ether also those of the Ethernet device, the
                installed ones and the simulated NIC's; in sockets/programs/liars those of the local device

Tests follow the rule of what they test, and may include fabtests/unit.hpp, seed.hpp and patience.hpp; a provider test sees all
of the provider and the simulated NIC.
"""

import pathlib
import re
import sys

import tree

SEARCH = ("", "include", "prov/vma/src", "compat/src")  # as in AM_CPPFLAGS
INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]')
GENERATED = {"config.h"}

PROV = "prov/vma/src/"
NIC = PROV + "ether/nic/"
WIRE = PROV + "inet/wire/"
PROBES = PROV + "core/probes.hpp"
UNIT = "fabtests/unit.hpp"
SEED = "fabtests/seed.hpp"
PATIENCE = "fabtests/patience.hpp"
SIM = "contrib/lab/sim/"

# The folders of compat/src, from the ground up: each may include itself and those before it.
COMPAT = "compat/src/"
COMPAT_FLOORS = [
    "libc",
    "config",
    "base",
    "stats",
    "rules",
    "table",
    "rendezvous",
    "sharing",
    "engine",
    "wait",
    "transport",
    "offload",
    "tcp",
    "udp",
    "mux",
    "extra",
    "process",
    "intercept",
]

TOOL = "util/tool/"  # what all tools share

# The command `vma` shows what other tools know, so it includes them, and of the library what has no part in a socket.
VMA = ["util/vma/", TOOL, "util/vma_stats/", "util/libvma_check/", "util/vma_lat/measure/", f"{COMPAT}stats/", f"{COMPAT}rules/",
       f"{COMPAT}config/table.hpp", f"{COMPAT}config/aliases.hpp", f"{COMPAT}base/bounds.hpp",
       f"{COMPAT}engine/sandbox_trial.hpp", f"{COMPAT}rendezvous/broker_messages.hpp"]

# Prefix of the including file -> prefixes of what it may include. The longest prefix that fits decides.
RULES = {
    PROV + "inet/": [PROV + "inet/", PROV + "core/"],
    WIRE: [WIRE],
    PROV + "inet/base/": [PROV + "inet/base/", WIRE, PROV + "core/"],
    PROV + "inet/tcp/": [PROV + "inet/tcp/", PROV + "inet/base/", WIRE, PROBES],
    PROV + "inet/udp/": [PROV + "inet/udp/", PROV + "inet/base/", WIRE, PROBES],
    PROV + "core/": [PROV + "core/", "include/vma/raised_limit.hpp"],
    PROV + "ofi/": [PROV + "ofi/", PROV + "core/", "include/"],
    PROV + "local/": [PROV + "local/", PROV + "rdm/open.hpp", PROV + "ofi/", PROV + "core/", "include/"],
    PROV + "rdm/": [PROV + "rdm/", PROV + "local/", PROV + "ofi/", PROV + "core/", "include/"],
    PROV + "verbs/": [PROV + "verbs/", PROV + "ofi/", PROV + "core/", "include/"],
    PROV + "ether/": [PROV + "ether/", PROV + "inet/", PROV + "ofi/", PROV + "core/", PROV + "verbs/table.hpp", "include/"],
    NIC: [NIC, WIRE, PROV + "ofi/", PROV + "core/", PROV + "verbs/table.hpp", "include/"],
    PROV + "ether/netlink/": [PROV + "ether/netlink/", NIC, WIRE, PROV + "core/"],
    PROV + "ether/xdp/": [PROV + "ether/xdp/", NIC, WIRE, PROV + "ofi/", PROV + "core/", "include/vma/"],
    PROV + "ether/raw/": [PROV + "ether/raw/", PROV + "ether/xdp/program.hpp", NIC, PROV + "inet/", PROV + "core/",
                          PROV + "verbs/table.hpp"],
    "prov/vma/test/": ["prov/vma/", "include/", SIM, UNIT, SEED, PATIENCE],
    **{
        f"{COMPAT}{name}/": ["include/", *(f"{COMPAT}{below}/" for below in COMPAT_FLOORS[: floor + 1])]
        for floor, name in enumerate(COMPAT_FLOORS)
    },
    "compat/test/": ["compat/", "include/", UNIT, SEED, PATIENCE],
    "util/": [TOOL, "compat/src/stats/", "include/"],
    "util/libvma_check/": ["util/libvma_check/", "compat/src/rules/"],
    "util/vma/": VMA,
    "util/vma/test/": [*VMA, UNIT],
    "util/vma_stats/": ["util/vma_stats/", TOOL, "compat/src/stats/", "compat/src/config/table.hpp", "compat/src/config/header.hpp"],
    "util/vma_stats/test/": ["util/vma_stats/", TOOL, "compat/src/stats/", UNIT, SEED],
    "util/vma_dump/": ["util/vma_dump/", TOOL, "compat/src/stats/", "util/vma_stats/processes.hpp",
                       "util/vma_stats/snapshot.hpp", WIRE],
    "util/vma_dump/test/": ["util/vma_dump/", "compat/src/stats/", f"{COMPAT}libc/real.hpp", WIRE, UNIT, SEED],
    "util/vmad/": ["util/vmad/", TOOL, PROV + "ether/guardian_message.hpp", PROV + "inet/", PROV + "core/", "include/vma/"],
    "util/vmad/broker/": ["util/vmad/", TOOL, f"{COMPAT}rendezvous/broker_messages.hpp", PROV + "ether/xdp/assembler.hpp",
                          PROV + "ether/xdp/bpf.hpp", PROV + "inet/", PROV + "core/", "include/vma/"],
    "util/vmad/test/": ["util/vmad/", f"{COMPAT}rendezvous/broker_messages.hpp", PROV + "inet/", PROV + "core/", UNIT, SEED],
    "include/": ["include/"],
    "fabtests/": ["fabtests/", "include/"],
    "fabtests/sockets/programs/liars/": ["fabtests/", "include/", PROV + "local/"],  # they write what peers of that device share
    "fabtests/ether/": ["fabtests/", "include/", PROV + "ether/", PROV + "inet/", PROV + "core/", SIM + "sim.hpp"],
    "contrib/": ["contrib/", "include/"],
    SIM: [SIM, PROV + "verbs/table.hpp", UNIT],
}

# inet is sans-I/O: types and byte order of the system's headers are fine, what acts is not.
INET_FORBIDDEN = re.compile(
    r"^(rdma/|sys/(socket|epoll|poll|select|time|timerfd|mman|un|ioctl)\.h|net/|linux/|poll\.h|pthread\.h|time\.h|"
    r"unistd\.h|threads\.h|chrono$|ctime$|thread$|mutex$|shared_mutex$|condition_variable$|future$)"
)


def resolve(name, includer, exists):
    """The project file that `name` means in `includer`, or None if it isn't one of ours."""
    for folder in (str(pathlib.PurePosixPath(includer).parent), *SEARCH):
        path = str(pathlib.PurePosixPath(folder) / name)
        if exists(path):
            return path
    return None


def rule_of(includer):
    fits = [prefix for prefix in RULES if includer.startswith(prefix)]
    return max(fits, key=len, default=None)


def fault(includer, quote, name, exists):
    """What is wrong with one #include, or None."""
    if ".." in pathlib.PurePosixPath(name).parts:
        return f'"{name}": name a header from its source folder, not with ".."'
    prefix = rule_of(includer)
    if prefix is None:
        return f"no rule for {includer}: add its folder to RULES in contrib/checks/includes.py"
    target = resolve(name, includer, exists)
    if target is None:
        if quote == '"' and name not in GENERATED:
            return f'"{name}" is not a file of the project; use <> for others\' headers'
        if prefix.startswith(PROV + "inet/") and INET_FORBIDDEN.match(name):
            return f"inet does no I/O: <{name}> is not for it"
        return None
    allowed = list(RULES[prefix])
    if prefix == "util/":  # a tool's own folder
        allowed.append("/".join(includer.split("/")[:2]) + "/")
        if "/test/" in includer:
            allowed += [UNIT, PATIENCE]
    if any(target.startswith(a) for a in allowed):
        return None
    return f"{prefix} may not include {target} (only {', '.join(allowed)})"


def check(text, includer, exists):
    found = []
    seen = set()
    for number, line in enumerate(text.splitlines(), 1):
        match = INCLUDE.match(line)
        if match:
            problem = fault(includer, match[1], match[2], exists)
            if match[0] in seen:
                problem = f"{match[2]} is included twice"
            seen.add(match[0])
            if problem:
                found.append(f"{includer}:{number}: {problem}")
    return found


def main():
    names = tree.files()
    faults = []
    for name in names:
        text = (tree.ROOT / name).read_text(encoding="utf-8", errors="replace")
        faults += check(text, name, lambda path: (tree.ROOT / path).is_file())
    for line in faults:
        print(line)
    print(f"{len(names)} files read, {len(faults)} wrong includes")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
