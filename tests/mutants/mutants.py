#!/usr/bin/env python3
"""Mutants: single mistakes in the source, each with the tests that should notice it. See README.md for the format.

    mutants.py check [TREE]             every mutant applies to the tree, and names targets and tests that are there
    mutants.py list [NAME...]           the names of all mutants or of those given, one a line
    mutants.py show NAME KEY            the value of a head line (why, tests, targets)
    mutants.py apply TREE NAME          makes the mistake
"""

import pathlib
import re
import sys

FOLDER = pathlib.Path(__file__).resolve().parent
KEYS = ("why", "tests", "targets", "file")


class Problem(Exception):
    pass


class Mutant:
    def __init__(self, path):
        self.name, self.head, self.old, self.new = path.stem, {}, [], []
        for number, line in enumerate(path.read_text().splitlines(), 1):
            head = re.fullmatch(r"# (\w+): (.+)", line)
            if head and head[1] in KEYS and head[1] not in self.head and not self.old:
                self.head[head[1]] = head[2]
            elif line[:1] == "-" and not self.new:
                self.old.append(line[1:])
            elif line[:1] == "+":
                self.new.append(line[1:])
            else:
                raise Problem(f"{self.name}: line {number} is neither a head line ({', '.join(KEYS)}) nor -old nor +new")
        missing = [key for key in KEYS if key not in self.head]
        if missing or not squeezed(self.old):
            raise Problem(f"{self.name}: has no {' and no '.join(missing) or 'old text'}")
        if squeezed(self.old) == squeezed(self.new):
            raise Problem(f"{self.name}: the old text and the new one are the same")

    def mutate(self, text):
        """The text with the mistake. Blanks and line ends do not count where the old text is looked for."""
        at = [i for i, c in enumerate(text) if not c.isspace()]
        dense, wanted = squeezed([text]), squeezed(self.old)
        count = len(re.findall(f"(?={re.escape(wanted)})", dense))
        if count != 1:
            raise Problem(f"{self.name}: {self.head['file']} has its old text {count} times, not once; mend it")
        first = dense.index(wanted)
        begin, end = at[first], at[first + len(wanted) - 1] + 1
        return text[:begin] + "\n".join(self.new).strip() + text[end:]


def squeezed(lines):
    return "".join("".join(line.split()) for line in lines)


def load(name):
    path = FOLDER / f"{name}.mutant"
    if not path.exists():
        raise Problem(f"{name}: there is no such mutant")
    return Mutant(path)


def names():
    return sorted(path.stem for path in FOLDER.glob("*.mutant"))


def check(tree):
    rooms = [room for room in sorted(tree.iterdir()) if room.is_dir() and room.name not in (".git", "build", "models")]
    lists = "\n".join(path.read_text() for room in rooms for path in sorted(room.rglob("CMakeLists.txt")))
    tests = [path for path in sorted((tree / "tests").rglob("*")) if path.suffix in (".cc", ".h", ".txt")]
    words = set(re.findall(r"\w+", "\n".join(path.read_text() for path in tests)))
    problems, seen = [], {}
    for name in names():
        try:
            mutant = load(name)
            source = tree / mutant.head["file"]
            if not source.is_file():
                raise Problem(f"{name}: {mutant.head['file']} is not there")
            mistake = (mutant.head["file"], mutant.mutate(source.read_text()))
            if mistake in seen:
                raise Problem(f"{name}: is the same as {seen[mistake]}")
            seen[mistake] = name
            for target in mutant.head["targets"].split():
                if not re.search(rf"\b{re.escape(target)}\b", lists):
                    raise Problem(f"{name}: no CMakeLists.txt knows the target {target}")
            for word in re.findall(r"\w+", mutant.head["tests"]):
                if not any(known.startswith(word) for known in words):
                    raise Problem(f"{name}: no test's name begins with {word}")
        except Problem as problem:
            problems.append(str(problem))
    if not seen:
        problems.append("there are no mutants")
    for problem in problems:
        print(problem)
    print(f"{len(seen)} mutants apply, {len(problems)} problems")
    return 1 if problems else 0


def main(args):
    if args[0] == "check":
        return check(pathlib.Path(args[1] if len(args) > 1 else FOLDER.parents[1]))
    if args[0] == "list":
        print("\n".join([load(name).name for name in args[1:]] or names()))
    elif args[0] == "show":
        print(load(args[1]).head[args[2]])
    elif args[0] == "apply":
        mutant, source = load(args[2]), pathlib.Path(args[1])
        source /= mutant.head["file"]
        source.write_text(mutant.mutate(source.read_text()))
    else:
        raise Problem(__doc__)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:] or ["help"]))
    except Problem as problem:
        print(problem, file=sys.stderr)
        sys.exit(1)
