#!/usr/bin/env python3
"""made_up_checkpoint.py FORM OUT [--shape NAME] [--layers N]

Writes a model of random weights as a published form stores them, to measure how fast it runs or is quantized: a Hugging Face folder, or for
GGUF's types a file that ends in .gguf. All layers have the same numbers, the head and the embedding are in bf16 (F16 in GGUF),
and the tokenizer has a token for each byte. `tenon bench OUT --set quantization.use=auto` runs it. Forms: """
import argparse
import collections
import json
import math
import pathlib
import random
import struct

# width, columns of the MLP, heads, KV heads, layers, vocabulary
SHAPES = {"llama-2-7b": (4096, 11008, 32, 32, 32, 32000), "llama-3-8b": (4096, 14336, 32, 8, 32, 128256),
          "small": (256, 512, 4, 2, 2, 512)}
RANDOM = random.Random(1)
F32_OF_GGUF, F16_OF_GGUF = 0, 1
# Of a block: the type's number, weights, bytes, and where its scales in f16 are.
BLOCKS = {"Q4_0": (2, 32, 18, (0,)), "Q4_1": (3, 32, 20, (0, 2)), "Q8_0": (8, 32, 34, (0,)), "Q4_K": (12, 256, 144, (0, 2)),
          "Q5_K": (13, 256, 176, (0, 2)), "Q6_K": (14, 256, 210, (208,)), "IQ4_NL": (20, 32, 18, (0,)), "IQ4_XS": (23, 256, 136, (0,))}
# A tensor of a safetensors file.
Tensor = collections.namedtuple("Tensor", "dtype shape data")


