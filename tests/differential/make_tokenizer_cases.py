"""Makes data/tokenizers.json: the tokenizers of tests/data/tokenizer with one field of tokenizer.json changed at a time,
and what the package `tokenizers` makes of some texts then. Run as make_tokenizer_cases.py TEST, TEST as for judge.py."""

import argparse
import copy
import json
import multiprocessing
import os
import pathlib

import tokenizers
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

import judge
import made_weights

ROOT = pathlib.Path(__file__).parents[1] / "data/tokenizer"
BASES = ["llama-bpe", "llama2", "steps"]
SECTIONS = ["normalizer", "pre_tokenizer", "decoder", "post_processor"]
TEXTS = ["", " ", "Hello, world!", "  two  spaces\n\n\tand a tab ", "I'm 12345 $7.50 #x, caf\u00e9 cafe\u0301 \ufb01ne \u4f60\u597d \U0001f44d",
         "<|im_start|>user <s>x</s>  <unk> y", "AAA aaa Punctuation!!! (a)[b] don't", "\u2581a \u2581\u2581b a\u00a0b"]  # fmt: skip
# Decoded are the ids that the unchanged vocabulary has for these. Ill-formed bytes, which the engine decodes by
# Unicode's rule and the package by one of its own, are not asked for.
DECODED = ["Hello, world! I don't", " caf\u00e9 \u4f60\u597d \U0001f44d  two  spaces\n", "12345 (a)[b]"]
VALUES = [None, True, False, 1, -1, "", "a", "\u2581", "first", "always", "Removed", "MergedWithNext", [], {}, {"String": "a"},
          {"Regex": "[ab]"}]  # fmt: skip
UNKNOWN = "something_new"


def default_steps():
    """Gives one of each step that the package has, as it writes it."""
    def written(section, step):
        t = Tokenizer(models.BPE())
        setattr(t, section, step)
        return json.loads(t.to_str())[section]

    made = {
        "normalizer": [normalizers.NFC(), normalizers.NFD(), normalizers.NFKC(), normalizers.NFKD(), normalizers.Nmt(),
                       normalizers.Lowercase(), normalizers.Strip(), normalizers.Strip(left=False), normalizers.StripAccents(),
                       normalizers.Prepend("x"), normalizers.Replace("a", "b"), normalizers.Replace(Regex("[ab]+"), "c"),
                       normalizers.BertNormalizer(), normalizers.ByteLevel(), normalizers.Sequence([])],
        "pre_tokenizer": [pre_tokenizers.BertPreTokenizer(), pre_tokenizers.ByteLevel(), pre_tokenizers.ByteLevel(False, False),
                          pre_tokenizers.CharDelimiterSplit("a"), pre_tokenizers.Digits(), pre_tokenizers.Digits(True),
                          pre_tokenizers.Metaspace(), pre_tokenizers.Metaspace("_", "never", False),
                          pre_tokenizers.Metaspace("_", "first"), pre_tokenizers.Punctuation(),
                          pre_tokenizers.Split("l", "removed"), pre_tokenizers.Split(Regex("[aeiou]"), "merged_with_next", True),
                          pre_tokenizers.UnicodeScripts(), pre_tokenizers.Whitespace(), pre_tokenizers.WhitespaceSplit(),
                          pre_tokenizers.FixedLength(3), pre_tokenizers.Sequence([])],
        "decoder": [decoders.BPEDecoder(), decoders.ByteFallback(), decoders.ByteLevel(), decoders.CTC(), decoders.Fuse(),
                    decoders.Metaspace(), decoders.Metaspace("_", "never"), decoders.Replace("a", "b"),
                    decoders.Strip(" ", 1, 0), decoders.Strip(" ", 2, 1), decoders.WordPiece(), decoders.Sequence([])],
        "post_processor": [processors.BertProcessing(("<s>", 1), ("</s>", 2)), processors.ByteLevel(),
                           processors.RobertaProcessing(("<s>", 1), ("</s>", 2)),
                           processors.TemplateProcessing("$A:0 <s>:0", "$A:0 $B:1", [("<s>", 1)]), processors.Sequence([])],
    }  # fmt: skip
    return {section: [written(section, step) for step in steps] for section, steps in made.items()}


# Members that no id depends on, or that each step has alike, get fewer values.
FEW_VALUES = {"type_id", "trim_offsets", "pair", "special_tokens", UNKNOWN, "tokens"}


