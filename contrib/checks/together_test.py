#!/usr/bin/env python3
"""Sources that are compiled together (contrib/checks/together.py), and those that can't be."""

import os
import pathlib
import subprocess
import tempfile
import unittest

import together


class Together(unittest.TestCase):
    """Objects of sources in a folder of their own, by the compiler that builds use."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(folder.name)
        pathlib.Path(together.FOLDER).mkdir()

    def compile(self, **sources):
        """Exit status, symbols of the object, and what it depends on."""
        for name, text in sources.items():
            pathlib.Path(f"{name}.cpp").write_text(text, encoding="utf-8")
        names = [f"{name}.cpp" for name in sources]
        status = together.compile_all(["c++", "-MD", "-MP", "-MF", "d", "-c", "-o", "o", names[0]], os.getcwd(), names)
        if status:
            return status, None, None
        found = subprocess.run(["nm", "--defined-only", "-j", "o"], check=True, capture_output=True, text=True).stdout.split()
        return status, found, pathlib.Path("d").read_text(encoding="utf-8")

    def test_one_object_has_all(self):
        status, found, depends = self.compile(a="int a;", b="int b;", c="int c;")
        self.assertEqual((status, found), (0, ["a", "b", "c"]))
        for name in "abc":
            self.assertIn(f"/{name}.cpp", depends)

    def test_those_that_do_not_go_together_are_compiled_apart(self):
        _, found, depends = self.compile(a="static int n; int *a = &n;", b="int b;", c="static long n; long *c = &n;", d="int d;")
        self.assertLessEqual({"a", "b", "c", "d"}, set(found))
        for name in "abcd":
            self.assertIn(f"/{name}.cpp", depends)

    def test_an_error_is_one(self):
        self.assertEqual(self.compile(a="int a;", b="nonsense"), (1, None, None))

    def test_parts_of_the_products(self):
        self.assertEqual(together.part("compat/src/tcp/send.cpp"), "compat/src/tcp/")
        self.assertEqual(together.part("prov/vma/src/local/cm/link.cpp"), "prov/vma/src/local/")
        for other in "compat/test/tcp/end_test.cpp", "util/vmad/main.cpp":
            self.assertIsNone(together.part(other))


if __name__ == "__main__":
    unittest.main()
