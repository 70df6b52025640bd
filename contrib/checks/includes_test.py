#!/usr/bin/env python3
"""The include check tried on a made-up tree: each rule lets pass what it should and stops what it should."""

import unittest

import includes

TREE = {
    "include/rdma/fi_ext_vma.h",
    "prov/vma/src/core/ring.hpp",
    "prov/vma/src/inet/tcp/tcp.hpp",
    "prov/vma/src/ofi/eq.hpp",
    "prov/vma/src/local/segment.hpp",
    "prov/vma/src/verbs/qp.hpp",
    "prov/vma/src/ether/nic.hpp",
    "compat/src/stats/counters.hpp",
    "compat/src/table/table.hpp",
    "util/vma_stats/view.hpp",
    "util/vmad/daemon.hpp",
    "fabtests/unit.hpp",
}

INET, LOCAL, ETHER = "prov/vma/src/inet/a.cpp", "prov/vma/src/local/a.cpp", "prov/vma/src/ether/a.cpp"
COMPAT, TOOL = "compat/src/table/a.cpp", "util/vma_stats/main.cpp"

GOOD = [
    (INET, '"core/ring.hpp"'),
    (INET, '"inet/tcp/tcp.hpp"'),
    ("prov/vma/src/inet/tcp/a.cpp", '"tcp.hpp"'),
    (INET, "<cstdint>"),
    ("prov/vma/src/ofi/a.cpp", '"core/ring.hpp"'),
    (LOCAL, '"ofi/eq.hpp"'),
    (LOCAL, "<rdma/fi_ext_vma.h>"),
    (LOCAL, "<rdma/fabric.h>"),
    (LOCAL, '"config.h"'),
    (ETHER, '"inet/tcp/tcp.hpp"'),
    ("prov/vma/test/inet/a_test.cpp", '"inet/tcp/tcp.hpp"'),
    ("prov/vma/test/inet/a_test.cpp", '"fabtests/unit.hpp"'),
    (COMPAT, '"stats/counters.hpp"'),
    (COMPAT, "<rdma/fi_ext_vma.h>"),
    (COMPAT, "<rdma/providers/fi_prov.h>"),
    (TOOL, '"stats/counters.hpp"'),
    (TOOL, '"view.hpp"'),
    (TOOL, '"util/vma_stats/view.hpp"'),
    ("util/vma_stats/test/a_test.cpp", '"fabtests/unit.hpp"'),
]

BAD = [
    (INET, '"ofi/eq.hpp"'),
    (INET, '"local/segment.hpp"'),
    (INET, "<rdma/fabric.h>"),
    (INET, "<rdma/fi_ext_vma.h>"),
    (INET, "<sys/socket.h>"),
    (INET, "<chrono>"),
    ("prov/vma/src/inet/tcp/a.cpp", "<chrono>"),
    ("prov/vma/src/inet/wire/a.hpp", '"inet/tcp/tcp.hpp"'),
    ("prov/vma/src/ether/xdp/a.cpp", '"ether/nic.hpp"'),
    (INET, "<thread>"),
    ("prov/vma/src/core/a.cpp", '"ofi/eq.hpp"'),
    ("prov/vma/src/ofi/a.cpp", '"local/segment.hpp"'),
    (LOCAL, '"verbs/qp.hpp"'),
    (LOCAL, '"inet/tcp/tcp.hpp"'),
    (LOCAL, '"../ofi/eq.hpp"'),
    (LOCAL, '"table/table.hpp"'),
    (LOCAL, '"fabtests/unit.hpp"'),
    (ETHER, '"local/segment.hpp"'),
    (COMPAT, '"core/ring.hpp"'),
    ("compat/src/stats/a.cpp", '"table/table.hpp"'), # one that lies above it
    (COMPAT, '"prov/vma/src/ofi/eq.hpp"'),
    (COMPAT, '"nowhere.hpp"'),
    ("compat/test/a_test.cpp", '"core/ring.hpp"'),
    (TOOL, '"table/table.hpp"'),
    (TOOL, '"util/vmad/daemon.hpp"'),
    (TOOL, '"fabtests/unit.hpp"'),
    (TOOL, '"core/ring.hpp"'),
    ("include/rdma/fi_ext_vma.h", '"core/ring.hpp"'),
    ("newfolder/a.cpp", "<cstdint>"),
]


class Includes(unittest.TestCase):
    def faults(self, includer, what):
        return includes.check(f"\n  #  include {what} // why\n", includer, TREE.__contains__)

    def test_allowed(self):
        for includer, what in GOOD:
            with self.subTest(f"{includer}: {what}"):
                self.assertEqual(self.faults(includer, what), [])

    def test_forbidden(self):
        for includer, what in BAD:
            with self.subTest(f"{includer}: {what}"):
                found = self.faults(includer, what)
                self.assertEqual(len(found), 1)
                self.assertTrue(found[0].startswith(f"{includer}:2: "))

    def test_only_directives_are_read(self):
        self.assertEqual(includes.check('// #include "ofi/eq.hpp"\nint include;\n', INET, TREE.__contains__), [])

    def test_twice(self):
        text = '#include <cstdint>\n#include "core/ring.hpp"\n#include <cstdint> // again\n'
        found = includes.check(text, "prov/vma/src/core/a.cpp", TREE.__contains__)
        self.assertEqual(found, ["prov/vma/src/core/a.cpp:3: cstdint is included twice"])


if __name__ == "__main__":
    unittest.main()
