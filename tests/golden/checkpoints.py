"""Small random Llama checkpoints as transformers publishes them, with what transformers makes of them."""

import json
import shutil

import numpy as np
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

import vocabulary
from common import DATA, golden_prompts, usable, write_golden

# `form` is how config.json states RoPE: "new" as transformers 5 writes it, "old" as published before that.
# `drop` are keys that old configurations lack, which has a meaning: KV heads = heads, head_dim = width / heads.
CHECKPOINTS = {
    "tiny-gqa-untied": dict(
        config=dict(hidden_size=64, num_attention_heads=4, num_key_value_heads=2, intermediate_size=72),
        dtype=torch.float32,
        form="new",
    ),
    "tiny-mha-tied": dict(
        config=dict(hidden_size=32, num_attention_heads=4, intermediate_size=80, tie_word_embeddings=True,
                    rms_norm_eps=1e-4),
        dtype=torch.float32,
        form="old",
        drop=["num_key_value_heads", "head_dim", "attention_bias", "mlp_bias"],
    ),
    "tiny-llama3-scaling": dict(
        config=dict(hidden_size=64, num_attention_heads=4, num_key_value_heads=1, intermediate_size=80,
                    tie_word_embeddings=True,
                    rope_parameters=dict(rope_type="llama3", rope_theta=5e5, factor=8.0, low_freq_factor=1.0,
                                         high_freq_factor=4.0, original_max_position_embeddings=64)),
        dtype=torch.bfloat16,
        form="old",
        other_form="new",
        max_shard_size="60KB",
    ),
    "tiny-linear-scaling": dict(
        config=dict(hidden_size=48, num_attention_heads=4, num_key_value_heads=2, intermediate_size=80,
                    attention_bias=True, rope_parameters=dict(rope_type="linear", rope_theta=1e4, factor=2.0)),
        dtype=torch.bfloat16,
        form="new",
        other_form="old",
    ),
    "tiny-odd": dict(
        config=dict(hidden_size=60, num_attention_heads=3, num_key_value_heads=1, head_dim=24, intermediate_size=100,
                    tie_word_embeddings=True, rope_parameters=dict(rope_type="default", rope_theta=1e5)),
        dtype=torch.float16,
        form="new",
    ),
}  # fmt: skip


def make_config(options):
    base = dict(
        vocab_size=260,
        num_hidden_layers=2,
        max_position_embeddings=512,
        rms_norm_eps=1e-5,
        bos_token_id=0,
        eos_token_id=1,
        tie_word_embeddings=False,
        rope_parameters=dict(rope_type="default", rope_theta=1e4),
    )
    return LlamaConfig(**{**base, **options})


def randomize(model, seed):
    """Weights large enough that attention is peaked and choices are clear; norms and biases off their defaults."""
    rng = np.random.default_rng(seed)
    for name, weight in model.named_parameters():
        noise = torch.from_numpy(rng.standard_normal(tuple(weight.shape), dtype=np.float32))
        if "norm" in name:
            value = 1 + 0.2 * noise
        else:
            value = noise * (0.5 if "embed" in name else 0.2)
        weight.data.copy_(value)


def old_form(config):
    """config.json as transformers 4 wrote it: rope_theta and rope_scaling at the top level, torch_dtype."""
    old = dict(config)
    rope = dict(old.pop("rope_parameters"))
    old["rope_theta"] = rope.pop("rope_theta")
    kind = rope.pop("rope_type")
    if kind == "default":
        old["rope_scaling"] = None
    elif kind == "linear":
        old["rope_scaling"] = {"type": kind, **rope}
    else:
        old["rope_scaling"] = {**rope, "rope_type": kind}
    old["torch_dtype"] = old.pop("dtype")
    old["transformers_version"] = "4.44.0"
    return dict(sorted(old.items()))


def save(folder, spec, seed):
    """Writes the checkpoint and returns the model as transformers reads it back from the folder, in fp32."""
    model = LlamaForCausalLM(make_config(spec["config"]))
    randomize(model, seed)
    shutil.rmtree(folder, ignore_errors=True)
    model.to(spec["dtype"]).save_pretrained(folder, max_shard_size=spec.get("max_shard_size", "1GB"))
    vocabulary.tokenizer().save(str(folder / "tokenizer.json"))

    new = json.loads((folder / "config.json").read_text())
    forms = {"new": new, "old": old_form(new)}
    for form in forms.values():
        for key in spec.get("drop", []):
            form.pop(key, None)

    def load(form):
        (folder / "config.json").write_text(json.dumps(forms[form], indent=2) + "\n")
        return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()

    if "other_form" in spec:
        other = load(spec["other_form"])
        (folder / "config.json").rename(folder / "config_other_form.json")
    loaded = load(spec["form"])
    if "other_form" in spec and not torch.equal(other.model.rotary_emb.inv_freq, loaded.model.rotary_emb.inv_freq):
        raise RuntimeError(f"{folder.name}: the two forms of config.json do not mean the same")
    return loaded


def prompts(seed):
    """(name, text, ids, whether all prompt positions are kept). `deep` passes usual tile and page sizes."""
    rng = np.random.default_rng(seed + 1000)
    sentence = vocabulary.tokenizer().encode(vocabulary.SENTENCE).ids
    return [
        ("short", None, rng.integers(0, 260, 5).tolist(), True),
        ("long", vocabulary.SENTENCE, sentence, False),
        ("deep", None, rng.integers(0, 260, 300).tolist(), False),
    ]


def make(name):
    spec, folder = CHECKPOINTS[name], DATA / name
    for seed in range(1, 200):
        model = save(folder, spec, seed)
        entries = golden_prompts(model, prompts(seed))
        if usable(entries):
            write_golden(folder, {"model": name, "seed": seed, "vocab_size": 260}, model, entries)
            return
    raise RuntimeError(f"{name}: no seed gives clear choices")


def make_all():
    for name in CHECKPOINTS:
        make(name)
