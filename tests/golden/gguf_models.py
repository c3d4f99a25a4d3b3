"""Small Llama models as GGUF files, laid out as llama.cpp's converter does.

GGUF stores Q and K so that RoPE rotates neighbouring pairs: the rows of a head go from (half, pair) to (pair, half).
llama3 scaling is a tensor of divisors of the frequencies (rope_freqs.weight), linear scaling is metadata.
"""

import numpy as np
import torch
from gguf import GGMLQuantizationType as Type
from gguf import GGML_QUANT_SIZES, GGUFWriter, RopeScalingType, TokenType, dequantize, quantize
from transformers import AutoModelForCausalLM

import reference
import vocabulary
from checkpoints import make_config, prompts, randomize
from common import DATA, golden_prompts, usable, write_golden
from gguf_blocks import SCALE_OFFSETS

NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}

# Eight types by turns over seven matrices a layer: no role has the same type in both layers.
MIXED = [Type.Q4_0, Type.Q4_1, Type.Q5_0, Type.Q5_1, Type.Q8_0, Type.F16, Type.BF16, Type.F32]

# Types that gguf-py reads and does not write, and what centres their weights: the mean of the bits of one.
K_TYPES = {Type.Q4_K: 7.5, Type.Q6_K: None, Type.Q5_K: 15.5, Type.Q3_K: None, Type.Q2_K: 1.5}

QUANTIZED = {
    "tiny-gguf-q8_0": dict(
        config=dict(hidden_size=64, num_attention_heads=4, num_key_value_heads=2, intermediate_size=96,
                    attention_bias=True, rope_parameters=dict(rope_type="linear", rope_theta=1e4, factor=2.0)),
        types=[Type.Q8_0],
    ),
    "tiny-gguf-mixed": dict(
        config=dict(hidden_size=64, num_attention_heads=4, num_key_value_heads=1, intermediate_size=96,
                    tie_word_embeddings=True, rms_norm_eps=1e-4,
                    rope_parameters=dict(rope_type="llama3", rope_theta=5e5, factor=8.0, low_freq_factor=1.0,
                                         high_freq_factor=4.0, original_max_position_embeddings=64)),
        types=MIXED,
    ),
    "tiny-gguf-k": dict(
        config=dict(hidden_size=256, num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=2,
                    intermediate_size=256, tie_word_embeddings=True),
        types=list(K_TYPES),
    ),
}  # fmt: skip


def gguf_name(name):
    stem, kind = name.rsplit(".", 1)
    if stem.startswith("model.layers."):
        _, _, index, role = stem.split(".", 3)
        return f"blk.{index}.{NAMES[role]}.{kind}"
    return f"{NAMES[stem]}.{kind}"


def permute(value, heads):
    return value.reshape(heads, 2, -1, *value.shape[1:]).swapaxes(1, 2).reshape(value.shape)


def unpermute(value, heads):
    return value.reshape(heads, -1, 2, *value.shape[1:]).swapaxes(1, 2).reshape(value.shape)


def rotated_heads(name, config):
    """Heads of a tensor whose rows GGUF reorders, 0 for every other tensor."""
    if ".q_proj." in name:
        return config.num_attention_heads
    return config.num_key_value_heads if ".k_proj." in name else 0


def random_k_rows(value, kind, rng):
    """Random blocks in place of `value`, centred and of its spread as if it were 64 columns wide."""
    rows, columns = value.shape
    weights, size = GGML_QUANT_SIZES[kind]
    blocks = rng.integers(0, 256, (rows * columns // weights, size), dtype=np.uint8)
    offsets, centre = SCALE_OFFSETS[kind], K_TYPES[kind]

    def set_scales(scale):
        for offset, by in zip(offsets, [1, centre]):
            blocks[:, offset : offset + 2] = (scale * by).astype("<f2").view(np.uint8).reshape(-1, 2)

    set_scales(np.ones(len(blocks)))
    spread = value.std() * np.sqrt(64 / columns) / dequantize(blocks, kind).std()
    set_scales(spread * rng.uniform(0.5, 1.5, len(blocks)) * rng.choice([-1, 1], len(blocks)))
    return blocks.reshape(rows, -1)


def write_gguf(path, model, types, seed=0):
    """Writes `model` with its matrices in `types` by turns, and gives `model` the weights that a reader gets."""
    config, rng = model.config, np.random.default_rng(seed)
    writer = GGUFWriter(path, "llama")
    writer.add_name(path.stem)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    writer.add_rope_dimension_count(config.head_dim)
    rope = config.rope_parameters
    writer.add_rope_freq_base(rope["rope_theta"])
    if rope["rope_type"] == "linear":
        writer.add_rope_scaling_type(RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(rope["factor"])

    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(vocabulary.tokens())
    specials = len(vocabulary.SPECIALS)
    writer.add_token_types([TokenType.CONTROL] * specials + [TokenType.NORMAL] * (config.vocab_size - specials))
    writer.add_token_merges([f"{a} {b}" for a, b in vocabulary.MERGES])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    writer.add_add_bos_token(False)

    if rope["rope_type"] == "llama3":
        plain = rope["rope_theta"] ** -(np.arange(0, config.head_dim, 2) / config.head_dim)
        divisors = plain / reference.inverse_frequencies(config)
        writer.add_tensor("rope_freqs.weight", divisors.astype(np.float32))
    matrices = 0
    for name, weight in model.named_parameters():
        heads = rotated_heads(name, config)
        value = weight.detach().numpy()
        value = np.ascontiguousarray(permute(value, heads) if heads else value)
        if value.ndim == 1:
            writer.add_tensor(gguf_name(name), value)
            continue
        kind = types[matrices % len(types)]
        matrices += 1
        stored = random_k_rows(value, kind, rng) if kind in K_TYPES else quantize(value, kind)
        writer.add_tensor(gguf_name(name), stored, raw_dtype=kind)
        read = dequantize(stored, kind)
        weight.data.copy_(torch.from_numpy(unpermute(read, heads) if heads else read))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def check_reads_back(path, model):
    """transformers' own GGUF reader must find the same weights."""
    read = AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, config=model.config, dtype=torch.float32
    )
    for name, weight in model.state_dict().items():
        if not torch.equal(weight, read.state_dict()[name]):
            raise RuntimeError(f"{path.name}: {name} reads back differently")


def make_quantized(name):
    spec, folder = QUANTIZED[name], DATA / name
    path = folder / f"{name}.gguf"
    folder.mkdir(parents=True, exist_ok=True)
    for seed in range(1, 200):
        model = AutoModelForCausalLM.from_config(make_config(spec["config"]), attn_implementation="eager").eval()
        randomize(model, seed)
        write_gguf(path, model, spec["types"], seed)
        entries = golden_prompts(model, prompts(seed))
        if usable(entries):
            check_reads_back(path, model)
            write_golden(folder, {"model": name, "seed": seed, "vocab_size": 260}, model, entries)
            return
    raise RuntimeError(f"{name}: no seed gives clear choices")


def make_all():
    source = AutoModelForCausalLM.from_pretrained(DATA / "tiny-gqa-untied", dtype=torch.float32)
    path = DATA / "tiny-gqa-untied.gguf"
    write_gguf(path, source, [Type.F32])
    check_reads_back(path, source)
    for name in QUANTIZED:
        make_quantized(name)
