"""Makes data/cases.json, data/logits.f32 and data/fields.json. See README.md for what it needs and what comes out."""

import argparse
import json
import pathlib
import resource
import warnings

import numpy as np

import cases
import fields
import gguf_cases
import judge
import reference


class Tables:
    """This numbers each different value once."""

    def __init__(self):
        self.rows, self.known = [], {}

    def number(self, key, value):
        if key not in self.known:
            self.known[key] = len(self.rows)
            self.rows.append(value)
        return self.known[key]


class Maker:
    def __init__(self):
        self.reference = reference.Reference(cases.PROMPTS)
        self.shapes, self.errors, self.outputs = Tables(), Tables(), Tables()
        self.logits, self.unchanged, self.lines = b"", {}, []
        self.own = {base: self.reference.shapes(json.dumps(config)) for base, config in cases.BASES.items()}

    def result(self, found):
        """Returns the number of an output, or below 0 of an error."""
        if isinstance(found, str):
            return -1 - self.errors.number(found, found)
        data = np.concatenate([rows.reshape(-1) for rows in found.values()]).astype("<f4")
        at = len(self.logits) // 4
        number = self.outputs.number(data.tobytes(), [at, next(iter(found.values())).shape[1]])
        if number == len(self.outputs.rows) - 1 and at == self.outputs.rows[-1][0]:
            self.logits += data.tobytes()
        return number

    def add(self, case):
        """Tries the weights of the base, and where the configuration asks for others, those as well."""
        asked = self.reference.shapes(case.json())
        base = self.own[case.base] + case.extra
        if isinstance(asked, str):
            self.line(case, base, asked)
            return
        self.line(case, base, self.reference.run(case.json(), base))
        # The prompts need 16 tokens.
        if asked != base and not case.extra and asked[0][1][0] >= 16:
            self.line(case, asked, self.reference.run(case.json(), asked))

    def line(self, case, tensors, found):
        shapes = self.shapes.number(json.dumps(tensors), tensors)
        change = case.set if case.text is None else case.text
        number = self.result(found)
        if not case.field:
            self.unchanged[case.base] = number
        self.lines.append([case.base, case.field, change, case.drop, shapes, number])

    def add_gguf(self, case):
        """Takes a file of the same weights, whose logits are those of a config.json."""
        found = "no config.json says so" if case.same_as is None else None
        if found is None:
            text = json.dumps({**cases.BASES["llama"], **case.same_as})
            found = self.reference.run(text, self.own["llama"])
        self.lines.append(["gguf", case.field, case.set, case.drop, 0, self.result(found)])

    def write(self):
        root = {
            "prompts": cases.PROMPTS,
            "bases": {**cases.BASES, "gguf": gguf_cases.BASE},
            "unchanged": {**self.unchanged, "gguf": self.unchanged["llama"]},
            "errors": self.errors.rows,
            "outputs": self.outputs.rows,
            "shapes": self.shapes.rows,
            "cases": [[*line, ""] for line in self.lines],
        }
        judge.write(root, "cases.json")
        (judge.DATA / "logits.f32").write_bytes(self.logits)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("test", type=pathlib.Path, help="tenon_differential_test of a build, which adds its verdicts")
    arguments = parser.parse_args()

    warnings.filterwarnings("ignore")
    resource.setrlimit(resource.RLIMIT_AS, (7 << 30, 7 << 30))  # some configurations ask for a lot
    everything = fields.everything()
    maker = Maker()
    for case in cases.distinct_cases(everything):
        maker.add(case)
    for case in gguf_cases.all_cases():
        maker.add_gguf(case)
    maker.write()
    (judge.DATA / "fields.json").write_text(json.dumps(everything, indent=1) + "\n")
    judge.judge(arguments.test, "cases.json")


if __name__ == "__main__":
    main()
