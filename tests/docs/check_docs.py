#!/usr/bin/env python3
"""check_docs.py SOURCE [BUILD]: what the root's and docs' pages say is so.

Links to files lead to files. A fenced block whose info string has a word after the language is checked:
  file=PATH   it stands in that file of the checkout, line by line
  write=NAME  it is written to NAME for the commands that follow
  run         with BUILD: its commands succeed, run with bash in a folder that looks like the checkout's root, in which
              build/release is BUILD; blocks of one page share the folder
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

FENCE = re.compile(r"^```(\S*)[ ]*(\S*)$\n(.*?)^```$", re.M | re.S)
LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)")
LINKED = ["configs", "examples", "models", "sdk", "plugins", "docs"]


def stands_in(block, text):
    return ("\n" + block) in ("\n" + text)


def make_root(root, source, build):
    for name in LINKED:
        if (source / name).exists():
            (root / name).symlink_to(source / name)
    (root / "build").mkdir()
    (root / "build/release").symlink_to(build)


def run(commands, root, build):
    home = root / "home"
    home.mkdir(exist_ok=True)
    environment = {"PATH": f"{build}/bin:/usr/bin:/bin", "HOME": str(home), "LANG": "C.UTF-8"}
    done = subprocess.run(["bash", "-euo", "pipefail", "-xc", commands], cwd=root, env=environment, text=True, timeout=300,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, errors="replace")
    return None if done.returncode == 0 else f"ended with {done.returncode}:\n{done.stdout[-4000:]}"


def check_page(page, source, build, root):
    """Yields (line, problem)."""
    text = page.read_text(encoding="utf-8")
    line_of = lambda match: text.count("\n", 0, match.start()) + 1
    for link in LINK.finditer(FENCE.sub(lambda m: "\n" * m[0].count("\n"), text)):
        if "://" not in link[1] and not (page.parent / link[1]).exists():
            yield f"{link[1]} is not there", link[1]
    for fence in FENCE.finditer(text):
        _, word, block = fence.groups()
        key, _, value = word.partition("=")
        problem = None
        if key == "file":
            path = source / value
            if not path.is_file():
                problem = f"{value} is not there"
            elif not stands_in(block, path.read_text(encoding="utf-8")):
                problem = f"differs from {value}"
        elif key == "write" and build:
            (root / value).write_text(block, encoding="utf-8")
        elif key == "run" and build:
            problem = run(block, root, build)
        elif key not in ("", "write", "run"):
            problem = f'unknown word "{word}"; file=PATH, write=NAME or run'
        if problem:
            yield problem, f"line {line_of(fence)}"


def main():
    source = pathlib.Path(sys.argv[1]).resolve()
    build = pathlib.Path(sys.argv[2]).resolve() if len(sys.argv) > 2 else None
    os.umask(0o022)  # plugins that others may write to are not loaded
    problems = 0
    for page in [*sorted(source.glob("*.md")), *sorted((source / "docs").glob("*.md"))]:
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            if build:
                make_root(root, source, build)
            for problem, where in check_page(page, source, build, root):
                print(f"{page.relative_to(source)}: {where}: {problem}")
                problems += 1
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
