"""Shows that what `tenon quantize --scheme gptq`, `awq` and `fp8` (in blocks, with a scale a matrix, or with x rounded) write is read by
transformers with its own loaders on a CPU, and compares the greedy tokens with those of Tenon.

    python tests/golden/read_by_transformers.py TENON        the program, such as build/release/bin/tenon
    python tests/golden/read_by_transformers.py TENON --mixture
                                                             a random mixture; transformers has no layers for packed experts, so that
                                                             gptqmodel's own loader reads gptq's and awq's
    python tests/golden/read_by_transformers.py TENON --model MODEL --text TEXT
                                                             a model that was trained, calibrated with TEXT, after several prompts

needs gptqmodel, whose kernels in torch the loaders of gptq and awq take on a CPU, accelerate and compressed-tensors. A small random Llama is written, calibrated with a text and
quantized in each form; README.md has the versions and how this ended. Nothing of it is kept.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")  # else the loader has its kernel compiled first

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AwqConfig, GPTQConfig, LlamaConfig, LlamaForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM

import vocabulary
from common import margins, round_in_blocks, run_greedy

CONFIG = dict(vocab_size=260, num_hidden_layers=2, hidden_size=64, num_attention_heads=4, num_key_value_heads=2, head_dim=32,
              intermediate_size=192, max_position_embeddings=512, bos_token_id=0, eos_token_id=1, pad_token_id=0)  # fmt: skip
TEXT = "The other bird sat on the wall and saw the other bird. One day the wall was gone. "
# What the form may say: the scheme's parameters, and the class of the layers that the loader has to make.
FORMS = {
    "gptq": [dict(bits=4, group_size=32), dict(bits=4, group_size=32, act_order="true"), dict(bits=8, group_size=64),
             dict(bits=4, group_size=32, symmetric="true"), dict(bits=3, group_size=32), dict(bits=2, group_size=32)],
    "awq": [dict(group_size=32), dict(group_size=64), dict(group_size=32, scale="false", clip="false")],
    "fp8": [dict(scales="block"), dict(scales="tensor"), dict(activations="static"), dict(scales="tensor", activations="static")],
}  # fmt: skip
MIXTURE = dict(moe_intermediate_size=64, num_experts=4, num_experts_per_tok=2, norm_topk_prob=True)
# Once gptqmodel is loaded, transformers makes other layers of experts, so fp8 comes first. Of GPTQ gptqmodel takes symmetric
# forms alone of programs that it does not know.
FORMS_OF_MIXTURE = {
    "fp8": [dict(scales="block"), dict(scales="tensor")],
    "gptq": [dict(bits=4, group_size=32, symmetric="true"), dict(bits=8, group_size=32, symmetric="true")],
    "awq": [dict(group_size=32), dict(group_size=64)],
}  # fmt: skip
CALIBRATED = ("gptq", "awq")
# On a CPU the loader cuts a matrix in blocks of equal size, which 128 x 128 are only where they leave no rest.
WIDTHS = {"fp8": dict(intermediate_size=256)}
TOKENS = 64
# Of a model that was trained. Its matrices are 576 wide, or a multiple of it.
FORMS_OF_MODEL = {
    "gptq": [dict(bits=4, group_size=64), dict(bits=4, group_size=64, act_order="true"), dict(bits=8, group_size=64), dict(bits=3, group_size=64)],
    "awq": [dict(group_size=64)],
    "fp8": [dict(scales="tensor"), dict(activations="static")],
}  # fmt: skip
PROMPTS = ["The capital of France is", "Once upon a time, in a small village by the sea,", "def fibonacci(n):\n",
           "Water boils at a temperature of", "The three primary colors are"]  # fmt: skip


def random_model(seed, widths, mixture):
    model_class, config_class = (Qwen3MoeForCausalLM, Qwen3MoeConfig) if mixture else (LlamaForCausalLM, LlamaConfig)
    config = config_class(**CONFIG | widths | (MIXTURE if mixture else {}))
    model = model_class._from_config(config, attn_implementation="eager")
    rng = np.random.default_rng(seed)
    for name, weight in model.named_parameters():
        noise = torch.from_numpy(rng.standard_normal(tuple(weight.shape), dtype=np.float32))
        weight.data.copy_(1 + 0.2 * noise if "norm" in name else noise * (0.5 if "embed" in name else 0.2))
    return model.eval()


def run(*command):
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\n{result.stderr}")
    return result.stdout


def tokens_of_tenon(tenon, folder, prompt):
    """The prompt's tokens, and those that follow."""
    settings = ["quantization.use=auto", "kv_cache.format=fp32", "sampler.chain=[]", "sampler.select=greedy"]
    options = [word for setting in settings for word in ("--set", setting)]
    said = json.loads(run(tenon, "generate", folder, "-p", prompt, "-n", str(TOKENS), "--ignore-end", "--json", *options))
    return said["prompt_tokens"], said["tokens"]


