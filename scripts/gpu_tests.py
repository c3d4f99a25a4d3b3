#!/usr/bin/env python3
"""Runs the tests that need a GPU on a machine that has one and cannot build: with no CMake and no packages.

    scripts/gpu_tests.py pack ARCHIVE.tar.xz [--only REGEX]
                                    here, after a release build: the tests' programs, plugins and libraries
    scripts/gpu_tests.py run [--results FILE] [--only REGEX] [--seconds N] [--processes N]
                                    there, in a copy of the checkout at the same path, after `tar -xJf ARCHIVE.tar.xz -C /`

A test needs a GPU if its program is tests/cuda's (cuda_*), or if its name says cuda or GPU. `run` begins no test that FILE says
has passed or skipped, and none after N seconds, so several calls together run them all; FILE says of each test how it ended.
It exits with 1 if a test failed, and with 2 if none did and some have not run.
"""
import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "release"
LIST = BUILD / "gpu_tests.json"  # [[program, folder, test], ...]
OF_THE_SYSTEM = re.compile(r"(ld-linux|libc|libm|libdl|librt|libpthread|libstdc\+\+|libgcc_s|libcuda|libcudart|libcublas|libcublasLt|libcupti|libnccl)\b")
OF_CUDA = ["libcudart.so.13", "libcublasLt.so.13", "libcupti.so.13"]
TESTS_A_PROCESS = 8
ENDS = {"       OK": "passed", "  FAILED ": "failed", "  SKIPPED": "skipped"}


