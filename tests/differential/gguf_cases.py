"""The same for GGUF: one key of a file with the weights of the Llama of cases.py at a time, beside the config.json that
says the same. A value is [type, value]; a "tensor" stands for one of f32."""

import dataclasses
import inspect
import math

from gguf.constants import Keys

from cases import LAYERS, ROPES

BASE = {
    "general.architecture": ["str", "llama"],
    "general.name": ["str", "tiny"],
    "general.file_type": ["u32", 0],
    "general.quantization_version": ["u32", 2],
    "llama.block_count": ["u32", LAYERS],
    "llama.context_length": ["u32", 20],
    "llama.embedding_length": ["u32", 32],
    "llama.feed_forward_length": ["u32", 24],
    "llama.vocab_size": ["u32", 24],
    "llama.attention.head_count": ["u32", 2],
    "llama.attention.head_count_kv": ["u32", 1],
    "llama.attention.key_length": ["u32", 16],
    "llama.attention.value_length": ["u32", 16],
    "llama.attention.layer_norm_rms_epsilon": ["f32", 1e-5],
    "llama.rope.dimension_count": ["u32", 16],
    "llama.rope.freq_base": ["f32", 500.0],
    "tokenizer.ggml.model": ["str", "llama"],
    "tokenizer.ggml.tokens": ["strs", ["<unk>", "<s>", "</s>", *"abcdefghijklmnopqrstu"]],
    "tokenizer.ggml.scores": ["f32s", [0.0] * 24],
    "tokenizer.ggml.token_type": ["i32s", [2, 3, 3] + [1] * 21],
}

KINDS = [["u32", 0], ["u32", 1], ["u32", 7], ["i32", -1], ["u64", 2**40], ["f32", 0.5], ["f32", "nan"], ["bool", True],
         ["bool", False], ["str", ""], ["str", "x"], ["i32s", [1, 2]], ["f32s", [0.5, 2.0]], ["strs", ["x"]]]  # fmt: skip
FEW = [KINDS[2], KINDS[5]]

SCALING = "llama.rope.scaling."
YARN, LONGROPE = ROPES["yarn"], ROPES["longrope"]
YARN_FACTOR = 0.1 * math.log(YARN["factor"]) + 1


@dataclasses.dataclass
class Case:
    field: str
    set: dict = dataclasses.field(default_factory=dict)
    drop: list = dataclasses.field(default_factory=list)
    same_as: dict | None = None  # what config.json would have to say; None: it cannot say it


def keys():
    """Gives every key that gguf-py knows, but for those of the tokenizer, which change no logits."""
    found = []

    def walk(scope):
        for name, value in vars(scope).items():
            if name.startswith("_"):
                continue
            if isinstance(value, str):
                found.append(value.replace("{arch}", "llama").replace("{id}", "0").replace("{dense}", "dense_2"))
            elif inspect.isclass(value):
                walk(value)

    walk(Keys)
    return sorted({key for key in found if not key.startswith("tokenizer.") and "{" not in key})


def stated():
    """Gives keys whose meaning config.json has as well."""
    for key, name in (("llama.rope.freq_base", "rope_theta"), ("llama.attention.layer_norm_rms_epsilon", "rms_norm_eps")):
        for kind, value in (("u32", 1), ("u32", 7), ("u64", 2**40), ("f32", 0.5)):
            yield Case(key, {key: [kind, value]}, same_as={name: float(value)})
    for theta in (100.0, 1e6, 1.0, 1e-30, 1e38):
        yield Case("llama.rope.freq_base", {"llama.rope.freq_base": ["f32", theta]}, same_as={"rope_theta": theta})
    yield Case("llama.rope.freq_base", {"llama.rope.freq_base": ["f32", "inf"]})
    yield Case("llama.rope.freq_base", drop=["llama.rope.freq_base"], same_as={"rope_theta": 10000.0})
    for epsilon in (1e-6, 0.01):
        key = "llama.attention.layer_norm_rms_epsilon"
        yield Case(key, {key: ["f32", epsilon]}, same_as={"rms_norm_eps": epsilon})
    for context in (8, 36, 4096, 2**31 - 1):
        yield Case("llama.context_length", {"llama.context_length": ["u32", context]}, same_as={})
    for key in ("general.name", "general.file_type", "general.quantization_version", "llama.vocab_size",
                "llama.rope.dimension_count", "llama.attention.key_length", "llama.attention.value_length"):
        yield Case(key, drop=[key], same_as={})
    for key in ("llama.rope.dimension_count", "llama.attention.key_length", "llama.attention.value_length"):
        for size in (2, 8, 14, 15, 18, 32):
            yield Case(key, {key: ["u32", size]})
    for key in ("general.architecture", "llama.block_count", "llama.context_length", "llama.embedding_length",
                "llama.feed_forward_length", "llama.attention.head_count", "llama.attention.head_count_kv",
                "llama.attention.layer_norm_rms_epsilon"):
        yield Case(key, drop=[key])
    for key, value in (("llama.expert_count", 0), ("llama.expert_used_count", 0)):
        yield Case(key, {key: ["u32", value]}, same_as={})
    for key, value in (("llama.attention.causal", True), ("llama.use_parallel_residual", False)):
        yield Case(key, {key: ["bool", value]}, same_as={})
    yield Case("general.type", {"general.type": ["str", "model"]}, same_as={})
    yield Case("mistral.", {"general.architecture": ["str", "mistral"]})


