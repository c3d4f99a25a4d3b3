#!/usr/bin/env python3
"""beside_torch_test.py SCRIPT: whom the script asks for what, its ratios and what it says of failures, with stand-ins for both programs."""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(sys.argv.pop(1))

PYTHON = """#!/bin/sh
echo peer "$@" >> {log}
case $2 in
  bnb-nf4) echo 'Traceback' >&2; echo 'ImportError: no such library' >&2; exit 1;;
  *) echo 'said on the way'; echo '{{"tok_per_s": 100, "how": "a graph"}}';;
esac
"""
TENON = """#!/bin/sh
echo tenon "$@" >> {log}
case "$*" in *int8wo*) echo 'no such device' >&2; exit 4;; esac
echo '{{"points":[{{"decode_tok_per_s":{{"median":250}}}}]}}'
"""


class BesideTorch(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        for name, text in (("python", PYTHON), ("tenon", TENON)):
            (self.folder / name).write_text(text.format(log=self.folder / "log"))
            (self.folder / name).chmod(0o755)

    def run_script(self, *words):
        return subprocess.run([sys.executable, SCRIPT, "--python", self.folder / "python", "--tenon", self.folder / "tenon",
                               "--json", self.folder / "all.json", *words], capture_output=True, text=True, check=False)

    def log(self):
        return (self.folder / "log").read_text().splitlines()

    def test_measures_each_peer_and_then_the_scheme_beside_it(self):
        done = self.run_script("--peers", "bf16,torchao-int4", "--new-tokens", "50")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("| bf16 | 100.0 | a graph | none | 250.0 | 2.50 |", done.stdout)
        self.assertIn("| torchao-int4 | 100.0 | a graph | int4wo | 250.0 | 2.50 |", done.stdout)
        self.assertEqual([line.split()[0] for line in self.log()], ["peer", "tenon", "peer", "tenon"])
        for line in self.log():
            self.assertIn("--prompt-tokens 16 --new-tokens 50", line)
        self.assertIn("synthetic:llama-2-7b --set device.use=cuda --set quantization.use=int4wo --set quantization.group_size=64", self.log()[3])
        self.assertEqual(json.loads((self.folder / "all.json").read_text())["bf16"]["peer"]["tok_per_s"], 100)

    def test_tells_failures_and_goes_on(self):
        done = self.run_script("--peers", "bnb-nf4,torchao-int8,bf16")
        self.assertEqual(done.returncode, 1)
        self.assertIn("| bnb-nf4 | - | ended with 1: ImportError: no such library | nf4 | 250.0 | - |", done.stdout)
        self.assertIn("| torchao-int8 | 100.0 | a graph | int8wo | ended with 4: no such device | - |", done.stdout)
        self.assertIn("| bf16 | 100.0 | a graph | none | 250.0 | 2.50 |", done.stdout)

    def test_refuses_peers_that_it_does_not_know(self):
        done = self.run_script("--peers", "bf16,exllama")
        self.assertEqual(done.returncode, 2)
        self.assertIn("--peers has exllama; known are bf16, torchao-int4", done.stderr)
        self.assertFalse((self.folder / "log").exists())


if __name__ == "__main__":
    unittest.main()
