"""Llama in float64 with numpy alone: a second opinion on what transformers computed, and the measure of its rounding.

Every matrix is (out, in) as in Hugging Face checkpoints; RoPE rotates the two halves of a head.
"""

import numpy as np


def inverse_frequencies(config):
    """Linear: arXiv 2306.15595. llama3: divided above one wavelength, kept below another, blended between."""
    rope = config.rope_parameters
    frequencies = rope["rope_theta"] ** -(np.arange(0, config.head_dim, 2) / config.head_dim)
    if rope["rope_type"] == "linear":
        return frequencies / rope["factor"]
    if rope["rope_type"] == "llama3":
        turns = rope["original_max_position_embeddings"] * frequencies / (2 * np.pi)
        low, high = rope["low_freq_factor"], rope["high_freq_factor"]
        keep = np.clip((turns - low) / (high - low), 0, 1)
        return frequencies * (keep + (1 - keep) / rope["factor"])
    return frequencies


def rms_norm(x, weight, epsilon):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + epsilon) * weight


def rotate(x, angles):
    """x (rows, heads, head_dim), angles (rows, head_dim / 2)."""
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
    a, b = np.split(x, 2, axis=-1)
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)


def rounded(x, scale):
    """x / scale becomes the nearest number of e4m3, halfway the even one, and is multiplied by the scale again."""
    quotient = np.clip(x / scale, -448, 448)
    step = np.exp2(np.maximum(np.floor(np.log2(np.maximum(np.abs(quotient), 2.0**-9))), -6) - 3)
    return np.rint(quotient / step) * step * scale


def rounded_groups(x, group):
    """The same for each so many columns of a row, by a scale that makes their largest 448. It is in fp32, as all programs hold it."""
    parts = np.split(x, range(group, x.shape[-1], group), axis=-1)
    scales = [np.float32(np.abs(part).max(-1, keepdims=True)) / np.float32(448) for part in parts]
    return np.concatenate([rounded(part, scale.astype(x.dtype)) for part, scale in zip(parts, scales)], axis=-1)


def rounded_rows(x):
    """Rows become whole numbers of steps from -127 to 127; the largest of a row has 127.5 of them."""
    step = np.maximum(np.abs(x).max(-1, keepdims=True), np.finfo(x.dtype).tiny) / 127.5
    return np.clip(np.rint(x / step), -127, 127) * step


def rounded_but_outliers(x, outlier):
    """The same with 127 steps of what is below the outliers, which are rounded to fp16."""
    apart = np.abs(x) >= outlier
    inside = np.where(apart, 0, x)
    step = np.maximum(np.abs(inside).max(-1, keepdims=True), np.finfo(x.dtype).tiny) / 127
    return np.where(apart, x.astype(np.float16).astype(x.dtype), np.rint(inside / step) * step)


def logits(config, weights, ids, round_x=None):
    """(len(ids), vocab) float64. `weights` maps Hugging Face names to float64 arrays; round_x(name, x): x as the matrix of that name meets it."""
    head, heads, kv_heads = config.head_dim, config.num_attention_heads, config.num_key_value_heads
    rows = len(ids)
    angles = np.arange(rows)[:, None] * inverse_frequencies(config)
    mask = np.triu(np.full((rows, rows), -np.inf), 1)
    x = weights["model.embed_tokens.weight"][ids]

    for index in range(config.num_hidden_layers):
        layer = f"model.layers.{index}."

        def linear(name, value):
            if round_x:
                value = round_x(f"{layer}{name}", value)
            return value @ weights[f"{layer}{name}.weight"].T + weights.get(f"{layer}{name}.bias", 0)

        h = rms_norm(x, weights[layer + "input_layernorm.weight"], config.rms_norm_eps)
        q = rotate(linear("self_attn.q_proj", h).reshape(rows, heads, head), angles)
        k = rotate(linear("self_attn.k_proj", h).reshape(rows, kv_heads, head), angles)
        v = linear("self_attn.v_proj", h).reshape(rows, kv_heads, head)
        k, v = (np.repeat(t, heads // kv_heads, axis=1) for t in (k, v))
        scores = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(head) + mask
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        scores /= scores.sum(-1, keepdims=True)
        x = x + linear("self_attn.o_proj", np.einsum("hqk,khd->qhd", scores, v).reshape(rows, heads * head))

        h = rms_norm(x, weights[layer + "post_attention_layernorm.weight"], config.rms_norm_eps)
        gate = linear("mlp.gate_proj", h)
        x = x + linear("mlp.down_proj", gate / (1 + np.exp(-gate)) * linear("mlp.up_proj", h))

    x = rms_norm(x, weights["model.norm.weight"], config.rms_norm_eps)
    return x @ weights.get("lm_head.weight", weights["model.embed_tokens.weight"]).T
