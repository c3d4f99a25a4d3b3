"""The cases: a configuration of a tiny model with one field at a time set to another value, or left out."""

import dataclasses
import json
import pathlib
import re

LAYERS = 2
BASES = {
    family: dict(
        architectures=[cls],
        model_type=family,
        hidden_size=32,
        intermediate_size=24,
        num_hidden_layers=LAYERS,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        vocab_size=24,
        max_position_embeddings=20,
        rms_norm_eps=1e-5,
        hidden_act="silu",
        tie_word_embeddings=False,
        rope_theta=500.0,
        **extra,
    )
    for family, cls, extra in [
        ("llama", "LlamaForCausalLM", dict(attention_bias=False, mlp_bias=False)),
        ("mistral", "MistralForCausalLM", dict(sliding_window=None)),
    ]
}

# The long one passes max_position_embeddings, every original_max_position_embeddings and every window below.
PROMPTS = {
    "short": [3, 15, 5, 5, 7, 0, 9, 14, 1, 12, 2],
    "long": [(i * i * 7 + i * 3 + 11) % 16 for i in range(36)],
}

LIST, TEXT, GROUP = [1, 2], "x", {"a": 1}

# Every field is set to these, whatever its type. None is null.
ANYTHING = [None, True, False, 0, 1, -1, 2, 3, 7, 0.5, -2.5, 1e-30, 1e30, 2**31, 2**32 + 1, 2**64, "", TEXT, "1", [], LIST,
            {}, GROUP]  # fmt: skip
# These are a few kinds of value, for fields that change no number by intention, and for those of other families.
KINDS = [None, True, 0, 7, 0.5, TEXT, LIST, GROUP]

