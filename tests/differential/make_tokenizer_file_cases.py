"""Makes data/tokenizer_folders.json and data/tokenizer_gguf.json: the files beside a tokenizer.json, and GGUF's tokenizer
keys, with one key changed at a time, and what transformers and tokenizers make of some texts then. Run as
make_tokenizer_file_cases.py TEST, TEST as for judge.py; it also writes data/tokenizer_fields.json, the keys that there are."""

import argparse
import copy
import json
import os
import pathlib
import tempfile

os.environ["TRANSFORMERS_VERBOSITY"] = "error"

import tokenizers
import transformers
from tokenizers import Tokenizer

import judge
import tokenizer_fields
from make_tokenizer_cases import DECODED, ROOT, TEXTS as MORE_TEXTS, digest

NEW, WORD, OTHER = "brand<new>", "two", "<|im_start|>"
TEXTS = [*MORE_TEXTS, f"a {NEW} b{NEW} {WORD}{WORD} left"]
VALUES = [None, True, False, 0, 7, "x", "left", NEW, WORD, OTHER, {"content": NEW, "lstrip": True}, {"content": "x"}, {}, [],
          [NEW], [WORD], [OTHER], [{"content": NEW}], {"extra_token": NEW}, {"1": "x"}]  # fmt: skip
# tokenizer.json says how it is read; what a class of transformers makes anew of its vocabulary is not followed.
CONFIG = "tokenizer_config.json"
GENERIC = "PreTrainedTokenizerFast"
ENDS = {"llama-bpe": ("<|im_start|>", "<|im_end|>"), "llama2": ("<s>", "</s>")}


def base_of(name):
    bos, eos = ENDS[name]
    stated = {"bos_token": bos, "eos_token": eos}
    return {CONFIG: {"tokenizer_class": GENERIC, **stated}, "special_tokens_map.json": stated}


def folder_changes(name, fields):
    """Gives (path, value), or (path,) for a key that is left out."""
    yield ((),)
    for key in [*fields["tokenizer_config"], "something_new"]:
        if key not in ("tokenizer_class", "name_or_path"):
            yield from (((CONFIG, key), value) for value in VALUES)
    special = [key for key in fields["tokenizer_config"] if key.endswith(("_token", "_tokens")) and key[:4] != "add_"]
    for key in [*special, "something_new"]:
        yield from ((("special_tokens_map.json", key), value) for value in VALUES)
    for file in (CONFIG, "special_tokens_map.json"):
        yield from (((file, key),) for key in ("bos_token", "eos_token"))
        yield ((file,),)
    for tokens in ({}, {NEW: 1500}, {NEW: 1}, {WORD: 5}, {"x": -1}, [], 7, {NEW: "x"}):
        yield (("added_tokens.json",), tokens)
    tokens = json.loads((ROOT / name / "tokenizer.json").read_text())["added_tokens"]
    known = {str(t["id"]): {k: v for k, v in t.items() if k != "id"} for t in tokens}
    size = max(t["id"] for t in tokens) + 2000
    token = {member: member == "special" for member in fields["added_token"]} | {"content": NEW}
    for decoder in (known, {}, {str(size): token}, {**known, str(size): token}, {"x": token}, {"1": token}, [token], 7):
        yield ((CONFIG, "added_tokens_decoder"), decoder)
    first = tokens[1]
    for member in [*fields["added_token"], "something_new"]:
        for value in (None, True, False, 7, "x"):
            yield ((CONFIG, "added_tokens_decoder"), {**known, str(first["id"]): {**known[str(first["id"])], member: value}})


def changed(files, path, *value):
    """Returns the files with one key changed, or None if that is no change."""
    if not path:
        return files
    result = copy.deepcopy(files)
    node = result
    for key in path[:-1]:
        node = node[key]
    if value:
        node[path[-1]] = value[0]
    elif node.pop(path[-1], None) is None:
        return None
    return None if result == files and json.dumps(result) == json.dumps(files) else result


def of_folder(name, files, ids):
    """Returns what transformers makes of the texts and ids with these files, as a digest, or None."""
    with tempfile.TemporaryDirectory() as folder:
        for file, document in files.items():
            (pathlib.Path(folder) / file).write_text(json.dumps(document))
        (pathlib.Path(folder) / "tokenizer.json").write_text((ROOT / name / "tokenizer.json").read_text())
        try:
            t = transformers.AutoTokenizer.from_pretrained(folder)
            return digest([t.encode(text) for text in TEXTS], [t.decode(each, skip_special_tokens=True) for each in ids])
        except BaseException:  # a panic of the package is no Exception
            return None


