#!/usr/bin/env python3
"""Writes the first inputs of three harnesses; see there for their forms.

    tests/fuzz/make_seeds.py        into tests/fuzz/corpus/model_gguf, model_folder and plugin_file
"""
import json
import pathlib
import struct

CORPUS = pathlib.Path(__file__).parent / "corpus"
WIDTH, FFN, HEADS, KV_HEADS, HEAD_DIM, VOCAB, LAYERS = 32, 64, 2, 1, 16, 40, 2
BLOCKS = {"f32": (0, 1, 4), "f16": (1, 1, 2), "q4_0": (2, 32, 18), "q4_1": (3, 32, 20), "q5_0": (6, 32, 22),
          "q8_0": (8, 32, 34), "bf16": (30, 1, 2)}


def text(value):
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


def value(v):
    """Returns a metadata value with its type: bool 7, uint32 4, float32 6, string 8, array 9."""
    if isinstance(v, bool):
        return struct.pack("<I?", 7, v)
    if isinstance(v, int):
        return struct.pack("<II", 4, v)
    if isinstance(v, float):
        return struct.pack("<If", 6, v)
    if isinstance(v, str):
        return struct.pack("<I", 8) + text(v)
    kind = {int: 5, float: 6, str: 8}[type(v[0])]
    packed = b"".join({5: lambda x: struct.pack("<i", x), 6: lambda x: struct.pack("<f", x), 8: text}[kind](x) for x in v)
    return struct.pack("<IIQ", 9, kind, len(v)) + packed


