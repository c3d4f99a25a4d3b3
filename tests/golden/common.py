"""What every part of the golden data shares: running a model in fp32 and writing what it did.

A model is run by transformers with eager attention in fp32 on one thread. Greedy decoding is written out here (argmax
of the last row, KV cache, no stop token), so that nothing of `generate` decides for us.
"""

import json
import pathlib

import numpy as np
import torch

import reference

DATA = pathlib.Path(__file__).parent / "data"

# A choice is golden only if it does not hang on rounding: (top1 - top2) / max|logit| must exceed this at every step.
MIN_MARGIN = 1e-3
GREEDY_TOKENS = 64


@torch.no_grad()
def run_greedy(model, ids, count):
    """`count` greedy tokens, and the logits of every position fed, (len(ids) + count - 1, vocab)."""
    step, cache, tokens, rows = torch.tensor([ids]), None, [], []
    for _ in range(count):
        out = model(step, past_key_values=cache, use_cache=True)
        cache = out.past_key_values
        rows.append(out.logits[0].float().numpy())
        tokens.append(int(rows[-1][-1].argmax()))
        step = torch.tensor([[tokens[-1]]])
    return tokens, np.concatenate(rows)


def round_in_blocks(x, columns):
    """x as DeepSeek's and transformers' programs on a GPU multiply it: so many columns of a row have a scale, their largest / 448."""
    parts = []
    for part in x.split(columns, -1):
        scale = part.abs().amax(-1, keepdim=True) / 448
        scale = torch.where(scale > 0, scale, 1)
        parts.append((part / scale).to(torch.float8_e4m3fn).to(x.dtype) * scale)
    return torch.cat(parts, -1)


def margins(logits):
    """Per row (top1 - top2) / max|logit|."""
    top = np.sort(logits.astype(np.float64), axis=-1)[:, -2:]
    return (top[:, 1] - top[:, 0]) / np.abs(logits).max(axis=-1)


def fp32_error(model, entry, logits, round_x=None):
    """max|difference| / max|reference| to the float64 reference, which must choose the same tokens."""
    ids, tokens = entry["ids"], entry["greedy"]
    weights = {name: weight.double().numpy() for name, weight in model.state_dict().items()}
    exact = reference.logits(model.config, weights, ids + tokens[:-1], round_x)
    if exact[len(ids) - 1 :].argmax(-1).tolist() != tokens:
        raise RuntimeError(f"{entry['name']}: the float64 reference chooses other tokens")
    return float(np.abs(exact - logits).max() / np.abs(exact).max())


def write_json(path, value):
    """Indented, but with arrays of numbers on one line."""

    def render(node, indent):
        pad = "  " * (indent + 1)
        if isinstance(node, dict):
            body = ",\n".join(f"{pad}{json.dumps(k)}: {render(v, indent + 1)}" for k, v in node.items())
            return "{\n" + body + "\n" + "  " * indent + "}"
        if isinstance(node, list) and node and isinstance(node[0], (dict, list)):
            return "[\n" + ",\n".join(pad + render(v, indent + 1) for v in node) + "\n" + "  " * indent + "]"
        return json.dumps(node, ensure_ascii=True)

    path.write_text(render(value, 0) + "\n")


def golden_prompts(model, prompts):
    """Runs each (name, text, ids, all_positions); golden entries, each with the logits of every position fed."""
    entries = []
    for name, text, ids, all_positions in prompts:
        tokens, logits = run_greedy(model, ids, GREEDY_TOKENS)
        last, final = len(ids) - 1, len(logits) - 1
        entries.append(
            {
                "name": name,
                "text": text,
                "ids": ids,
                "greedy": tokens,
                "min_margin": float(margins(logits[last:]).min()),
                "logits_positions": (list(range(last + 1)) if all_positions else [last]) + [final],
                "logits_file": f"{name}.f32",
                "logits": logits,
            }
        )
    return entries


def usable(entries):
    """Clear choices, and text that does not fall into a short loop at once."""
    return all(e["min_margin"] > MIN_MARGIN and len(set(e["greedy"])) >= 12 for e in entries)


def write_golden(folder, header, model, entries, error=fp32_error):
    """Writes golden.json and one raw little-endian float32 file of (len(logits_positions), vocab) per prompt."""
    folder.mkdir(parents=True, exist_ok=True)
    for entry in entries:
        logits = entry.pop("logits")
        entry["min_margin"] = float(f"{entry['min_margin']:.3e}")
        entry["fp32_error"] = float(f"{error(model, entry, logits):.1e}")
        logits[entry["logits_positions"]].astype("<f4").tofile(folder / entry["logits_file"])
    write_json(folder / "golden.json", {**header, "prompts": entries})
