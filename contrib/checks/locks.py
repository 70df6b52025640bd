#!/usr/bin/env python3
"""Is each lock of the libraries one that its thread counts? Another one is waited for without end by a signal handler of the program's that
comes while its own thread has it (doc/faults.md)."""

import re
import sys

import tree

FOLDERS = ("compat/src/", "prov/vma/src/")
LOCK = re.compile(r"\b(?:std::(?:recursive_|shared_|timed_)*mutex|pthread_(?:mutex|rwlock|spin)_\w+)\b")
COUNTED = ("prov/vma/src/core/fd.cpp", "prov/vma/src/core/mutex.hpp", "prov/vma/src/ether/xdp/group_mutex.hpp")  # these count theirs


def main():
    wrong = [f"{name}:{number}: {found[0]}: a core::Mutex, SpinLock or sock::Mutex is counted"
             for name in tree.files() if name.startswith(FOLDERS) and name not in COUNTED
             for number, line in enumerate((tree.ROOT / name).read_text(encoding="utf-8").splitlines(), 1)
             if (found := LOCK.search(line.partition("//")[0]))]
    for fault in wrong:
        print(fault)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