SECOND = [None, True, 7]
# These are values beside those, where a field has a meaning.
MEANT = {
    "hidden_size": [16, 64, 33],
    "intermediate_size": [16, 40],
    "vocab_size": [16, 23, 25],
    "num_attention_heads": [5, 6],
    "num_key_value_heads": [2],
    "head_dim": [6, 8, 10, 24, 32],
    "max_position_embeddings": [8, 36, 37, 4096],
    "rms_norm_eps": [1e-6, 1e-3, 0.01, 1e-46, 1e39],
    "rope_theta": [1.0001, 10, 10000, 10000.0, 1e6, 1e12, 1e39],
    "hidden_act": ["silu", "swish", "gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "SiLU", "sigmoid", "linear"],
    "sliding_window": [5, 9, 35, 36, 37, 4096],
    "architectures": [["LlamaForCausalLM"], ["MistralForCausalLM"], ["LlamaModel"], ["LlamaForSequenceClassification"],
                      ["LlamaForCausalLM", "LlamaForCausalLM"], ["Qwen2ForCausalLM"], "LlamaForCausalLM"],
    "model_type": ["llama", "mistral", "qwen2", "Llama", "llama4_text", "ministral", "smollm3"],
    "dtype": ["float32", "bfloat16", "float16", "float64", "int8", "auto"],
    "torch_dtype": ["float32", "bfloat16", "float16", "auto"],
    "partial_rotary_factor": [1.0, 0.25],
    "pad_token_id": [23, 24, -24, -25],
    "layer_types": [[kind] * n for kind in ("full_attention", "sliding_attention", "attention", "chunked_attention",
                                            "linear_attention", TEXT) for n in (1, LAYERS, LAYERS + 1)]
                   + [["full_attention", "sliding_attention"], ["sliding_attention", "full_attention"],
                      ["full_attention", None], ["full_attention", 1]],
    "per_layer_config": [{"0": {"num_key_value_heads": 2}}, {"1": {"intermediate_size": 24}}, {"0": {}},
                         {"0": {"head_dim": 16}}],
    "mlp_layer_types": [["dense"] * LAYERS, ["sparse"] * LAYERS],
    "quantization_config": [{"quant_method": "gptq", "bits": 4}, {"quant_method": "bitsandbytes", "load_in_8bit": True},
                            {"quant_method": "fp8"}, {"quant_method": "mxfp4"}, {"load_in_4bit": False},
                            {"quant_method": "compressed-tensors", "format": "dense"}],
    "original_max_position_embeddings": [12],
    "auto_map": [{"AutoConfig": "configuration_other.OtherConfig", "AutoModelForCausalLM": "modeling_other.Other"}],
    "text_config": [{"model_type": "llama", "rms_norm_eps": 0.1}],
    "is_causal": [False],
    "attention_chunk_size": [8],
}  # fmt: skip

# These are keys of published configurations that no class declares.
PUBLISHED = ["auto_map", "text_config", "decoder", "generator", "model_type", "original_max_position_embeddings",
             "_rope_type_labels", "rope_interleaved", "use_sliding_window", "max_window_layers", "qkv_bias", "attention_scale",
             "logit_scale", "embedding_multiplier", "residual_multiplier", "query_pre_attn_scalar", "logits_scaling",
             "final_logit_softcapping", "attn_logit_softcapping", "no_rope_layers", "no_rope_layer_interval",
             "use_qk_norm", "qk_layernorm", "num_local_experts", "num_experts_per_tok", "clip_qkv", "quantization",
             "compression_config", "peft_config", "alpha", "rope_ratio", "rope_type", "vision_config", "mup_scale"]  # fmt: skip

# Its ramp goes from pair 1.3 to pair 4.5 of 8, so that both bounds and their rounding show.
YARN = dict(rope_type="yarn", factor=3.0, original_max_position_embeddings=12, beta_fast=0.7, beta_slow=0.06)
ROPES = {
    "default": dict(rope_type="default"),
    "linear": dict(rope_type="linear", factor=2.5),
    "dynamic": dict(rope_type="dynamic", factor=3.0),
    "yarn": YARN,
    "longrope": dict(rope_type="longrope", original_max_position_embeddings=12,
                     short_factor=[1.0, 1.0, 1.25, 1.5, 1.5, 2.0, 2.0, 2.5],
                     long_factor=[1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.5]),
    "llama3": dict(rope_type="llama3", factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0,
                   original_max_position_embeddings=16),
    "proportional": dict(rope_type="proportional"),
}  # fmt: skip
ROPE_VALUES = [None, True, 0, 1, -1, 2, 8, 19, 40, 0.5, 1.75, 16.0, 1e-30, 1e30, 2**32 + 1, TEXT, "2", [], [3] * 8, [1.5] * 8,
               [1.0] * 7, [0.0] * 8, [TEXT] * 8, GROUP]  # fmt: skip
# These are for parameters that a type does not have.
ROPE_KINDS = [None, 0.5, 8]
ROPE_WHOLES = [None, True, 0, 1.5, TEXT, "linear", "yarn", [], LIST, [GROUP], {}, GROUP, {"factor": 2.0}, {"rope_type": None},
               {"rope_type": ""}, {"rope_type": 3}, {"rope_type": "default"}, {"type": "default"}, {"type": "linear"},
               {"rope_type": "Linear", "factor": 2.0}, {"rope_type": "ntk", "factor": 2.0}, {"rope_type": "su", "factor": 2.0},
               {"type": "linear", "factor": 2.0}, {"type": "dynamic", "factor": 2.0}, {"type": "yarn", "factor": 2.0},
               {"rope_type": "linear", "type": "linear", "factor": 2.0}, {"rope_type": "linear", "type": "yarn", "factor": 2.0},
               {"rope_type": "mrope", "mrope_section": [2, 3, 3]}, {"rope_type": "default", "mrope_section": [2, 3, 3]},
               {"full_attention": {"rope_type": "linear", "factor": 2.0, "rope_theta": 500.0}},
               {"full_attention": {"rope_type": "default", "rope_theta": 100.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 900.0}},
               {"0": {"rope_type": "linear", "factor": 2.0}}, {"rope_theta": 100.0}, {"rope_theta": 500.0},
               {"rope_type": "axial", "factor": 2.0}]  # fmt: skip


@dataclasses.dataclass
class Case:
    field: str  # an error must name it
    base: str
    set: dict = dataclasses.field(default_factory=dict)
    drop: list = dataclasses.field(default_factory=list)
    text: str | None = None  # the whole of config.json, if JSON's own forms are what is varied
    extra: list = dataclasses.field(default_factory=list)  # [name, shape] of tensors beside those that it asks for

    def config(self):
        config = {key: value for key, value in BASES[self.base].items() if key not in self.drop}
        return {**config, **self.set}


    def json(self):
        return self.text if self.text is not None else json.dumps(self.config())


def unique(values):
    """Without those that JSON does not tell apart."""
    return list({json.dumps(v): v for v in values}.values())


def field_cases(family, field, values):
    base = BASES[family]
    for value in unique(values):
        if field == "num_labels" and isinstance(value, (int, float)) and value > 100:
            continue  # transformers would write down a name for each
        if field not in base or json.dumps(base[field]) != json.dumps(value):
            yield Case(field, family, {field: value})
    if field in base:
        yield Case(field, family, drop=[field])


def harmless_keys():
    """Returns what the engine's ledger lets pass; each star stands for nothing."""
    root = pathlib.Path(__file__).parents[2] / "core/model"
    ledger = (root / "weights/metadata_ledger.cc").read_text()
    names = re.search(r"kConfigKeys\[\] = \{(.*?)\};", ledger, re.S)[1]
    names += re.search(r"kHarmlessKeys\[\] = \{(.*?)\};", (root / "llama/harmless_names.h").read_text(), re.S)[1]
    found = [name.replace("*", "").replace("\\\\", "").rstrip(".") for name in re.findall(r'"([^"]+)"', names)]
    return sorted({name for name in found if not name.startswith(".")})


def rope_cases(family, group, kind, fields, brief):
    base = ROPES[kind]
    theta = {"rope_theta": 500.0} if group == "rope_parameters" else {}
    drop = ["rope_theta"] if theta else []

    def case(rope, field=group):
        return Case(field, family, {group: rope}, drop)

    yield case({**theta, **base})
    if brief:
        return
    own = {"rope_theta", "rope_type", *base}
    own |= {"yarn": {"attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "truncate"},
            "longrope": {"attention_factor", "factor"}}.get(kind, set())  # fmt: skip
    for key in fields["rope_keys"]:
        for value in unique(ROPE_VALUES if key in own else ROPE_KINDS):
            yield case({**theta, **base, key: value}, group if kind == "proportional" else key)
        if key in base:
            yield case({**theta, **{k: v for k, v in base.items() if k != key}}, key)
    yield case({**theta, **base, "alpha": 3.0}, "alpha")
    yield case({**theta, **base, "original_max_position_embeddings": 40})
    if kind == "yarn":
        for extra in [{"mscale": 0.7, "mscale_all_dim": 0.5}, {"mscale": 0.7, "mscale_all_dim": 0},
                      {"beta_fast": 1, "beta_slow": 32}, {"beta_fast": 4, "beta_slow": 4}, {"factor": 0.5, "mscale": 2},
                      {"truncate": False, "beta_fast": 3}, {"truncate": True}, {"finetuned": True},
                      {"attention_factor": 0.5, "mscale": 0.7, "mscale_all_dim": 0.5},
                      {"truncate": False, "original_max_position_embeddings": 1}]:  # fmt: skip
            yield case({**theta, **base, **extra})
    if kind == "longrope":
        for extra in [{"factor": 3.0}, {"factor": 0.5}, {"attention_factor": 0.75, "factor": 3.0},
                      {"original_max_position_embeddings": 1}, {"original_max_position_embeddings": 2}]:  # fmt: skip
            yield case({**theta, **base, **extra})
    if kind == "llama3":
        for extra in [{"low_freq_factor": 4.0}, {"low_freq_factor": 5.0}, {"low_freq_factor": 2, "high_freq_factor": 3}]:
            yield case({**theta, **base, **extra})


def together(family):
    """Gives fields that a rope or a window shares with others."""
    def case(field, drop=(), **values):
        return Case(field, family, values, list(drop))

    longrope = {k: v for k, v in ROPES["longrope"].items() if k != "original_max_position_embeddings"}
    yarn = {k: v for k, v in YARN.items() if k != "original_max_position_embeddings"}
    for kind, rope in (("longrope", longrope), ("yarn", yarn)):
        yield case("original_max_position_embeddings", rope_scaling=rope,
                   original_max_position_embeddings=12)
        yield case("original_max_position_embeddings", original_max_position_embeddings=16,
                   rope_scaling={**rope, "original_max_position_embeddings": 12})
    for kind in ("linear", "dynamic", "yarn", "llama3", "longrope"):
        yield case("partial_rotary_factor", partial_rotary_factor=0.5, rope_scaling=ROPES[kind])
        yield case("max_position_embeddings", max_position_embeddings=100, rope_scaling=ROPES[kind])
        yield case("max_position_embeddings", max_position_embeddings=30, rope_scaling=ROPES[kind])
        yield case("rope_theta", rope_theta=1.0, rope_scaling=ROPES[kind])
        yield case("head_dim", head_dim=2, rope_scaling={
            **ROPES[kind], **({"short_factor": [1.5], "long_factor": [2.5]} if kind == "longrope" else {})})
    yield case("rope_theta", rope_parameters={"rope_type": "default", "rope_theta": 100.0})
    yield case("rope_scaling", drop=["rope_theta"], rope_parameters={"rope_type": "default", "rope_theta": 500.0},
               rope_scaling={"rope_type": "linear", "factor": 2.0})
    yield case("rope_scaling", drop=["rope_theta"],
               rope_parameters={"rope_type": "linear", "factor": 2.0, "rope_theta": 500.0}, rope_scaling={})
    for window in (None, 8):
        for kinds in (["full_attention"] * 2, ["sliding_attention"] * 2, ["full_attention", "sliding_attention"]):
            yield case("sliding_window" if kinds[1] == "full_attention" else "layer_types", sliding_window=window, layer_types=kinds)
    nested = {kind: {"rope_type": "default", "rope_theta": theta}
              for kind, theta in (("full_attention", 100.0), ("sliding_attention", 900.0))}
    yield case("rope_parameters", drop=["rope_theta"], rope_parameters=nested,
               layer_types=["full_attention"] * 2)
    yield case("num_attention_heads", num_attention_heads=7, num_key_value_heads=7)
    yield case("head_dim", head_dim=None, num_attention_heads=4)
    yield case("tie_word_embeddings", tie_word_embeddings=True)
    yield case("attention_bias", attention_bias=True, mlp_bias=True)


def extra_tensors(family):
    """Gives tensors that transformers does not look at."""
    q, kv = "model.layers.{}.self_attn.{}_proj.bias", (("q", 32), ("k", 16), ("v", 16), ("o", 32))
    biases = [[q.format(layer, part), [n]] for layer in range(LAYERS) for part, n in kv]
    mlp = [[f"model.layers.{layer}.mlp.{part}_proj.bias", [n]]
           for layer in range(LAYERS) for part, n in (("gate", 24), ("up", 24), ("down", 32))]
    if family == "mistral":
        yield Case("attention_bias", family, {"attention_bias": True}, extra=biases)
        yield Case("mlp_bias", family, {"mlp_bias": True}, extra=mlp)
        yield Case("attention_bias", family, {"attention_bias": False}, extra=biases)
    else:
        yield Case("attention_bias", family, {}, extra=biases)
        yield Case("mlp_bias", family, {}, extra=mlp)
    for name, shape in (("rope_freqs.weight", [8]), ("model.layers.0.self_attn.rotary_emb.inv_freq", [8]),
                        ("model.layers.1.self_attn.q_norm.weight", [16]), ("model.layers.2.mlp.up_proj.weight", [24, 32]),
                        ("model.layers.0.self_attn.sinks", [2]), ("model.norm.bias", [32]), ("lm_head.bias", [24]),
                        ("model.layers.0.self_attn.q_proj.lora_A.weight", [4, 32]), ("score.weight", [2, 32])):  # fmt: skip
        yield Case(name, family, extra=[[name, shape]])
    yield Case("tie_word_embeddings", family, {"tie_word_embeddings": True}, extra=[["lm_head.weight", [24, 32]]])


def texts(family):
    """Gives forms that JSON has and Python's json accepts."""
    text = json.dumps(BASES[family])

    def case(field, old, new):
        assert old in text, old
        return Case(field, family, text=text.replace(old, new))

    theta = '"rope_theta": 500.0'
    for value in ("NaN", "Infinity", "-Infinity", "1e400", "-0.0", "5e2", "500", '{"__float__": "Infinity"}'):
        yield case("rope_theta", theta, f'"rope_theta": {value}')
        yield case("rms_norm_eps", '"rms_norm_eps": 1e-05', f'"rms_norm_eps": {value}')
    yield case("rope_theta", theta, f'"rope_theta": 100.0, {theta}')
    yield case("rope_theta", theta, f'{theta}, "rope_theta": 100.0')
    yield case("rope_theta", theta, '"rope\\u005ftheta": 100.0')
    yield case("num_hidden_layers", '"num_hidden_layers": 2', '"num_hidden_layers": 2.0')
    yield case("num_hidden_layers", '"num_hidden_layers": 2', '"num_hidden_layers": 2e0')
    yield case("rope_theta", theta, f"/* */ {theta}")
    yield case("rope_theta", "}", ",}")
    yield case("config.json", "{", "\ufeff{")
    # These keys spell the path of another one, or the reader's own list of nulls.
    for key in ("rope_scaling.factor", "rope_scaling.rope_type", "null_keys", "\\\\null_keys", "__metadata__.rope_theta"):
        yield case(key.replace("\\", "").replace(".", "\\."), theta, f'"{key}": ["rope_theta"], {theta}')
    yield case("rope_scaling", theta, f'"rope_scaling.factor": 2.0, "rope_scaling.rope_type": "linear", {theta}')


def foreign_value(annotation):
    """Gives one value of the type that the other family declares."""
    for word, value in (("bool", True), ("int", 3), ("float", 0.5), ("str", TEXT), ("list", LIST), ("tuple", LIST)):
        if re.search(rf"\b{word}\b", annotation):
            return value
    return GROUP


def all_cases(fields):
    """Gives every case once. The first of each family changes nothing."""
    declared = fields["declared"]
    for family in BASES:
        yield Case("", family)
        first = family == "llama"
        own = list(dict.fromkeys([*declared[family], *fields["looked_up"]]))
        for field in own:
            meant = field in MEANT or field in BASES[family]
            values = ANYTHING if meant else KINDS if first else SECOND
            yield from field_cases(family, field, values + MEANT.get(field, []))
        for field in PUBLISHED:
            if field not in own:
                yield from field_cases(family, field, (KINDS if first else SECOND) + MEANT.get(field, []))
        for group in ("rope_scaling", "rope_parameters"):
            drop = [] if group == "rope_scaling" else ["rope_theta"]
            for whole in unique(ROPE_WHOLES):
                yield Case(group, family, {group: whole}, drop)
            for kind in fields["rope_types"]:
                brief = not first or group == "rope_parameters"
                yield from rope_cases(family, group, kind, fields, brief)
        yield from together(family)
        yield from extra_tensors(family)
    yield from texts("llama")
    done = {*declared["llama"], *fields["looked_up"], *PUBLISHED}
    for field in sorted({*harmless_keys(), *fields["generation"]} - done):
        yield from field_cases("llama", field, KINDS)
    for field, annotation in fields["foreign"].items():
        if field not in done:
            yield from field_cases("llama", field, [foreign_value(annotation)])


def distinct_cases(fields):
    return list({case.base + case.json() + json.dumps(case.extra): case for case in reversed(list(all_cases(fields)))}.values())[::-1]
