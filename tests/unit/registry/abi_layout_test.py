#!/usr/bin/env python3
"""abi_layout_test.py SOURCE: scripts/abi_layout.py sees every kind of change of a header and names what changed; changes that mean
nothing it does not see."""

import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SOURCE = Path(sys.argv.pop(1)).resolve()


class AbiLayout(unittest.TestCase):
    def setUp(self):
        self.work = tempfile.TemporaryDirectory()
        self.include = Path(self.work.name) / "include"
        shutil.copytree(SOURCE / "sdk/include/tenon/abi", self.include / "tenon/abi")
        self.header("kind_of_test").write_text("""
            #ifndef KIND_OF_TEST_H
            #define KIND_OF_TEST_H
            #include "tenon/abi/program.h"
            #define TENON_TEST_MOST 4
            enum { TENON_TEST_ONE = 1, TENON_TEST_TWO };
            typedef struct tenon_kind_of_test { /* a comment */
              tenon_head h;
              uint32_t a, b;
              const char *text;
              tenon_tid ids[TENON_TEST_MOST];
              tenon_status (*call)(void *self, const tenon_bounds *b, uint32_t n);
            } tenon_kind_of_test;
            #endif
            """)
        self.run_script()
        self.before = self.hashes()

    def tearDown(self):
        self.work.cleanup()

    def header(self, name):
        return self.include / f"tenon/abi/{name}.h"

    def run_script(self, *args):
        command = [sys.executable, SOURCE / "scripts/abi_layout.py", "--include", self.include, *args]
        return subprocess.run(command, capture_output=True, text=True)

    def hashes(self):
        return dict(re.findall(r'#define TENON_LAYOUT_(\w+) +"(\w{16})"', self.header("layout").read_text()))

    def replace(self, header, old, new):
        text = self.header(header).read_text()
        self.assertIn(old, text)
        self.header(header).write_text(text.replace(old, new, 1))

    def changed_kinds(self):
        result = self.run_script()
        self.assertEqual(result.returncode, 0, result.stderr)
        after = self.hashes()
        return {kind for kind in after if after[kind] != self.before.get(kind)}

    def test_a_header_is_a_kind(self):
        self.assertIn("KIND_OF_TEST", self.before)
        self.assertIn("SAMPLER", self.before)
        self.assertNotIn("TYPES", self.before)
        self.assertEqual(self.run_script("--check").returncode, 0)

    def test_every_change_is_seen_and_named(self):
        changes = [
            ("a field's name", "uint32_t a, b;", "uint32_t a, c;"),
            ("fields of one type swapped", "uint32_t a, b;", "uint32_t b, a;"),
            ("a field's sign", "uint32_t a, b;", "int32_t a, b;"),
            ("a field more", "uint32_t a, b;", "uint32_t a, b, c;"),
            ("a field less", "const char *text;", ""),
            ("what a pointer points to", "const char *text;", "const int8_t *text;"),
            ("a field's const", "const char *text;", "char *text;"),
            ("a parameter's type", "uint32_t n);", "int32_t n);"),
            ("a parameter more", "uint32_t n);", "uint32_t n, uint32_t m);"),
            ("a return type", "tenon_status (*call)", "uint32_t (*call)"),
            ("the length of an array", "#define TENON_TEST_MOST 4", "#define TENON_TEST_MOST 5"),
        ]
        original = self.header("kind_of_test").read_text()
        for what, old, new in changes:
            with self.subTest(what):
                self.replace("kind_of_test", old, new)
                result = self.run_script("--check")
                self.assertEqual(result.returncode, 1)
                self.assertIn("kind_of_test: tenon_kind_of_test has changed", result.stderr)
                self.assertIn("run: python3 scripts/abi_layout.py", result.stderr)
                self.assertEqual(self.changed_kinds(), {"KIND_OF_TEST"})
                self.header("kind_of_test").write_text(original)
                self.run_script()
                self.assertEqual(self.hashes(), self.before)

    def test_values_are_seen(self):
        self.replace("kind_of_test", "TENON_TEST_ONE = 1", "TENON_TEST_ONE = 3")
        self.assertIn("enum TENON_TEST_ONE has changed", self.run_script("--check").stderr)
        self.assertEqual(self.changed_kinds(), {"KIND_OF_TEST"})

    def test_what_all_see_changes_all(self):
        self.replace("program", "typedef uint32_t tenon_tid;", "typedef int32_t tenon_tid;")
        self.assertEqual(self.changed_kinds(), set(self.before))

    def test_what_one_includes_changes_both(self):
        self.header("other_kind").write_text("""
            #include "tenon/abi/kind_of_test.h"
            typedef struct tenon_other_kind { tenon_head h; } tenon_other_kind;
            """)
        self.run_script()
        self.before = self.hashes()
        self.replace("kind_of_test", "uint32_t a, b;", "int32_t a, b;")
        self.assertEqual(self.changed_kinds(), {"KIND_OF_TEST", "OTHER_KIND"})

    def test_words_do_not_count(self):
        self.replace("kind_of_test", "/* a comment */", "/* another */")
        self.replace("kind_of_test", "uint32_t a, b;", "uint32_t a;\n\n uint32_t b;")
        self.replace("kind_of_test", "*self, const tenon_bounds *b, uint32_t n", "*, const tenon_bounds *, uint32_t count")
        self.assertEqual(self.run_script("--check").returncode, 0)

    def test_what_it_cannot_read_is_an_error(self):
        self.replace("kind_of_test", "uint32_t a, b;", "union { uint32_t a, b; } u;")
        result = self.run_script("--check")
        self.assertEqual(result.returncode, 1)
        self.assertIn("a struct in a struct", result.stderr)

    def test_a_half_merged_file_is_written_anew(self):
        self.header("layout").write_text("#ifndef TENON_ABI_LAYOUT_H\n<<<<<<< HEAD\n#endif\n")
        self.run_script()
        self.assertEqual(self.hashes(), self.before)


if __name__ == "__main__":
    unittest.main()