def of_document(document, ids):
    """Returns what tokenizers makes of them with this tokenizer.json, as a digest."""
    t = Tokenizer.from_str(json.dumps(document))
    return digest([t.encode(text).ids for text in TEXTS], [t.decode(each) for each in ids])


def folders(fields):
    outputs, lines, decoded, bases = [], [], {}, {}
    for name in ENDS:
        own = Tokenizer.from_file(str(ROOT / name / "tokenizer.json"))
        decoded[name] = [own.encode(text, add_special_tokens=False).ids for text in DECODED]
        bases[name] = base_of(name)
        seen = set()
        for path, *value in folder_changes(name, fields):
            files = changed(bases[name], path, *value)
            if files is None or json.dumps(files) in seen:
                continue
            seen.add(json.dumps(files))
            found = of_folder(name, files, decoded[name])
            if found not in outputs:
                outputs.append(found)
            lines.append([name, list(path), *value[:1], outputs.index(found), ""])
    return {"transformers": transformers.__version__, "texts": TEXTS, "ids": decoded, "bases": bases, "outputs": outputs,
            "cases": lines}  # fmt: skip


# ---- GGUF ----

P = "tokenizer.ggml."
NORMAL, UNKNOWN, CONTROL, USER, BYTE = 1, 2, 3, 4, 6
KINDS = [["u32", 0], ["u32", 5], ["i32", -1], ["u64", 2**40], ["f32", 0.5], ["bool", True], ["bool", False], ["str", ""],
         ["str", "x"], ["i32s", [1, 2]], ["f32s", [0.5]], ["strs", ["x"]]]  # fmt: skip


def template(before, after):
    ids = {"<s>": 1, "</s>": 2, "<|endoftext|>": 0, "<|im_start|>": 1, "<|im_end|>": 2}
    single = [{"SpecialToken": {"id": t, "type_id": 0}} for t in before] + [{"Sequence": {"id": "A", "type_id": 0}}]
    single += [{"SpecialToken": {"id": t, "type_id": 0}} for t in after]
    special = {t: {"id": t, "ids": [ids[t]], "tokens": [t]} for t in (*before, *after)}
    pair = [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}]
    return {"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": special}


def gguf_bases():
    """Gives name -> (keys, the tokenizer.json that says the same)"""
    document = json.loads((ROOT / "llama-bpe/tokenizer.json").read_text())
    vocab = sorted(document["model"]["vocab"], key=document["model"]["vocab"].get)
    special = {t["id"] for t in document["added_tokens"] if t["special"]}
    byte_level = {
        "general.architecture": ["str", "llama"], P + "model": ["str", "gpt2"], P + "pre": ["str", "llama-bpe"],
        P + "tokens": ["strs", vocab], P + "token_type": ["i32s", [CONTROL if i in special else NORMAL for i in range(len(vocab))]],
        P + "merges": ["strs", [m if isinstance(m, str) else " ".join(m) for m in document["model"]["merges"]]],
        P + "bos_token_id": ["u32", 1], P + "eos_token_id": ["u32", 2], P + "add_bos_token": ["bool", True]}  # fmt: skip

    pieces = json.loads((ROOT / "llama2/tokenizer.json").read_text())
    pieces["post_processor"] = template(["<s>"], [])
    pieces["added_tokens"] = [t for t in pieces["added_tokens"] if t["id"] in (1, 2)]
    names = sorted(pieces["model"]["vocab"], key=pieces["model"]["vocab"].get)
    merged = {}
    for rank, m in enumerate(pieces["model"]["merges"]):
        merged.setdefault("".join(m.split(" ") if isinstance(m, str) else m), -float(rank))
    types = [UNKNOWN if i == 0 else CONTROL if i < 3 else BYTE if n.startswith("<0x") else NORMAL for i, n in enumerate(names)]
    sentencepiece = {
        "general.architecture": ["str", "llama"], P + "model": ["str", "llama"], P + "pre": ["str", "default"],
        P + "tokens": ["strs", names], P + "token_type": ["i32s", types],
        P + "scores": ["f32s", [merged.get(n, 0.0 if types[i] != NORMAL else -1e6 - i) for i, n in enumerate(names)]],
        P + "bos_token_id": ["u32", 1], P + "eos_token_id": ["u32", 2], P + "unknown_token_id": ["u32", 0],
        P + "add_bos_token": ["bool", True], P + "add_space_prefix": ["bool", True]}  # fmt: skip
    return {"bytes": (byte_level, document), "pieces": (sentencepiece, pieces)}


