"""A checkpoint of random weights, whose tokens are all bytes and some pieces of JSON: it writes nonsense."""
import json
import pathlib
import random
import struct

from server import TEMPLATE

PIECES = ['{"', '":', '": ', '", "', '"}', "true", "false", "null", ", ", "[]", "{}", "],", "}]", '":"', "12", "00", "-1", "0.", "e+",
          "\\n", "\\u", "\\\"", "the", " a", "ing", "abc", "red", "größe", "日本", "  ", "\n\n", "name", "id\"", "2024-", "<s", "}}"]


def alphabet():
    """Returns a character for each byte, as byte-level BPE has them."""
    visible = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in visible]
    return {**{b: chr(b) for b in visible}, **{b: chr(256 + i) for i, b in enumerate(others)}}


def tokenizer(marks=()):
    letters = alphabet()
    vocab = {"<s>": 0, "</s>": 1, **{letters[b]: 2 + b for b in range(256)}}
    merges = []
    for piece in PIECES:
        text = "".join(letters[b] for b in piece.encode())
        for i in range(1, len(text)):
            if text[:i + 1] not in vocab:
                vocab[text[:i + 1]] = len(vocab)
                merges.append([text[:i], text[i]])
    special = [("<s>", 0), ("</s>", 1)]
    for name in marks:
        vocab[name] = len(vocab)
        special.append((name, vocab[name]))
    added = [{"id": i, "content": name, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
                "special": True} for name, i in special]
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
            "pre_tokenizer": level, "post_processor": None, "decoder": level,
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                      "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                      "vocab": vocab, "merges": merges}}


def write_weights(path, shapes, seed):
    source, header, offset = random.Random(seed), {}, 0
    for name, shape in shapes.items():
        count = 1
        for n in shape:
            count *= n
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [offset, offset + 4 * count]}
        offset += 4 * count
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, entry in header.items():
            first, end = entry["data_offsets"]
            norm = name.endswith("norm.weight")
            file.write(struct.pack(f"<{(end - first) // 4}f",
                                   *(1.0 if norm else source.gauss(0, 0.2) for _ in range((end - first) // 4))))


def make_random_model(source, folder, seed=1, marks=()):
    """Returns its folder and its vocabulary. `marks` are control tokens that it has beside those that begin and end a text."""
    path = pathlib.Path(folder) / "random"
    path.mkdir()
    config = json.loads((pathlib.Path(source) / "tests/golden/data/tiny-gqa-untied/config.json").read_text())
    tokens = tokenizer(marks)
    vocab = len(tokens["model"]["vocab"])
    config.update(vocab_size=vocab + 5, max_position_embeddings=8192)  # some rows have no token
    width, inner, kv = config["hidden_size"], config["intermediate_size"], config["num_key_value_heads"] * config["head_dim"]
    shapes = {"lm_head.weight": [vocab + 5, width], "model.embed_tokens.weight": [vocab + 5, width], "model.norm.weight": [width]}
    for i in range(config["num_hidden_layers"]):
        at = f"model.layers.{i}."
        shapes.update({at + "input_layernorm.weight": [width], at + "post_attention_layernorm.weight": [width],
                       at + "mlp.down_proj.weight": [width, inner], at + "mlp.gate_proj.weight": [inner, width],
                       at + "mlp.up_proj.weight": [inner, width], at + "self_attn.k_proj.weight": [kv, width],
                       at + "self_attn.v_proj.weight": [kv, width], at + "self_attn.o_proj.weight": [width, width],
                       at + "self_attn.q_proj.weight": [width, width]})
    write_weights(path / "model.safetensors", shapes, seed)
    (path / "config.json").write_text(json.dumps(config))
    (path / "tokenizer.json").write_text(json.dumps(tokens))
    (path / "tokenizer_config.json").write_text(
        json.dumps({"eos_token": "</s>", "bos_token": "<s>", "chat_template": TEMPLATE}))
    return str(path), tokens["model"]["vocab"]
