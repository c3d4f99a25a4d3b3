"""Whether data/fields.json and data/tokenizer_fields.json still list what the installed transformers and gguf have. Exits
with 77 where they are not installed."""

import json
import pathlib
import sys


def names(everything):
    """Gives each listed thing as one line."""
    for part, listed in everything.items():
        for name in listed:
            if part == "declared":
                yield from (f"{name}'s class declares {field}: {kind}" for field, kind in listed[name].items())
            else:
                yield f"{part}: {name}"


def main():
    try:
        import fields
        import tokenizer_fields
    except ImportError as e:
        print(f"skipped: {e}")
        sys.exit(77)
    data = pathlib.Path(__file__).parent / "data"
    known, found = set(), set()
    for file, listed in (("fields.json", fields), ("tokenizer_fields.json", tokenizer_fields)):
        known |= set(names(json.loads((data / file).read_text())))
        found |= set(names(listed.everything()))
    for line in sorted(found - known):
        print(f"new: {line}")
    for line in sorted(known - found):
        print(f"gone: {line}")
    if found != known:
        print("The cases are to be made again with make_cases.py or make_tokenizer_file_cases.py; README.md says how.")
        sys.exit(1)


if __name__ == "__main__":
    main()
