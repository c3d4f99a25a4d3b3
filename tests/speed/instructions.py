#!/usr/bin/env python3
"""instructions.py TENON [--record]: how many instructions short runs take on one thread, counted by valgrind, beside what is recorded.

It counts what a busy machine cannot change: the same program runs the same instructions, but for what hashes of addresses and the clock
decide. A count that differs from instructions.csv by more than MARGIN ends it with 1. A change that means to change a count records it
anew (--record) and says in its commit what became better or worse.

The counts are those of the release build with g++ 12, since another compiler makes other instructions, and of AVX2's
kernels: valgrind shows every program the same processor, which has AVX2 and no AVX-512, on any machine with AVX2. The program sees only
the components that every build has, since it looks at each one as it starts. Exit code 77 means that nothing could be compared, and the
reason is printed.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import recorded

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
RECORDED = HERE / "instructions.csv"
COLUMNS = ["pipeline", "what", "instructions"]
MARGIN = 0.05
NOTHING_COMPARED = 77

FIXED = ["device.isa=avx2", "device.threads=1", "kv_cache.capacity=256"]
PIPELINES = {  # name: (model, what is set)
    "tiny-gguf": ("tests/golden/data/tiny-gguf-mixed/tiny-gguf-mixed.gguf", ["quantization.use=gguf"]),
    "15m-int4wo": ("synthetic:stories15m", ["quantization.use=int4wo"]),
}
TEXT = "Once upon a time there was a machine. "


def core_with_common_components(tenon, folder):
    """Copies the core beside the CPU's components, without those of libraries that are fetched. Returns the folder of libraries."""
    built = pathlib.Path(tenon).resolve().parent.parent
    for library in built.glob("lib/tenon/plugins/*/*.cpu.so"):
        if library.parent.name != "grammar":
            link = folder / library.relative_to(built)
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(library)
    for core in built.glob("lib/libtenon_core.so.?"):
        shutil.copy(core, folder / "lib")
    (folder / "share").symlink_to(built / "share")
    return folder / "lib"


def instructions(tenon, model, settings, text, new_tokens):
    """Returns those of one run, as cachegrind counts them: those of the program and its libraries, and none of the kernel's."""
    command = [tenon, "generate", model, "--prompt", text, "--max-new-tokens", str(new_tokens), "--ignore-end"]
    for setting in FIXED + settings:
        command += ["--set", setting]
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(["valgrind", "--tool=cachegrind", "--cache-sim=no",
                               f"--cachegrind-out-file={folder}/out", *command], cwd=ROOT, text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    found = re.search(r"I\s+refs:\s+([\d,]+)", done.stderr)
    if done.returncode != 0 or not found:
        sys.exit(f"{' '.join(command)}: {done.stderr}")
    return int(found[1].replace(",", ""))


def count(tenon):
    """Returns {(pipeline, what): instructions} of a run that does next to nothing, and what a longer prompt and tokens add."""
    counts = {}
    for name, (model, settings) in PIPELINES.items():
        start = instructions(tenon, model, settings, TEXT, 1)
        counts[name, "start"] = start
        counts[name, "prompt"] = instructions(tenon, model, settings, 3 * TEXT, 1) - start
        counts[name, "decode"] = instructions(tenon, model, settings, TEXT, 17) - start
    return counts


def reason_to_skip():
    if shutil.which("valgrind") is None:
        return "valgrind is not installed"
    if " avx2 " not in pathlib.Path("/proc/cpuinfo").read_text():
        return "this machine has no AVX2, which the recorded runs use"
    return ""


def differences(before, counted):
    """Returns what differs by more than MARGIN, one line each."""
    lines = []
    for key in sorted(before.keys() | counted.keys()):
        was, now = before.get(key), counted.get(key)
        if was is None or now is None or abs(now - was) > MARGIN * was:
            change = f" ({100 * (now - was) / was:+.1f} %)" if was and now else ""
            lines.append(f"{' '.join(key)}: recorded {was}, counted {now}{change}")
    return lines


def read(path):
    return {(pipeline, what): int(n) for pipeline, what, n in recorded.read(path)[1:]}


def main():
    if reason := reason_to_skip():
        print(reason)
        return NOTHING_COMPARED
    tenon = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        os.environ["LD_LIBRARY_PATH"] = str(core_with_common_components(tenon, pathlib.Path(folder)))
        counted = count(tenon)
    if "--record" in sys.argv:
        recorded.write(RECORDED, [COLUMNS, *([*key, n] for key, n in counted.items())])
        return 0
    lines = differences(read(RECORDED), counted)
    if lines:
        print("\n".join(lines))
        print(f"these differ by more than {100 * MARGIN:.0f} % from {RECORDED.relative_to(ROOT)}; a change that means it records them anew:\n"
              f"  python3 tests/speed/instructions.py {tenon} --record")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