def stated(name, document):
    """Gives (key, value, the tokenizer.json that says the same); (key, None, ...) for a key that is left out."""
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"] if name == "bytes" else ["<unk>", "<s>", "</s>"]

    def around(before, after):
        return {**document, "post_processor": template(before, after)}

    yield P + "add_bos_token", ["bool", False], around([], [])
    yield P + "add_bos_token", None, document  # llama-bpe and SentencePiece have one
    yield P + "add_eos_token", ["bool", True], around([special[1]], [special[2]])
    yield P + "add_eos_token", ["bool", False], document
    yield P + "bos_token_id", ["u32", 2], around([special[2]], [])
    yield P + "eos_token_id", ["u32", 1], document
    yield P + "eos_token_id", None, document
    yield P + "add_space_prefix", ["bool", False], (
        document if name == "bytes" else
        {**document, "normalizer": document["normalizer"]["normalizers"][1],
         "decoder": {**document["decoder"], "decoders": document["decoder"]["decoders"][:-1]}})  # fmt: skip
    if name == "pieces":
        yield P + "add_space_prefix", None, document
        yield P + "pre", None, document
        yield P + "unknown_token_id", None, document
    for key in ("remove_extra_whitespaces", "add_sep_token"):
        yield P + key, ["bool", False], document


# They say which tokens a caller may want for something, and change none of a text's.
NAMES_A_TOKEN = {P + key + "_token_id" for key in ("eot", "eom", "unknown", "seperator", "padding", "mask", "fim_pre",
                 "fim_suf", "fim_mid", "fim_pad", "fim_rep", "fim_sep", "prefix", "suffix", "middle")}  # fmt: skip


def gguf_changes(name, document, fields):
    yield ("", None, document)
    meant = list(stated(name, document))
    yield from meant
    known = [key.replace("{name}", "tool_use") for key in fields["gguf_tokenizer"]]
    for key in [*known, P + "something_new", "tokenizer.something_new"]:
        for value in KINDS:
            if any(m[:2] == (key, value) for m in meant):
                continue
            harmless = (key in NAMES_A_TOKEN and value == ["u32", 5] and (name, key) != ("pieces", P + "unknown_token_id")) or (
                key.startswith("tokenizer.chat_template") and value[0] in ("str", "strs"))  # fmt: skip
            yield key, value, document if harmless else None
        yield key, None, None


def gguf(fields):
    outputs, lines, decoded, bases = [None], [], {}, {}
    for name, (keys, document) in gguf_bases().items():
        bases[name] = keys
        own = Tokenizer.from_str(json.dumps(document))
        decoded[name] = [own.encode(text, add_special_tokens=False).ids for text in DECODED]
        seen = set()
        for key, value, same in gguf_changes(name, document, fields):
            if (key, str(value)) in seen or (value is None and key and key not in keys) or (value and keys.get(key) == value):
                continue
            seen.add((key, str(value)))
            found = None if same is None else of_document(same, decoded[name])
            if found not in outputs:
                outputs.append(found)
            lines.append([name, [key] if key else [], *([value] if value else []), outputs.index(found), ""])
    return {"tokenizers": tokenizers.__version__, "texts": TEXTS, "ids": decoded, "bases": bases, "outputs": outputs,
            "cases": lines}  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("test", type=pathlib.Path)
    arguments = parser.parse_args()
    fields = tokenizer_fields.everything()
    text = ",\n".join(f"{json.dumps(k)}: {json.dumps(v, indent=1)}" for k, v in fields.items())
    (judge.DATA / "tokenizer_fields.json").write_text(f"{{{text}}}\n")
    for name, made in (("tokenizer_folders.json", folders(fields)), ("tokenizer_gguf.json", gguf(fields))):
        judge.write(made, name)
        judge.judge(arguments.test, name)


if __name__ == "__main__":
    main()
