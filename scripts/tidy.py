#!/usr/bin/env python3
"""tidy.py BUILD JOBS [PATH...]: clang-tidy over the sources of FOLDERS, or over those whose paths begin with a PATH.

TENON_TIDY_PART=K/N: the K-th (from 0) of N parts of them. BUILD has compile_commands.json, without TENON_UNITY; nothing
needs to be built. Most of what clang-tidy does is to read and to search the standard library once for each source. So sources that are compiled alike and share no file-local name are read
together, by a file in BUILD/tidy that includes them, in a fifth of the time. A group that does not parse so is taken apart until
it does. Everything that is found is printed, and ends the run with 1.
"""
import collections
import concurrent.futures
import functools
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

FOLDERS = ("apps/", "conformance/", "core/", "plugins/", "profiler/", "sdk/")
MOST = 20  # sources that are read together
ROOT = pathlib.Path(__file__).resolve().parent.parent
UNKNOWN_TO_CLANG = {"-Wno-restrict", "-fno-gnu-unique"}
PRECOMPILED = re.compile(r" -Winvalid-pch| -include \S+/cmake_pch\.hxx")  # a source includes what it uses
ANONYMOUS = re.compile(r"^namespace \{$(.*?)^\}  // namespace$", re.M | re.S)
# At the margin of an anonymous namespace: the name of a type, or the last word before "(", "=", "{", "[" or ";".
DEFINED = re.compile(r"^(?:template <.*>\s*)?(?:(?:class|struct|union|enum|enum class|using) (\w+)|"
                     r"[A-Za-z_][\w:<>,&*\[\]() ]*?[ &*](\w+)(?= ?[({;=\[]))", re.M)
CONSTANT = re.compile(r"\b(k[A-Z]\w*) ?(?==|\[)")
OF_THE_WHOLE_FILE = re.compile(r"^\s*(?:using namespace|#define) .*", re.M)
INCLUDED = re.compile(r'^#include "(.*)"$', re.M)
# The build has a file for each instruction set that includes a kernel's source. One of them is looked at, the last of
# these.
INSTRUCTION_SETS = ("scalar", "avx2", "avx_vnni", "avx512", "avx512_bf16", "avx512_vbmi", "avx512_vnni")


@functools.cache
def text_of(path):
    return path.read_text(encoding="utf-8")


@functools.cache
def header_names(path, folders):
    """What the tree's own headers define that a file includes, directly or not."""
    names = set()
    for name in INCLUDED.findall(text_of(path)):
        found = next((f / name for f in (path.parent, *folders) if (f / name).is_file()), None)
        if found is not None and found.suffix == ".h":
            names |= {n for pair in DEFINED.findall(text_of(found)) for n in pair if n} | header_names(found, folders)
    return names


def local_names(path):
    text = text_of(path)
    names = set(OF_THE_WHOLE_FILE.findall(text))
    for block in ANONYMOUS.findall(text):
        names |= {name for pair in DEFINED.findall(block) for name in pair if name} | set(CONSTANT.findall(block))
    return names


def read_commands(build, wanted):
    """{path: (suffix, compiler's arguments)} of the sources that are looked at."""
    commands = {}
    for entry in sorted(json.loads((build / "compile_commands.json").read_text()), key=set_of, reverse=True):
        path, isa = pathlib.Path(entry["file"]).resolve(), set_of(entry)
        if isa >= 0:
            path = pathlib.Path(INCLUDED.findall(text_of(path))[0])
        if not path.is_relative_to(ROOT) or path.suffix not in (".cc", ".c"):
            continue
        if str(path.relative_to(ROOT)).startswith(wanted):
            arguments = shlex.split(PRECOMPILED.sub("", re.sub(r" -o \S+ -c \S+$", "", entry["command"])))[1:]
            if isa >= 0:
                arguments.append("-DTENON_ISA=" + INSTRUCTION_SETS[isa])
            commands.setdefault(path, (path.suffix, tuple(a for a in arguments if a not in UNKNOWN_TO_CLANG)))
    return commands


def set_of(entry):
    """The number of the instruction set that the build made the entry's file for; -1: it is a source."""
    isa = entry["file"].split(".")[-2]
    return INSTRUCTION_SETS.index(isa) if isa in INSTRUCTION_SETS else -1


def groups_of(commands):
    """[(command, [path])]: sources of the same command whose local names are neither another's nor of another's headers."""
    by_command = collections.defaultdict(list)
    for path, command in sorted(commands.items()):
        folders = tuple(ROOT / a[2:] for a in command[1] if a.startswith("-I"))
        local, seen = local_names(path), set(header_names(path, folders))
        for group, locals_, headers in by_command[command]:
            if len(group) < MOST and not local & locals_ and not local & (headers - seen) and not seen & locals_:
                group.append(path)
                locals_ |= local
                headers |= seen
                break
        else:
            by_command[command].append(([path], local, seen))
    return [(command, group) for command, groups in by_command.items() for group, *_ in groups]


def tidy(folder, name, command, group):
    """True if nothing is wrong with the sources of a group. -w: about warnings of the compiler g++ has the word."""
    suffix, arguments = command
    together = folder / f"{name}{suffix}"
    together.write_text("".join(f'#include "{path}"\n' for path in group))
    done = subprocess.run(["clang-tidy-16", "--quiet", str(together), "--", *arguments, "-w"], cwd=ROOT, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if done.returncode == 0:
        return True
    if "[clang-diagnostic-error]" in done.stdout and len(group) > 1:
        # The source that the error is in stands alone from now on; where it is in none of them, they are halved.
        odd = [path for path in group if f"{path}:" in done.stdout.split("[clang-diagnostic-error]")[0]][-1:]
        rest = [path for path in group if path not in odd]
        half = len(group) // 2
        apart = [odd, rest] if odd else [group[:half], group[half:]]
        return all([tidy(folder, name + letter, command, part) for letter, part in zip("ab", apart)])
    print(done.stdout or done.stderr, end="", flush=True)
    return False


def main():
    build, jobs, wanted = pathlib.Path(sys.argv[1]).resolve(), int(sys.argv[2]), tuple(sys.argv[3:]) or FOLDERS
    folder = build / "tidy"
    folder.mkdir(exist_ok=True)
    groups = groups_of(read_commands(build, wanted))
    part, parts = map(int, os.environ.get("TENON_TIDY_PART", "0/1").split("/"))
    groups = sorted(groups, key=lambda item: -len(item[1]))[part::parts]
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        clean = list(pool.map(lambda item: tidy(folder, str(item[0]), *item[1]), enumerate(groups)))
    print(f"clang-tidy: {sum(len(group) for _, group in groups)} sources, {'clean' if all(clean) else 'not clean'}")
    return 0 if all(clean) else 1


if __name__ == "__main__":
    sys.exit(main())