def shapes(tied, biases, freqs):
    """Names and shapes, outermost dimension first."""
    q, kv = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
    all = [("rope_freqs.weight", (HEAD_DIM // 2,))] if freqs else []
    all.append(("token_embd.weight", (VOCAB, WIDTH)))
    for i in range(LAYERS):
        for name, shape in (("attn_q", (q, WIDTH)), ("attn_k", (kv, WIDTH)), ("attn_v", (kv, WIDTH)),
                            ("attn_output", (WIDTH, q)), ("ffn_gate", (FFN, WIDTH)), ("ffn_up", (FFN, WIDTH)),
                            ("ffn_down", (WIDTH, FFN)), ("attn_norm", (WIDTH,)), ("ffn_norm", (WIDTH,))):
            all.append((f"blk.{i}.{name}.weight", shape))
            if biases and name in ("attn_q", "attn_k", "attn_v", "attn_output"):
                all.append((f"blk.{i}.{name}.bias", shape[:1]))
    all.append(("output_norm.weight", (WIDTH,)))
    return all if tied else all + [("output.weight", (VOCAB, WIDTH))]


def vocabulary(kind):
    if kind == "llama":
        tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{i:02X}>" for i in range(9, 15)] + ["▁", "e", "l", "o", "H", "ll", "▁H"]
        tokens += [chr(ord("A") + i) + "x" for i in range(VOCAB - len(tokens))]
        types = [2, 3, 3] + [6] * 6 + [1] * (VOCAB - 9)
        return {"tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": tokens,
                "tokenizer.ggml.scores": [-float(i) for i in range(VOCAB)], "tokenizer.ggml.token_type": types}
    tokens = ["<s>", "</s>"] + list("Helo, it's12") + ["Ġ", "Ċ", "ll", "He", "ello", "Ġi"]
    tokens = list(dict.fromkeys(tokens))
    tokens += [chr(ord("a") + i) + "z" for i in range(VOCAB - len(tokens))]
    return {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "smollm", "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.token_type": [3, 3] + [1] * (VOCAB - 2),
            "tokenizer.ggml.merges": ["l l", "H e", "Ġ i"]}


def gguf(name, formats, which, tied=False, biases=False, freqs=False, kind="llama", more=()):
    meta = {"general.architecture": "llama", "general.name": "fuzz", "llama.context_length": 64,
            "llama.embedding_length": WIDTH, "llama.block_count": LAYERS, "llama.feed_forward_length": FFN,
            "llama.attention.head_count": HEADS, "llama.attention.head_count_kv": KV_HEADS,
            "llama.attention.layer_norm_rms_epsilon": 1e-5, "llama.rope.freq_base": 10000.0,
            "llama.rope.dimension_count": HEAD_DIM, "llama.vocab_size": VOCAB}
    meta |= vocabulary(kind) | {"tokenizer.ggml.bos_token_id": 1, "tokenizer.ggml.eos_token_id": 2}
    meta |= dict(more)
    infos, offset = b"", 0
    tensors = shapes(tied, biases, freqs)
    for i, (tensor, shape) in enumerate(tensors):
        number, elements, size = BLOCKS["f32" if len(shape) == 1 else formats[i % len(formats)]]
        count = 1
        for n in shape:
            count *= n
        infos += text(tensor) + struct.pack("<I", len(shape)) + b"".join(struct.pack("<Q", n) for n in reversed(shape))
        infos += struct.pack("<IQ", number, offset)
        offset += (count // elements * size + 31) // 32 * 32
    out = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(meta))
    out += b"".join(text(k) + value(v) for k, v in meta.items()) + infos
    (CORPUS / "model_gguf").mkdir(parents=True, exist_ok=True)
    (CORPUS / "model_gguf" / name).write_bytes(out + struct.pack("<I", offset | which << 24))


def huggingface(name, dtype, which, tied=False, biases=False, more=()):
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": WIDTH,
              "intermediate_size": FFN, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS,
              "head_dim": HEAD_DIM, "num_hidden_layers": LAYERS, "max_position_embeddings": 64, "rms_norm_eps": 1e-5,
              "rope_theta": 10000.0, "vocab_size": VOCAB, "hidden_act": "silu", "attention_bias": biases,
              "tie_word_embeddings": tied} | dict(more)
    names = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head",
             "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
             "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
             "ffn_down": "mlp.down_proj", "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"}
    header, offset = {}, 0
    for tensor, shape in shapes(tied, biases, False):
        *where, base, suffix = tensor.split(".")
        full = (f"model.layers.{where[1]}." if where else "") + names[base] + "." + suffix
        count = 1
        for n in shape:
            count *= n
        size = count * (4 if dtype == "F32" else 2)
        header[full] = {"dtype": dtype, "shape": list(shape), "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header, separators=(",", ":"))
    text += " " * (-len(text) % 8)
    units = offset // 64
    assert units * 64 == offset and units < 64 * 64, offset
    digits = chr(ord("0") + units // 64) + chr(ord("0") + units % 64) + chr(ord("0") + which)
    (CORPUS / "model_folder").mkdir(parents=True, exist_ok=True)
    raw = json.dumps(config, separators=(",", ":")).encode() + b"\0" + text.encode() + b"\0" + digits.encode()
    (CORPUS / "model_folder" / name).write_bytes(raw)



def plugin_file(name, by_section):
    """Returns the least shared library with a plugin's note: its note, symbols, dynamic section and their names."""
    note = struct.pack("<HHHH16s48s16s24s24s64s", 2, 0, 0, 0, b"sampler", b"fuzz", b"cpu", b"", b"0123", b"x86-64")
    note = struct.pack("<III8s", 6, len(note), 0x7465, b"Tenon") + note
    names = b"\0tenon_plugin_v1\0libc.so.6\0$ORIGIN\0"
    symbols = bytes(24) + struct.pack("<IBBHQQ", 1, 0x11, 0, 1, 0x1000, 8)
    dynamic = b"".join(struct.pack("<qQ", *entry) for entry in ((1, 17), (29, 27), (0, 0)))
    titles = b"\0.note.tenon\0.dynstr\0.dynsym\0.dynamic\0.shstrtab\0"
    parts, at = [], 64 + 56
    for title, kind, link, raw in ((1, 7, 0, note), (13, 3, 0, names), (21, 11, 2, symbols), (29, 6, 2, dynamic),
                                   (38, 3, 0, titles)):
        raw += bytes(-len(raw) % 8)
        parts.append((title, kind if by_section or kind != 7 else 1, link, at, raw))
        at += len(raw)
    sections = bytes(64) + b"".join(struct.pack("<IIQQQQIIQQ", title, kind, 0, 0, place, len(raw), link, 0, 4, 0)
                                    for title, kind, link, place, raw in parts)
    segment = struct.pack("<IIQQQQQQ", 4, 4, parts[0][3], 0, 0, len(note), len(note), 4)
    header = b"\x7fELF\2\1\1" + bytes(9) + struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, at, 0, 64, 56, 1, 64,
                                                         len(parts) + 1, len(parts))
    (CORPUS / "plugin_file").mkdir(parents=True, exist_ok=True)
    (CORPUS / "plugin_file" / name).write_bytes(header + segment + b"".join(p[4] for p in parts) + sections)


gguf("f32", ["f32"], 0)
gguf("plain_parts", ["f32", "f16", "bf16"], 1, biases=False, kind="gpt2")
gguf("to_int8", ["f16"], 2, tied=True)
gguf("to_int4", ["bf16"], 3, freqs=True)
gguf("mixed", ["q4_0", "q4_1", "q5_0", "q8_0", "f16"], 0, freqs=True, kind="gpt2")
gguf("biases", ["q8_0"], 4, biases=True)
gguf("scaled", ["f16"], 4, more={"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 2.0}.items())
gguf("yarn", ["f32"], 1, more={"llama.rope.scaling.type": "yarn", "llama.rope.scaling.factor": 4.0,
                               "llama.rope.scaling.original_context_length": 16}.items())
huggingface("f32", "F32", 1)
huggingface("bf16_int8", "BF16", 2, tied=True)
huggingface("f16_int4", "F16", 3, biases=True)
huggingface("llama3", "BF16", 4, more={"rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                                                        "high_freq_factor": 4.0,
                                                        "original_max_position_embeddings": 16}}.items())
huggingface("longrope", "F32", 1, more={"original_max_position_embeddings": 16, "rope_scaling": {
    "rope_type": "longrope", "short_factor": [1.0] * 8, "long_factor": [2.0] * 8}}.items())
huggingface("window", "BF16", 2, more={"architectures": ["MistralForCausalLM"], "model_type": "mistral",
                                       "sliding_window": 8}.items())
plugin_file("section", True)
plugin_file("segment", False)