def paths(node, at=()):
    """Gives the members of all objects of a section."""
    if isinstance(node, dict):
        yield (*at, UNKNOWN)
        for key, value in node.items():
            if key not in ("vocab", "merges"):
                yield (*at, key)
                yield from paths(value, (*at, key))
    elif isinstance(node, list):
        for i, value in enumerate(node):
            yield from paths(value, (*at, i))


def changes(base):
    """Gives (path, value), or (path,) for a member that is left out."""
    yield ((),)
    for path in [(UNKNOWN,), ("version",), ("truncation",), ("padding",)]:
        yield from ((path, value) for value in ({"max_length": 3}, 1, "x"))
    for section in SECTIONS:
        yield ((section,),)
        yield from (((section,), value) for value in [None, *default_steps()[section]])
    for section in ["model", *SECTIONS]:
        for path in paths(base[section], (section,)):
            yield (path,)
            few = any(key in FEW_VALUES for key in path) or path[-1] == "id"
            yield from ((path, value) for value in (VALUES[:2] + ["x", {}] if few else VALUES))
    for path in paths(base["added_tokens"][:2], ("added_tokens",)):
        yield (path,)
        yield from ((path, value) for value in (None, True, False, 0, 7, "x", [], {}))
    yield (("added_tokens",),)
    yield from ((("model", "dropout"), value) for value in (0.0, 0.1, 1.0))
    for key in ("continuing_subword_prefix", "end_of_word_suffix"):
        yield from ((("model", key), value) for value in ("##", "</w>"))


def changed(base, path, *value):
    """Returns the base with one member changed, or None if that is no change."""
    if not path:
        return base
    result = copy.deepcopy(base)
    node = result
    for key in path[:-1]:
        node = node[key]
    if value and (path[-1] not in node if isinstance(node, dict) else False) and value[0] is None:
        return None
    if not value:
        if path[-1] not in node:
            return None
        del node[path[-1]]
    else:
        node[path[-1]] = value[0]
    return None if result == base and json.dumps(result) == json.dumps(base) else result


def digest(ids, texts):
    """All answers as one number, made as tokenizer_differential_test.cc makes it."""
    lists = ";".join(",".join(str(i) for i in each) for each in ids)
    text = lists + "".join(chr(31) + text for text in texts)
    if os.environ.get("SHOW"):
        print(repr(text))
    return f"{made_weights.seed_of(text):016x}"


def answer(connection):
    """Answers what comes over the connection, in a process of its own: the package ends some with an abort."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    while True:
        t = None
        try:
            document, ids = connection.recv()
            t = Tokenizer.from_str(json.dumps(document))
            t.no_truncation()
            t.no_padding()
            connection.send(digest([t.encode(text).ids for text in TEXTS], [t.decode(each) for each in ids]))
        except EOFError:
            return
        except BaseException:  # a panic of the package is no Exception
            connection.send(None)


class Reference:
    process = None

    def run(self, document, ids):
        """Returns what tokenizers makes of the texts and ids, as a digest, or None."""
        if self.process is None:
            self.connection, theirs = multiprocessing.Pipe()
            self.process = multiprocessing.Process(target=answer, args=(theirs,), daemon=True)
            self.process.start()
            theirs.close()
        self.connection.send((document, ids))
        try:
            return self.connection.recv()
        except EOFError:
            self.process = None
            return None


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("test", type=pathlib.Path)
    arguments = parser.parse_args()
    outputs, lines, reference, decoded = [], [], Reference(), {}
    for name in BASES:
        base = json.loads((ROOT / name / "tokenizer.json").read_text())
        own = Tokenizer.from_str(json.dumps(base))
        decoded[name] = [own.encode(text, add_special_tokens=False).ids for text in DECODED]
        for path, *value in changes(base):
            document = changed(base, path, *value)
            if document is None:
                continue
            found = reference.run(document, decoded[name])
            if found not in outputs:
                outputs.append(found)
            lines.append([name, list(path), *value[:1], outputs.index(found), ""] if value else
                         [name, list(path), outputs.index(found), ""])
    root = {"tokenizers": tokenizers.__version__, "texts": TEXTS, "ids": decoded, "outputs": outputs, "cases": lines}
    judge.write(root, "tokenizers.json")
    judge.judge(arguments.test, "tokenizers.json")


if __name__ == "__main__":
    main()
