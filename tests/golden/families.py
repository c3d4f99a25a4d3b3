"""Small random checkpoints of the other families, with what transformers makes of them. See checkpoints.py for Llama's."""

import copy
import json
import re
import shutil

import numpy as np
import safetensors.torch
import torch
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.models.gemma3 import modeling_gemma3

import common
import vocabulary
from checkpoints import prompts
from common import DATA, golden_prompts, usable

# What differs from BASE. Sizes are odd on purpose: heads x head_dim is rarely the width, and no width is a power of
# two.
BASE = dict(vocab_size=260, num_hidden_layers=2, hidden_size=48, num_attention_heads=4, num_key_value_heads=2,
            intermediate_size=72, max_position_embeddings=512, bos_token_id=0, eos_token_id=1, pad_token_id=0,
            tie_word_embeddings=False)  # fmt: skip
CHECKPOINTS = {
    "tiny-mistral": dict(model_type="mistral", head_dim=16, sliding_window=24),
    "tiny-qwen2": dict(model_type="qwen2", num_attention_heads=6, rms_norm_eps=1e-5),
    "tiny-qwen2-tied": dict(model_type="qwen2", hidden_size=60, num_attention_heads=3, num_key_value_heads=1,
                            tie_word_embeddings=True),
    "tiny-qwen3": dict(model_type="qwen3", head_dim=20, hidden_size=36),
    "tiny-qwen3-tied": dict(model_type="qwen3", head_dim=16, hidden_size=56, num_key_value_heads=4,
                            tie_word_embeddings=True),
    "tiny-gemma3": dict(model_type="gemma3_text", num_hidden_layers=7, head_dim=20, hidden_size=36, sliding_window=24,
                        query_pre_attn_scalar=24, num_key_value_heads=1, tie_word_embeddings=True),
    "tiny-gemma2": dict(model_type="gemma2", num_hidden_layers=3, head_dim=20, hidden_size=36, sliding_window=24,
                        query_pre_attn_scalar=24, attn_logit_softcapping=4.0, final_logit_softcapping=30.0,
                        tie_word_embeddings=True),
    "tiny-olmo2": dict(model_type="olmo2", num_attention_heads=6),
    "tiny-granite": dict(model_type="granite", embedding_multiplier=3.0, attention_multiplier=0.2,
                         residual_multiplier=0.4, logits_scaling=2.5, tie_word_embeddings=True),
    "tiny-stablelm": dict(model_type="stablelm", partial_rotary_factor=0.5, hidden_size=64, use_qkv_bias=True),
    "tiny-stablelm-parallel": dict(model_type="stablelm", partial_rotary_factor=0.5, num_key_value_heads=4,
                                   use_parallel_residual=True, tie_word_embeddings=True),
    "tiny-phi3": dict(model_type="phi3", sliding_window=24),
    "tiny-phi3-longrope": dict(model_type="phi3", hidden_size=60, num_attention_heads=3, num_key_value_heads=1,
                               partial_rotary_factor=0.5, tie_word_embeddings=True,
                               original_max_position_embeddings=4,  # every prompt is longer: `long_factor` holds
                               rope_scaling=dict(type="longrope", short_factor=[1.0, 1.1, 1.2, 1.3, 1.4],
                                                 long_factor=[1.0, 1.5, 2.5, 5.0, 9.0])),
    "tiny-starcoder2": dict(model_type="starcoder2", num_attention_heads=6, sliding_window=24),
    "tiny-smollm3": dict(model_type="smollm3", num_hidden_layers=4, hidden_size=60, num_attention_heads=3,
                         num_key_value_heads=1, no_rope_layer_interval=2, tie_word_embeddings=True),
    "tiny-made": dict(model_type="olmo2", num_hidden_layers=3, num_attention_heads=6, hidden_act="relu2"),
    # The last three layers share the caches of layers 2, 3 and 2.
    "tiny-shared": dict(model_type="gemma3_text", num_hidden_layers=7, num_kv_shared_layers=3, head_dim=20, hidden_size=36,
                        sliding_window=24, query_pre_attn_scalar=24, tie_word_embeddings=True,
                        layer_types=["sliding_attention", "full_attention", "sliding_attention", "full_attention",
                                     "sliding_attention", "full_attention", "sliding_attention"]),
    "tiny-mixtral": dict(model_type="mixtral", num_local_experts=5, num_experts_per_tok=2, head_dim=16,
                         hidden_size=36),
    "tiny-qwen3-moe": dict(model_type="qwen3_moe", num_experts=7, num_experts_per_tok=3, moe_intermediate_size=40,
                           norm_topk_prob=True, head_dim=20, hidden_size=36, tie_word_embeddings=True),
    "tiny-olmoe": dict(model_type="olmoe", num_experts=6, num_experts_per_tok=3, num_attention_heads=6),
    "tiny-gpt-oss": dict(model_type="gpt_oss", num_hidden_layers=3, num_local_experts=5, num_experts_per_tok=2, head_dim=20,
                         hidden_size=36, intermediate_size=40, sliding_window=24,
                         rope_parameters=dict(rope_type="yarn", rope_theta=150000.0, factor=4.0, beta_fast=8.0, beta_slow=1.0,
                                              truncate=False, original_max_position_embeddings=128)),
}  # fmt: skip
# The experts of a model in MXFP4: in groups of 32 columns, as OpenAI's folders have them.
MXFP4 = "tiny-gpt-oss-mxfp4"
CHECKPOINTS[MXFP4] = dict(CHECKPOINTS["tiny-gpt-oss"], hidden_size=64, intermediate_size=96, num_hidden_layers=2)
E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], dtype=torch.float64)