def cases_of(program):
    """The names that a GoogleTest program lists: suites at the margin, their cases below, each perhaps with a remark."""
    suite = ""
    for line in subprocess.run([program, "--gtest_list_tests"], check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines():
        name = line.split("#")[0].strip()
        if line.startswith("  "):
            yield suite + name
        else:
            suite = name


def tests_that_need_a_gpu():
    listed = subprocess.run(["ctest", "--preset", "release", "--show-only=json-v1"], cwd=ROOT, check=True, stdout=subprocess.PIPE)
    programs = {}
    for test in json.loads(listed.stdout)["tests"]:
        properties = {p["name"]: p["value"] for p in test["properties"]}
        if any(v.startswith("GTEST_TOTAL_SHARDS=") for v in properties.get("ENVIRONMENT", [])):
            programs[test["command"][0]] = properties["WORKING_DIRECTORY"]
    for program, folder in programs.items():
        for name in cases_of(program):
            if pathlib.Path(program).name.startswith("cuda_") or re.search("cuda|gpu", name, re.I):
                yield [str(pathlib.Path(program).relative_to(ROOT)), str(pathlib.Path(folder).relative_to(ROOT)), name]


def libraries_of(programs):
    said = subprocess.run(["ldd", *programs], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
    return {pathlib.Path(path) for path in re.findall(r"=> (/\S+)", said) if not OF_THE_SYSTEM.match(pathlib.Path(path).name)}


def matching(options, tests):
    return [t for t in tests if re.search(options.only, f"{t[0]} {t[2]}")]


def pack(options):
    tests = matching(options, tests_that_need_a_gpu())
    if not tests:
        sys.exit(f"{BUILD} has no such tests for a GPU: was CUDA found?")
    LIST.write_text(json.dumps(tests))
    programs = [ROOT / p for p in sorted({t[0] for t in tests})] + [BUILD / "bin" / "tenon"]
    plugins = [p for p in BUILD.rglob("*.so*") if "CMakeFiles" not in p.parts]
    with tempfile.TemporaryDirectory() as folder:
        for source in [*programs, *plugins]:
            place = pathlib.Path(folder, str(source.resolve().parent)[1:], source.name)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, place, follow_symlinks=False)
            if not source.is_symlink():
                subprocess.run(["strip", "-s", place], check=True)
        for library in libraries_of([*programs, *plugins]):
            if ROOT not in library.parents:
                shutil.copy2(library, pathlib.Path(folder, str(BUILD)[1:], "lib", library.name))
        shutil.copy2(LIST, pathlib.Path(folder, str(LIST)[1:]))
        shutil.copytree(BUILD / "share", pathlib.Path(folder, str(BUILD / "share")[1:]))
        for _, where, _ in tests:
            pathlib.Path(folder, str(ROOT)[1:], where).mkdir(parents=True, exist_ok=True)
        subprocess.run(["tar", "-C", folder, "-I", "xz -T0", "-cf", pathlib.Path(options.archive).resolve(), "."], check=True)
    print(f"{options.archive}: {len(tests)} tests of {len(programs) - 1} programs, {os.path.getsize(options.archive) / 1e6:.1f} MB")


def environment():
    folders = [str(BUILD / "lib"), *filter(None, os.environ.get("LD_LIBRARY_PATH", "").split(":"))]
    for name in OF_CUDA:
        found = [p for top in ("/usr/local", "/opt", "/usr/lib") for p in pathlib.Path(top).rglob(name) if "stubs" not in p.parts]
        folders += [str(p.parent) for p in found[:1]]
    return {**os.environ, "LD_LIBRARY_PATH": ":".join(dict.fromkeys(folders))}


def ends_of(said, names):
    """How each test of a process ended: (name, end, the lines between its RUN and its end)."""
    for name in names:
        begun = said.find(f"[ RUN      ] {name}\n")
        if begun < 0:
            continue
        ended = re.compile(rf"^\[(       OK|  FAILED |  SKIPPED) \] {re.escape(name)}(?:,[^\n]*)? \(\d+ ms\)$", re.M).search(said, begun)
        yield name, ENDS[ended[1]] if ended else "failed", said[begun:ended.end() if ended else None]


def run_process(program, folder, names, limit):
    command = [str(ROOT / program), "--gtest_filter=" + ":".join(names)]
    try:
        said = subprocess.run(command, cwd=ROOT / folder, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=limit).stdout
    except subprocess.TimeoutExpired as late:
        said = (late.stdout or b"") + f"\nstopped after {limit} seconds\n".encode()
    return program, list(ends_of(said.decode(errors="replace"), names))


def processes_of(tests):
    """Tests of one program a few at a time; programs take turns, so that a run that is cut short has seen something of each."""
    waiting = collections.defaultdict(list)
    for program, folder, name in tests:
        waiting[program, folder].append(name)
    while waiting:
        for key in list(waiting):
            yield *key, waiting[key][:TESTS_A_PROCESS]
            waiting[key] = waiting[key][TESTS_A_PROCESS:]
            if not waiting[key]:
                del waiting[key]


def run(options):
    results = pathlib.Path(options.results)
    done = {tuple(line.split(" ", 2)[1:]) for line in results.read_text().splitlines() if not line.startswith("failed")} if results.exists() else set()
    tests = [t for t in matching(options, json.loads(LIST.read_text())) if (t[0], t[2]) not in done]
    until, counts, broken = time.monotonic() + options.seconds, collections.defaultdict(collections.Counter), []

    def begin(process):
        left = until - time.monotonic()
        return run_process(*process, left) if left > 1 else (process[0], [])

    with concurrent.futures.ThreadPoolExecutor(options.processes) as pool, results.open("a") as file:
        for future in concurrent.futures.as_completed([pool.submit(begin, p) for p in processes_of(tests)]):
            program, ends = future.result()
            for name, end, said in ends:
                stopped = said.endswith("seconds\n")  # by this script's own clock: it has not ended, and did not fail
                if not stopped:
                    counts[program][end] += 1
                    print(end, program, name, file=file, flush=True)
                if end == "failed" and not stopped:
                    broken.append(f"{program} {said[-1500:]}")
    for program, _ in sorted({(t[0], 0) for t in tests}):
        c, all_of_it = counts[program], sum(t[0] == program for t in tests)
        print(f"{pathlib.Path(program).name}: {c['passed']} passed, {c['failed']} failed, {c['skipped']} skipped, {all_of_it - c.total()} not run")
    print(*broken, sep="\n")
    sys.exit(1 if broken else 2 if sum(c.total() for c in counts.values()) < len(tests) else 0)


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
commands = parser.add_subparsers(dest="command", required=True)
packs, runs = commands.add_parser("pack"), commands.add_parser("run")
packs.add_argument("archive")
runs.add_argument("--results", default="gpu_tests.txt", help="how each test ended; read first, then appended to")
for command in (packs, runs):
    command.add_argument("--only", default="", help="tests of which 'PROGRAM NAME' matches")
runs.add_argument("--seconds", type=float, default=3600, help="no test begins, and none goes on, after so long")
runs.add_argument("--processes", type=int, default=os.cpu_count())
options = parser.parse_args()
if options.command == "pack":
    pack(options)
else:
    ENVIRONMENT = environment()
    run(options)
