#!/usr/bin/env python3
"""What is a function, and what is too long, as contrib/checks/length.py sees it."""

import unittest

import length


def function(lines, head="int f()", indent=""):
    return [f"{indent}{head}", f"{indent}{{", *[f"{indent}    g();"] * (lines - 3), f"{indent}}}"]


class Functions(unittest.TestCase):
    def lengths(self, *lines):
        return [found for _, found in length.functions_of_cxx(lines)]

    def test_is_measured_from_its_head_to_its_end(self):
        self.assertEqual(self.lengths("// Why.", *function(61)), [61])
        self.assertEqual(self.lengths("template <typename T> int f(int a,", "    int b)", *function(20)[1:]), [21])

    def test_members_are_and_their_class_is_none(self):
        self.assertEqual(self.lengths("template <typename T> class C", "{", "public:", *function(70, indent="    "), "};"), [70])

    def test_blocks_and_lambdas_are_parts(self):
        self.assertEqual(self.lengths("int f()", "{", "    g();", "    {", "        h();", "    }", "}"), [7])

    def test_python(self):
        self.assertEqual([found for _, found in length.functions_of_python("def f():\n" + "    g()\n" * 60)], [61])


class Findings(unittest.TestCase):
    def test_what_is_too_long_is_said(self):
        self.assertEqual(list(length.findings("a.cpp", 500, [(1, 60)])), [])
        self.assertEqual(len(list(length.findings("a.cpp", 501, [(1, 61), (70, 62)]))), 3)

    def test_a_folder_has_no_more_than_a_look_takes_in(self):
        self.assertEqual(list(length.crowded(f"a/{number}.cpp" for number in range(40))), [])
        self.assertEqual(len(list(length.crowded([*(f"a/{number}.cpp" for number in range(41)), "a/b/c.cpp"]))), 1)

    def test_a_comment_is_no_wider_than_code(self):
        wide = "x" * 121
        text = f"// {wide}\n * {wide}\nint f(); // {wide}\n//   {wide}\n// {wide[:110]}\n"
        self.assertEqual([found.split(":")[1] for found in length.wide_comments("a.cpp", text)], ["1", "2"])


if __name__ == "__main__":
    unittest.main()