# Where the embedding is scaled and tied, a token would otherwise choose itself.
EMBEDDING = {"tiny-gemma3": 0.1, "tiny-shared": 0.1, "tiny-gemma2": 0.1, "tiny-granite": 0.1, "tiny-qwen3-moe": 0.2}


def randomize(model, seed, embedding):
    """As for Llama, but norms that are stored less one stay around that, and biases of norms around 0."""
    rng = np.random.default_rng(seed)
    for name, weight in model.named_parameters():
        noise = torch.from_numpy(rng.standard_normal(tuple(weight.shape), dtype=np.float32))
        if model.config.model_type == "gpt_oss" and (name.endswith("gate_up_proj") or name.endswith("sinks")):
            value = noise  # so that some gates are clamped, and sinks weigh something
        elif "norm" in name:
            value = 0.2 * noise + (1 if float(weight.detach().float().mean()) > 0.5 else 0)
        else:
            value = noise * (embedding if "embed" in name else 0.2)
        weight.data.copy_(value)


class NoAttention(torch.nn.Module):
    def forward(self, hidden_states, **_):
        return torch.zeros_like(hidden_states), None


class Owner(torch.nn.Module):
    """An attention whose keys and values other layers read: `kept` are those that it sees, from its cache if there is one."""

    def __init__(self, attention):
        super().__init__()
        self.attention, self.cache, self.kept = attention, None, None

    def update(self, keys, values, *where):
        self.kept = (keys, values) if self.cache is None else self.cache.update(keys, values, *where)
        return self.kept

    def forward(self, hidden_states, past_key_values=None, **rest):
        self.cache = past_key_values
        return self.attention(hidden_states, past_key_values=self, **rest)


class Reader(torch.nn.Module):
    """Gemma 3's attention with queries of its own, and the keys and values of another layer."""

    def __init__(self, attention, owner):
        super().__init__()
        self.attention, self.owner = attention, owner

    def forward(self, hidden_states, position_embeddings, attention_mask, **_):
        own, (keys, values) = self.attention, self.owner.kept
        heads = own.q_proj(hidden_states).view(*hidden_states.shape[:-1], -1, own.head_dim).transpose(1, 2)
        queries, _ = modeling_gemma3.apply_rotary_pos_emb(own.q_norm(heads), own.q_norm(heads), *position_embeddings)
        out, _ = modeling_gemma3.eager_attention_forward(own, queries, keys, values, attention_mask, scaling=own.scaling)
        return own.o_proj(out.reshape(*hidden_states.shape[:-1], -1)), None


def share_caches(model):
    """The last layers read what the last layer of their kind before them has cached (`num_kv_shared_layers` of Gemma 3n)."""
    layers, types = model.model.layers, model.config.layer_types
    first = len(layers) - model.config.num_kv_shared_layers
    owner = {kind: first - 1 - types[:first][::-1].index(kind) for kind in types[first:]}
    for number in set(owner.values()):
        layers[number].self_attn = Owner(layers[number].self_attn)
    for number in range(first, len(layers)):
        layers[number].self_attn = Reader(layers[number].self_attn, layers[owner[types[number]]].self_attn)


