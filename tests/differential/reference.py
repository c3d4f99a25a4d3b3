"""What transformers makes of a case: logits in float32 on the CPU, or the reason why it has none."""

import json
import os
import pathlib
import tempfile

import numpy as np
import torch
import transformers
from safetensors.numpy import save_file
from transformers import AutoConfig, AutoModelForCausalLM

import made_weights

SIZES = ["vocab_size", "hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim"]
MOST_VALUES = 300_000  # of all tensors together: a configuration that asks for more is not run


def rows_kept(ids):
    """The engine's cache has a place for every token but scores one less: that is the length that rope is scaled for."""
    return [len(ids) // 2, len(ids) - 2]


def refusal(error):
    return type(error).__name__


class Reference:
    def __init__(self, prompts):
        torch.set_num_threads(1)
        transformers.utils.logging.set_verbosity(transformers.logging.CRITICAL)
        transformers.utils.logging.disable_progress_bar()
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="differential-"))
        self.prompts = prompts
        self.files = {}

    def _place(self, text):
        (self.folder / "config.json").write_text(text)

    def shapes(self, text):
        """Returns the tensors that the configuration asks for, as [(name, shape)], or the text of an error."""
        self._place(text)
        try:
            config = AutoConfig.from_pretrained(self.folder)
            sizes = [getattr(config, n, 1) for n in SIZES]
            if not all(isinstance(n, int) and n <= MOST_VALUES for n in sizes) or config.num_hidden_layers > 100:
                return "the model would be too large to be run here"
            with torch.device("meta"):
                model = AutoModelForCausalLM.from_config(config)
            tensors = [(name, list(p.shape)) for name, p in model.named_parameters()]
        except Exception as e:  # every class of error is a refusal
            return refusal(e)
        if not tensors or any(min(shape) < 1 for _, shape in tensors):
            return "a tensor would be empty"
        if sum(int(np.prod(shape)) for _, shape in tensors) > MOST_VALUES:
            return "the model would be too large to be run here"
        return tensors

    def weights(self, tensors):
        key = json.dumps(tensors)
        if key not in self.files:
            path = self.folder / f"weights-{len(self.files)}"
            save_file({n: made_weights.tensor(n, s) for n, s in tensors}, path, metadata={"format": "pt"})
            self.files[key] = path
        return self.files[key]

    @torch.no_grad()
    def run(self, text, tensors):
        """Returns {prompt: logits (two rows, vocab)} or the text of an error."""
        self._place(text)
        link = self.folder / "model.safetensors"
        link.unlink(missing_ok=True)
        os.link(self.weights(tensors), link)
        try:
            model, info = AutoModelForCausalLM.from_pretrained(
                self.folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
            )
            if info["missing_keys"]:
                return "it makes up " + ", ".join(sorted(info["missing_keys"])[:3])
            model.eval()
            found = {}
            for name, ids in self.prompts.items():
                out = model(torch.tensor([ids]), use_cache=False, return_dict=True).logits[0]
                found[name] = out[rows_kept(ids)].float().numpy()
        except Exception as e:  # every class of error is a refusal
            return refusal(e)
        if not all(np.isfinite(rows).all() for rows in found.values()):
            return "its logits are not finite"
        return found
