"""What transformers gives as the last hidden state of the small checkpoints, pooled: the mean over the prompt, and its last row."""

import json

import numpy as np
import torch
from transformers import AutoModelForCausalLM

import checkpoints
from common import DATA


@torch.no_grad()
def make_all():
    """Reads what `checkpoints` wrote; writes embeddings.f32, little-endian float32 (prompts, 2, width), beside it."""
    for name in checkpoints.CHECKPOINTS:
        model = AutoModelForCausalLM.from_pretrained(DATA / name, dtype=torch.float32, attn_implementation="eager").eval()
        rows = []
        for prompt in json.loads((DATA / name / "golden.json").read_text())["prompts"]:
            # After the final norm.
            state = model.model(torch.tensor([prompt["ids"]])).last_hidden_state[0].double().numpy()
            rows.append([state.mean(0), state[-1]])
        np.array(rows).astype("<f4").tofile(DATA / name / "embeddings.f32")
        print(f"{name}: {len(rows)} prompts")