def scaled():
    """Gives scaled rope with all that the type has, then with one key changed or left out."""
    def case(field, values, rope):
        return Case(field, {k if k.startswith("rope_") else SCALING + k: v for k, v in values.items()},
                    same_as=None if rope is None else {"rope_scaling": rope})

    none = {"type": ["str", "none"]}
    yield case(SCALING + "type", none, {"rope_type": "default"})
    yield case(SCALING + "type", {**none, "factor": ["f32", 2.0]}, None)
    yield case(SCALING + "factor", {"factor": ["f32", 2.0]}, None)
    linear = {"type": ["str", "linear"], "factor": ["f32", 2.5]}
    yield case(SCALING + "type", linear, ROPES["linear"])
    yield case(SCALING + "factor", {"type": linear["type"]}, None)
    for factor in (1.0, 4.0):
        yield case(SCALING + "factor", {**linear, "factor": ["f32", factor]}, {**ROPES["linear"], "factor": factor})
    for factor in (0.0, -2.0, "nan", 1e-30):
        yield case(SCALING + "factor", {**linear, "factor": ["f32", factor]}, None)
    yield case(SCALING + "finetuned", {**linear, "finetuned": ["bool", True]}, ROPES["linear"])

    yarn = {"type": ["str", "yarn"], "factor": ["f32", 3.0], "original_context_length": ["u32", 12],
            "yarn_beta_fast": ["f32", 0.7], "yarn_beta_slow": ["f32", 0.06]}  # fmt: skip
    yield case(SCALING + "type", yarn, YARN)
    for key, name, value in (("factor", "factor", 6.0), ("original_context_length", "original_max_position_embeddings", 7),
                             ("yarn_beta_fast", "beta_fast", 1.5), ("yarn_beta_slow", "beta_slow", 0.2)):  # fmt: skip
        kind = "u32" if key == "original_context_length" else "f32"
        yield case(SCALING + key, {**yarn, key: [kind, value]}, {**YARN, name: value})
    for key, name in (("yarn_beta_fast", "beta_fast"), ("yarn_beta_slow", "beta_slow")):
        yield case(SCALING + key, {k: v for k, v in yarn.items() if k != key}, {k: v for k, v in YARN.items() if k != name})
    yield case(SCALING + "attn_factor", {**yarn, "attn_factor": ["f32", 1.5]}, {**YARN, "attention_factor": 1.5 * YARN_FACTOR})
    for key in ("yarn_ext_factor", "yarn_attn_factor", "yarn_log_multiplier", "alpha"):
        yield case(SCALING + key, {**yarn, key: ["f32", 0.5]}, None)

    lists = {"rope_factors_short.weight": ["tensor", LONGROPE["short_factor"]],
             "rope_factors_long.weight": ["tensor", LONGROPE["long_factor"]]}  # fmt: skip
    longrope = {"type": ["str", "longrope"], "original_context_length": ["u32", 12], "attn_factor": ["f32", 1.25], **lists}
    rope = {**LONGROPE, "attention_factor": 1.25}
    yield case(SCALING + "type", longrope, rope)
    yield case(SCALING + "attn_factor", {**longrope, "attn_factor": ["f32", 0.75]}, {**rope, "attention_factor": 0.75})
    yield case(SCALING + "original_context_length", {**longrope, "original_context_length": ["u32", 100]},
               {**rope, "original_max_position_embeddings": 100})
    for left_out in ("rope_factors_short.weight", "rope_factors_long.weight", "original_context_length"):
        field = left_out if left_out.startswith("rope_") else SCALING + left_out
        yield case(field, {k: v for k, v in longrope.items() if k != left_out}, None)
    yield case("rope_factors_long.weight", {**longrope, "rope_factors_long.weight": ["tensor", [1.0] * 7]}, None)
    yield case("rope_factors_long.weight", {**longrope, "rope_factors_long.weight": ["tensor", [0.0] * 8]}, None)
    for name, value in lists.items():
        yield case(name, {name: value}, None)

    divisors = LONGROPE["long_factor"]
    both = {"rope_type": "longrope", "short_factor": divisors, "long_factor": divisors, "attention_factor": 1.0,
            "original_max_position_embeddings": 12}  # fmt: skip
    yield case("rope_freqs.weight", {"rope_freqs.weight": ["tensor", divisors]}, both)
    for bad in ([1.0] * 7, [1.0] * 9, [1.0] * 7 + [0.0], [1.0] * 7 + [-1.0], [1.0] * 7 + ["nan"], [1.0] * 7 + ["inf"]):
        yield case("rope_freqs.weight", {"rope_freqs.weight": ["tensor", bad]}, None)
    for kind in ("ntk", "dynamic", "su", "llama3", "LINEAR"):
        yield case(SCALING + "type", {"type": ["str", kind], "factor": ["f32", 2.0]}, None)


def all_cases():
    known = keys()
    yield Case("", same_as={})
    meant = [*stated(), *scaled()]
    yield from meant
    for key in known:
        for value in KINDS if key.startswith("llama.rope.") or key in BASE else FEW:
            if BASE.get(key) != value and not any(case.set == {key: value} for case in meant):
                yield Case(key, {key: value})
    for key in ("llama.rope.scale_linear", "llama.attention.something_new", "general.something_new", "something.new"):
        yield Case(key, {key: ["f32", 0.5]})
