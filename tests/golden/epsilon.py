"""What transformers makes of the small checkpoints where norms have so large an epsilon that every one of them is felt. The
epsilons of `checkpoints` and `families` are as small as those of published models, which a random model may not notice."""

import json

import torch
from transformers import AutoConfig, AutoModelForCausalLM

import checkpoints
import families
from common import DATA

EPSILON = 1.0
KEYS = ("rms_norm_eps", "layer_norm_eps", "norm_epsilon")


@torch.no_grad()
def make_all():
    """Reads what `checkpoints` and `families` wrote; writes epsilon.f32, little-endian float32 (positions, vocab) of the prompt
    `short`, beside it."""
    # Made-up families are none of transformers, and codes of 4 bits are not what this is about.
    others = {*families.MADE, families.MXFP4}
    for name in [*checkpoints.CHECKPOINTS, *(n for n in families.CHECKPOINTS if n not in others)]:
        config = AutoConfig.from_pretrained(DATA / name)
        keys = [key for key in KEYS if hasattr(config, key)]
        assert len(keys) == 1, (name, keys)
        setattr(config, keys[0], EPSILON)
        eager = dict(attn_implementation="eager", experts_implementation="eager")
        model = AutoModelForCausalLM.from_pretrained(DATA / name, config=config, dtype=torch.float32, **eager).eval()
        prompt = json.loads((DATA / name / "golden.json").read_text())["prompts"][0]
        assert prompt["name"] == "short"
        rows = model(torch.tensor([prompt["ids"]]), use_cache=False).logits[0].float().numpy()
        rows.astype("<f4").tofile(DATA / name / "epsilon.f32")
        print(f"{name}: {keys[0]} = {EPSILON}")
