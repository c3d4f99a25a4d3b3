#!/usr/bin/env python3
"""beside_llama_test.py SCRIPT: the script's arithmetic, order and messages, with stand-ins for the programs."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(sys.argv.pop(1))

# Each notes that it ran; speeds depend on how often, so that a median is none of the first, last, least or largest.
TENON = """#!/bin/sh
echo tenon $1 >> {log}
n=$(grep -c "tenon $1" {log})
case $n in 1) v=90;; 2) v=300;; *) v=200;; esac
if [ $1 = bench ]; then
  echo '{{"points":[{{"prefill_tok_per_s":{{"median":'$v'}},"decode_tok_per_s":{{"median":50}}}}]}}'
else
  echo text
fi
"""
BENCH = """#!/bin/sh
echo llama bench >> {log}
echo '[{{"avg_ts":100}}]'
"""
COMPLETION = """#!/bin/sh
echo llama completion >> {log}
sleep 0.2
echo text
"""


class BesideLlama(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        self.log = self.folder / "log"
        for name, text in (("tenon", TENON), ("llama-bench", BENCH), ("llama-completion", COMPLETION), ("x.gguf", "")):
            self.put(name, text)

    def put(self, name, text):
        (self.folder / name).write_text(text.format(log=self.log))
        (self.folder / name).chmod(0o755)

    def run_script(self, *words):
        return subprocess.run([sys.executable, SCRIPT, "--llama", self.folder, "--tenon", self.folder / "tenon",
                               self.folder / "x.gguf", *words], capture_output=True, text=True, check=False)

    def test_prints_medians_and_ratios_of_alternating_runs(self):
        done = self.run_script("--runs", "3", "--only", "prompt")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("| x.gguf | prompt, tok/s | 200 | 100 | 2.00 |", done.stdout)
        order = [line.split()[0] for line in self.log.read_text().splitlines()]
        self.assertEqual(order, ["tenon", "llama", "llama", "tenon", "tenon", "llama"])

    def test_less_time_is_a_ratio_above_one(self):
        done = self.run_script("--runs", "1", "--only", "first,memory")
        self.assertEqual(done.returncode, 0, done.stderr)
        first = next(line for line in done.stdout.splitlines() if "first, s" in line)
        self.assertGreater(float(first.split("|")[5]), 1)

    def test_names_what_is_missing(self):
        (self.folder / "llama-bench").unlink()
        done = self.run_script()
        self.assertEqual(done.returncode, 2)
        self.assertIn("llama-bench is no program; llama.cpp builds it as target llama-bench", done.stderr)
        self.assertFalse(self.log.exists())

    def test_shows_what_a_program_said_before_it_failed(self):
        self.put("llama-bench", "#!/bin/sh\necho no such model >&2\nexit 3\n")
        done = self.run_script("--only", "decode")
        self.assertEqual(done.returncode, 1)
        self.assertIn("ended with 3", done.stderr)
        self.assertIn("no such model", done.stderr)

    def test_refuses_measures_that_it_does_not_know(self):
        done = self.run_script("--only", "speed")
        self.assertEqual(done.returncode, 2)
        self.assertIn("known are prompt, decode, first, memory", done.stderr)


if __name__ == "__main__":
    unittest.main()