def repeated(data, size):
    return (data * -(-size // len(data)))[:size]


def codes(dtype, *shape):
    size = math.prod(shape) * {"I32": 4, "U8": 1}[dtype]
    return Tensor(dtype, shape, RANDOM.randbytes(size))


def constant(dtype, word, *shape):
    return Tensor(dtype, shape, repeated(word, math.prod(shape) * len(word)))


def in_16_bits(dtype, values):
    """BF16 has the upper half of an f32."""
    if dtype == "F16":
        return struct.pack(f"<{len(values)}e", *values)
    return b"".join(struct.pack("<f", value)[2:] for value in values)


def scales(dtype, *shape):
    return constant_run(dtype, [RANDOM.uniform(1 / 1024, 1 / 512) for _ in range(4096)], *shape)


def some_weights():
    """As many as a prime number, so that no two rows are equal."""
    return [RANDOM.gauss(0, 0.02) for _ in range(65521)]


def constant_run(dtype, values, *shape):
    return Tensor(dtype, shape, repeated(in_16_bits(dtype, values), 2 * math.prod(shape)))


def gptq(n, k, act_order=False):
    """Groups of 128; codes of zero points are 7, since a code with all bits set is refused. With act_order each group has columns from
    anywhere, the same ones in all matrices of k columns."""
    groups = [column // 128 for column in range(k)]
    if act_order:
        random.Random(k).shuffle(groups)
    return {"qweight": codes("I32", k // 8, n), "qzeros": constant("I32", b"\x77" * 4, k // 128, n // 8),
            "scales": scales("F16", k // 128, n), "g_idx": Tensor("I32", (k,), struct.pack(f"<{k}i", *groups))}


def gptq_act_order(n, k):
    return gptq(n, k, act_order=True)


def awq(n, k):
    return {"qweight": codes("I32", k, n // 8), "qzeros": codes("I32", k // 128, n // 8), "scales": scales("F16", k // 128, n)}


def hqq(n, k):
    groups = n * k // 64
    return {"W_q": codes("U8", groups // 2, 64), "scale": scales("F16", groups, 1), "zero": constant_run("F16", [7.5], groups, 1)}


def compressed_tensors(n, k):
    return {"weight_packed": codes("I32", n, k // 8), "weight_scale": scales("BF16", n, k // 128),
            "weight_shape": Tensor("I32", (2,), struct.pack("<2i", n, k))}


def mxfp4(n, k):
    return {"weight_packed": codes("U8", n, k // 2), "weight_scale": constant("U8", bytes([127 - 8]), n, k // 32)}


def plain(n, k):
    return {"weight": constant_run("BF16", some_weights(), n, k)}


# The quantization_config of each form, and its tensors of a matrix of n rows and k columns.
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False, "sym": True}
INTEGERS = {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group", "group_size": 128}
FLOATS = {"num_bits": 4, "type": "float", "symmetric": True, "strategy": "group", "group_size": 32}


def packed_linear(form, weights):
    return {"quant_method": "compressed-tensors", "format": form, "ignore": ["lm_head"],
            "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}}}


FOLDERS = {
    "bf16": (None, plain),
    "gptq": (GPTQ, gptq),
    "gptq_act_order": (GPTQ | {"desc_act": True}, gptq_act_order),
    "awq": ({"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True, "version": "gemm"}, awq),
    "hqq": ({"quant_method": "hqq", "quant_config": {"weight_quant_params": {"nbits": 4, "group_size": 64, "axis": 1}},
             "skip_modules": ["lm_head"]}, hqq),
    "compressed_tensors": (packed_linear("pack-quantized", INTEGERS), compressed_tensors),
    "mxfp4": (packed_linear("mxfp4-pack-quantized", FLOATS), mxfp4),
}
__doc__ += ", ".join([*FOLDERS, *BLOCKS])


def byte_tokens():
    """A character for each byte, as byte-level BPE writes them: bytes that do not print are those from 256 on."""
    prints = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(byte if byte in prints else next(others)) for byte in range(256)]


def matrices(shape):
    """Returns the layer's matrices: their names in safetensors and in GGUF, rows and columns."""
    width, mlp, heads, kv_heads, _, _ = SHAPES[shape]
    kv = width // heads * kv_heads
    return [("self_attn.q_proj", "attn_q", width, width), ("self_attn.k_proj", "attn_k", kv, width),
            ("self_attn.v_proj", "attn_v", kv, width), ("self_attn.o_proj", "attn_output", width, width),
            ("mlp.gate_proj", "ffn_gate", mlp, width), ("mlp.up_proj", "ffn_up", mlp, width), ("mlp.down_proj", "ffn_down", width, mlp)]


def embedding(dtype, *shape):
    return constant_run(dtype, some_weights(), *shape)


def write_folder(out, form, shape, layers):
    width, mlp, heads, kv_heads, _, vocabulary = SHAPES[shape]
    quantization, tensors_of = FOLDERS[form]
    layer = {f"{name}.{part}": tensor for name, _, n, k in matrices(shape) for part, tensor in tensors_of(n, k).items()}
    norm = constant_run("BF16", [1.0], width)
    layer |= {"input_layernorm.weight": norm, "post_attention_layernorm.weight": norm}
    rows = embedding("BF16", vocabulary, width)
    tensors = [("model.embed_tokens.weight", rows), ("lm_head.weight", rows), ("model.norm.weight", norm)]
    tensors += [(f"model.layers.{i}.{name}", tensor) for i in range(layers) for name, tensor in layer.items()]
    header, at = {}, 0
    for name, tensor in tensors:
        header[name] = {"dtype": tensor.dtype, "shape": tensor.shape, "data_offsets": [at, at + len(tensor.data)]}
        at += len(tensor.data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    out.mkdir(parents=True)
    with (out / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, tensor in tensors:
            file.write(tensor.data)
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": width, "intermediate_size": mlp,
              "num_attention_heads": heads, "num_key_value_heads": kv_heads, "num_hidden_layers": layers, "vocab_size": vocabulary,
              "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "max_position_embeddings": 16384, "hidden_act": "silu",
              "tie_word_embeddings": False, "torch_dtype": "bfloat16"}
    if quantization is not None:
        config["quantization_config"] = quantization
    (out / "config.json").write_text(json.dumps(config, indent=2))
    tokenizer = {"model": {"type": "BPE", "vocab": {token: i for i, token in enumerate(byte_tokens())}, "merges": []},
                 "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}, "decoder": {"type": "ByteLevel"}}
    (out / "tokenizer.json").write_text(json.dumps(tokenizer))


def blocks(kind, n, k):
    _, weights, size, places = BLOCKS[kind]
    some = bytearray(RANDOM.randbytes(size * min(n * k // weights, 16411)))
    for at in range(0, len(some), size):
        for place in places:
            struct.pack_into("<e", some, at + place, RANDOM.uniform(1 / 1024, 1 / 512))
    return repeated(bytes(some), n * k // weights * size)


def gguf_text(text):
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def gguf_value(name, value):
    text, u32, f32, array = 8, 4, 6, 9
    kind, packed = {str: lambda: (text, gguf_text(value)), float: lambda: (f32, struct.pack("<f", value)),
                    int: lambda: (u32, struct.pack("<I", value)),
                    list: lambda: (array, struct.pack("<IQ", text, len(value)) + b"".join(map(gguf_text, value)))}[type(value)]()
    return gguf_text(name) + struct.pack("<I", kind) + packed


def write_gguf(out, kind, shape, layers):
    width, mlp, heads, kv_heads, _, vocabulary = SHAPES[shape]
    alignment = 32
    norm = struct.pack("<f", 1.0) * width
    layer = [(name, BLOCKS[kind][0], (k, n), blocks(kind, n, k)) for _, name, n, k in matrices(shape)]
    layer += [(name, F32_OF_GGUF, (width,), norm) for name in ("attn_norm", "ffn_norm")]
    rows = embedding("F16", vocabulary, width).data
    tensors = [(name, F16_OF_GGUF, (width, vocabulary), rows) for name in ("token_embd", "output")]
    tensors += [("output_norm", F32_OF_GGUF, (width,), norm)]
    tensors += [(f"blk.{i}.{name}", *rest) for i in range(layers) for name, *rest in layer]
    values = {"general.architecture": "llama", "llama.embedding_length": width, "llama.feed_forward_length": mlp, "llama.block_count": layers,
              "llama.attention.head_count": heads, "llama.attention.head_count_kv": kv_heads, "llama.context_length": 16384,
              "llama.attention.layer_norm_rms_epsilon": 1e-5, "llama.rope.freq_base": 10000.0, "llama.vocab_size": vocabulary,
              "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "gpt-2", "tokenizer.ggml.tokens": byte_tokens(),
              "tokenizer.ggml.merges": []}
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(values)) + b"".join(gguf_value(*pair) for pair in values.items())
    at = 0
    for name, number, dims, data in tensors:
        head += gguf_text(f"{name}.weight") + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, number, at)
        at += len(data) + -len(data) % alignment
    with out.open("wb") as file:
        file.write(head + b"\0" * (-len(head) % alignment))
        for _, _, _, data in tensors:
            file.write(data + b"\0" * (-len(data) % alignment))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("form", choices=[*FOLDERS, *BLOCKS], metavar="FORM")
    parser.add_argument("out", type=pathlib.Path, metavar="OUT")
    parser.add_argument("--shape", choices=list(SHAPES), default="llama-2-7b")
    parser.add_argument("--layers", type=int, help="fewer layers than the shape has")
    args = parser.parse_args()
    if args.out.exists():
        parser.error(f"{args.out} is there")
    write = write_folder if args.form in FOLDERS else write_gguf
    write(args.out, args.form, args.shape, args.layers or SHAPES[args.shape][4])


if __name__ == "__main__":
    main()
