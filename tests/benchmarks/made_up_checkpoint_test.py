#!/usr/bin/env python3
"""made_up_checkpoint_test.py SCRIPT TENON: a model in each form runs, in that form, and is made once only."""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT, TENON = pathlib.Path(sys.argv.pop(1)), sys.argv.pop(1)
sys.path.insert(0, str(SCRIPT.parent))
import made_up_checkpoint  # noqa: E402


class MadeUpCheckpoint(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)

    def make(self, form, out):
        return subprocess.run([sys.executable, SCRIPT, form, out, "--shape", "small", "--layers", "1"], capture_output=True, text=True, check=False)

    def test_each_form_runs(self):
        for form in [*made_up_checkpoint.FOLDERS, *made_up_checkpoint.BLOCKS]:
            with self.subTest(form):
                out = self.folder / (form if form in made_up_checkpoint.FOLDERS else f"{form}.gguf")
                self.assertEqual(self.make(form, out).returncode, 0)
                done = subprocess.run([TENON, "bench", out, "--set", "quantization.use=auto", "--prompt-tokens", "4", "--new-tokens", "4",
                                       "--warmups", "0", "--runs", "1", "--format", "json"], capture_output=True, text=True, check=False)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertGreater(json.loads(done.stdout)["points"][0]["decode_tok_per_s"]["median"], 0)

    def test_what_is_there_is_left_alone(self):
        out = self.folder / "there"
        out.mkdir()
        made = self.make("gptq", out)
        self.assertEqual((made.returncode, list(out.iterdir())), (2, []))
        self.assertIn(f"{out} is there", made.stderr)


if __name__ == "__main__":
    unittest.main()
