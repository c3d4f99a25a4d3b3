"""Whether data/fields.json still lists what the installed transformers has. Exits with 77 where it is not installed."""

import json
import pathlib
import sys


def names(everything):
    """Each listed thing as one line."""
    for part, listed in everything.items():
        for name in listed:
            if part == "declared":
                yield from (f"{name}'s class declares {field}: {kind}" for field, kind in listed[name].items())
            else:
                yield f"{part}: {name}"


def main():
    try:
        import fields
    except ImportError as e:
        print(f"skipped: {e}")
        sys.exit(77)
    known = set(names(json.loads((pathlib.Path(__file__).parent / "data/fields.json").read_text())))
    found = set(names(fields.everything()))
    for line in sorted(found - known):
        print(f"new: {line}")
    for line in sorted(known - found):
        print(f"gone: {line}")
    if found != known:
        print("The cases are to be made again with make_cases.py; README.md says how.")
        sys.exit(1)


if __name__ == "__main__":
    main()
