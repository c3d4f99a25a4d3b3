"""Writes the engine's verdict into each committed case: judge.py TEST [--report FILE]. Needs no transformers."""

import argparse
import collections
import json
import os
import pathlib
import subprocess
import tempfile

DATA = pathlib.Path(__file__).parent / "data"
# These tests judge a file of cases.
TESTS = {
    "cases.json": "TheOutputIsThatOfTransformers",
    "tokenizers.json": "TheIdsAreThoseOfTokenizers",
    "tokenizer_folders.json": "AFoldersFilesMeanWhatTransformersTakesThemFor",
    "tokenizer_gguf.json": "GgufsKeysMeanWhatTheirTokenizerJsonDoes",
}


def write(root, name):
    """Writes one case a line, so that a change shows as one."""
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in root["cases"])
    head = ",\n".join(
        f"{json.dumps(key)}:{json.dumps(value, separators=(',', ':'))}" for key, value in root.items() if key != "cases"
    )
    (DATA / name).write_text(f'{{{head},\n"cases":[\n{lines}\n]}}\n')


def judge(test, name, report=None):
    """Runs tenon_differential_test over one file of cases, and counts its verdicts."""
    root = json.loads((DATA / name).read_text())
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "verdicts"
        environment = {**os.environ, "TENON_DIFFERENTIAL_OUT": str(out)}
        subprocess.run([test, f"--gtest_filter=*{TESTS[name]}*"], env=environment, check=True, stdout=subprocess.DEVNULL)
        found = [json.loads(line) for part in out.parent.iterdir() for line in part.read_text().splitlines()]
    found.sort()
    assert len(found) == len(root["cases"])
    for index, word, _, _ in found:
        root["cases"][index][-1] = word
    write(root, name)
    if report:
        report.write_text("".join(f"{word}\t{case}\t{detail}\n" for _, word, detail, case in found))
    print(name, dict(collections.Counter(word for _, word, _, _ in found)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("test", type=pathlib.Path)
    parser.add_argument("--report", type=pathlib.Path, help="write each verdict with its reason to files of this name")
    arguments = parser.parse_args()
    for file in TESTS:
        report = arguments.report and arguments.report.with_suffix("." + file.split(".")[0])
        judge(arguments.test, file, report)