def read_by_transformers(folder, scheme, settings):
    options = {}  # config.json says what else there is to know
    if scheme in CALIBRATED:
        options["quantization_config"] = AwqConfig(backend="torch_awq") if scheme == "awq" else GPTQConfig(bits=settings["bits"], backend="torch")
    return AutoModelForCausalLM.from_pretrained(folder, device_map="cpu", dtype=torch.float32, attn_implementation="eager", **options).eval()


def read_by_gptqmodel(folder, scheme):
    from gptqmodel import BACKEND, GPTQModel

    backend = BACKEND.TORCH if scheme == "gptq" else BACKEND.TORCH_AWQ
    return GPTQModel.load(str(folder), backend=backend, device="cpu", dtype=torch.float16, attn_implementation="eager").model.eval()


def round_x_in_blocks(model):
    """On a CPU transformers multiplies x as it is by what the codes stand for. The kernels that round x need a GPU, so x is rounded here."""
    linear = torch.nn.functional.linear

    def rounding_linear(x, *rest):
        return linear(round_in_blocks(x, 128), *rest)

    def choose(function):
        torch.nn.functional.linear = function

    for name, module in model.named_modules():
        if name.endswith("_proj"):
            module.register_forward_pre_hook(lambda _, x: (round_in_blocks(x[0], 128),))
        if name.endswith(".experts"):  # packed ones have no module for each matrix
            module.register_forward_pre_hook(lambda *_: choose(rounding_linear))
            module.register_forward_hook(lambda *_: choose(linear), always_call=True)
            model.set_experts_implementation("eager")


def compare(model, form, prompt, ids, ours):
    tokens, logits = run_greedy(model, ids, TOKENS)
    margin_of = margins(logits[len(ids) - 1 :])
    same = ours == tokens
    print(f"{form}: {prompt!r}: {TOKENS} tokens {'the same' if same else 'DIFFER'}, least margin {margin_of.min():.1e}")
    if not same:
        at = next(i for i, pair in enumerate(zip(ours, tokens)) if pair[0] != pair[1])
        print(f" first at token {at}, where transformers' first choice is ahead of its second by {margin_of[at]:.1e}")
        print(" tenon       ", ours, "\n transformers", tokens)
    return same


def check(tenon, plain, text, prompts, scheme, settings, work, mixture=False):
    folder = work / "-".join([scheme, *(f"{name}-{value}" for name, value in settings.items())])
    sets = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    windows = ["--context", "256", "--max-windows", "16"] if plain.is_file() else ["--context", "64"]
    calibration = ["--calibrate", text, *windows] if scheme in CALIBRATED or "activations" in settings else []
    run(tenon, "quantize", plain, folder, "--scheme", scheme, *sets, *calibration)
    form = f"{scheme} {settings}"
    ours = [tokens_of_tenon(tenon, folder, prompt) for prompt in prompts]
    try:
        by_gptqmodel = mixture and scheme in CALIBRATED
        model = read_by_gptqmodel(folder, scheme) if by_gptqmodel else read_by_transformers(folder, scheme, settings)
    except Exception as e:
        print(f"{form}: transformers refuses: {type(e).__name__}: {str(e).splitlines()[0]}")
        return False
    mlp = model.model.layers[0].mlp
    layer = type(mlp.experts[0].down_proj if by_gptqmodel else mlp.experts if mixture else mlp.down_proj)
    print(f"{form}: {layer.__module__}.{layer.__name__}")
    if settings.get("scales") == "block":
        round_x_in_blocks(model)
    return all([compare(model, form, prompt, *tokens) for prompt, tokens in zip(prompts, ours)])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tenon", type=pathlib.Path)
    parser.add_argument("--scheme", choices=FORMS, help="only this one")
    parser.add_argument("--seed", type=int, default=1, help="of a random model")
    parser.add_argument("--mixture", action="store_true", help="of experts, by Qwen3's shape")
    parser.add_argument("--model", type=pathlib.Path, help="a GGUF file")
    parser.add_argument("--text", type=pathlib.Path, help="what its forms are calibrated with")
    args = parser.parse_args()
    if (args.model is None) != (args.text is None):
        parser.error("--model and --text go together")
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        work = pathlib.Path(name)
        good = []
        forms = FORMS_OF_MODEL if args.model else FORMS_OF_MIXTURE if args.mixture else FORMS
        for scheme in [args.scheme] if args.scheme else forms:
            if args.model:
                good += [check(args.tenon, args.model, args.text, PROMPTS, scheme, settings, work) for settings in forms[scheme]]
                continue
            text, plain = work / "text", work / f"plain-{scheme}"
            text.write_text(TEXT * 8)
            random_model(args.seed, WIDTHS.get(scheme, {}), args.mixture).save_pretrained(plain)
            vocabulary.tokenizer().save(str(plain / "tokenizer.json"))
            good += [check(args.tenon, plain, text, [vocabulary.SENTENCE], scheme, settings, work, args.mixture) for settings in forms[scheme]]
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