def load(folder):
    eager = dict(attn_implementation="eager", experts_implementation="eager")
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **eager).eval()
    if folder.name == "tiny-made":
        for layer in model.model.layers[2::3]:
            layer.self_attn = NoAttention()
    if folder.name == "tiny-shared":
        share_caches(model)
    return model


def save(folder, spec, seed):
    options = {**BASE, **spec}
    config = AutoConfig.for_model(options.pop("model_type"), **options)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    randomize(model, seed, EMBEDDING.get(folder.name, 0.5))
    shutil.rmtree(folder, ignore_errors=True)
    model.to(torch.bfloat16).save_pretrained(folder)
    vocabulary.tokenizer().save(str(folder / "tokenizer.json"))
    return load(folder)


def fp32_error(model, entry, logits):
    """max|difference| / max|reference| to the same model in float64, which must choose the same tokens."""
    ids, tokens = entry["ids"], entry["greedy"]
    with torch.no_grad():
        exact = model(torch.tensor([ids + tokens[:-1]]), use_cache=False).logits[0].double().numpy()
    if exact[len(ids) - 1 :].argmax(-1).tolist() != tokens:
        raise RuntimeError(f"{entry['name']}: float64 chooses other tokens")
    return float(np.abs(exact - logits).max() / np.abs(exact).max())


# Made-up families: what config.json says they are, and the tensors that they do not have.
MADE = {
    "tiny-made": ("acme", "AcmeForCausalLM", r"\.layers\.2\.(self_attn|post_attention_layernorm)\."),
    "tiny-shared": ("acme_shared", "AcmeSharedForCausalLM", r"\.layers\.[456]\.self_attn\.[kv]_"),
}


def rename(folder):
    """Makes the checkpoint one of its made-up family."""
    model_type, name_of_class, without = MADE[folder.name]
    config = json.loads((folder / "config.json").read_text())
    config.update(model_type=model_type, architectures=[name_of_class])
    common.write_json(folder / "config.json", config)
    tensors = safetensors.torch.load_file(folder / "model.safetensors")
    for name in [n for n in tensors if re.search(without, n)]:
        del tensors[name]
    safetensors.torch.save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def to_mxfp4(folder):
    """Stores the experts' matrices (experts, columns, rows) as codes and exponents; returns what they stand for, by name."""
    tensors, meant = safetensors.torch.load_file(folder / "model.safetensors"), {}
    for name in [n for n in tensors if n.endswith(("gate_up_proj", "down_proj"))]:
        groups = tensors.pop(name).double().transpose(1, 2).unflatten(2, (-1, 32))  # (experts, rows, groups, 32)
        exponents = torch.floor(torch.log2(groups.abs().amax(3))) - 2
        scaled = groups / 2.0 ** exponents[..., None]
        codes = (scaled[..., None] - E2M1).abs().argmin(-1)
        meant[name] = (E2M1[codes] * 2.0 ** exponents[..., None]).flatten(2).transpose(1, 2)
        tensors[name + "_blocks"] = (codes[..., 0::2] | codes[..., 1::2] << 4).to(torch.uint8)
        tensors[name + "_scales"] = (exponents + 127).to(torch.uint8)
    safetensors.torch.save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    plain = ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]
    config["quantization_config"] = {"modules_to_not_convert": plain, "quant_method": "mxfp4"}
    common.write_json(folder / "config.json", config)
    return meant


def make(name):
    folder = DATA / name
    for seed in range(1, 200):
        model = save(folder, CHECKPOINTS[name], seed)
        if name == MXFP4:
            for tensor, meant in to_mxfp4(folder).items():
                model.get_parameter(tensor).data.copy_(meant)
        entries = golden_prompts(model, prompts(seed))
        if usable(entries):
            exact = copy.deepcopy(model).double()
            common.write_golden(folder, {"model": name, "seed": seed, "vocab_size": 260}, exact, entries, fp32_error)
            if name in MADE:
                rename(folder)
            print(name, "seed", seed, json.loads((folder / "golden.json").read_text())["prompts"][0]["fp32_error"])
            return
    raise RuntimeError(f"{name}: no seed gives clear choices")


def make_all():
    for name in CHECKPOINTS:
        make(name)
