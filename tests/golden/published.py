"""Small random checkpoints as other packages publish quantized ones, with what transformers makes of the weights that they stand for."""

import json
import shutil

import bitsandbytes
import numpy as np
import torch
from transformers import BitsAndBytesConfig, LlamaConfig, LlamaForCausalLM

import vocabulary
from checkpoints import prompts
from common import DATA, fp32_error, golden_prompts, usable, write_golden

CONFIG = dict(vocab_size=260, num_hidden_layers=2, hidden_size=64, num_attention_heads=4, num_key_value_heads=2, head_dim=32,
              intermediate_size=192, max_position_embeddings=512, bos_token_id=0, eos_token_id=1, pad_token_id=0)  # fmt: skip
BITSANDBYTES = {
    "tiny-bnb-nf4": dict(bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True),
    "tiny-bnb-fp4": dict(bnb_4bit_quant_type="fp4"),
}
# DeepSeek's form: e4m3 codes with a scale a block. The blocks leave rests on both sides.
FP8, BLOCK = "tiny-fp8-block", 128


def random_model(seed):
    model = LlamaForCausalLM._from_config(LlamaConfig(**CONFIG), attn_implementation="eager")
    rng = np.random.default_rng(seed)
    for name, weight in model.named_parameters():
        noise = torch.from_numpy(rng.standard_normal(tuple(weight.shape), dtype=np.float32))
        weight.data.copy_(1 + 0.2 * noise if "norm" in name else noise * (0.5 if "embed" in name else 0.2))
    return model.eval()


def save_bitsandbytes(model, folder, options):
    """Quantizes by the package, and gives the model the weights that the package unpacks."""
    plain = folder.with_suffix(".plain")
    model.save_pretrained(plain)
    quantization = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_compute_dtype=torch.float32, **options)
    held = LlamaForCausalLM.from_pretrained(plain, quantization_config=quantization, dtype=torch.float32, device_map="cpu")
    held.save_pretrained(folder)
    shutil.rmtree(plain)
    weights = model.state_dict()
    for name, module in held.named_modules():
        if isinstance(module, bitsandbytes.nn.Linear4bit):
            unpacked = bitsandbytes.functional.dequantize_4bit(module.weight.data, module.weight.quant_state)
            weights[name + ".weight"].copy_(unpacked.float())


def save_fp8(model, folder):
    stored = {}
    for name, weight in model.state_dict().items():
        stored[name] = weight
        if "_proj" not in name:
            continue
        codes = torch.empty_like(weight, dtype=torch.float8_e4m3fn)
        scales = torch.empty([-(-n // BLOCK) for n in weight.shape])
        for i in range(scales.shape[0]):
            for j in range(scales.shape[1]):
                block = (slice(i * BLOCK, (i + 1) * BLOCK), slice(j * BLOCK, (j + 1) * BLOCK))
                scales[i, j] = weight[block].abs().max() / 448
                codes[block] = (weight[block] / scales[i, j]).to(codes.dtype)
                weight[block] = codes[block].float() * scales[i, j]
        stored[name], stored[name + "_scale_inv"] = codes, scales
    model.save_pretrained(folder, state_dict={name: weight.contiguous() for name, weight in stored.items()})
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = dict(quant_method="fp8", fmt="e4m3", activation_scheme="dynamic", weight_block_size=[BLOCK, BLOCK])
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")


def make(name, save):
    folder = DATA / name
    for seed in range(1, 200):
        model = random_model(seed)
        shutil.rmtree(folder, ignore_errors=True)
        save(model, folder)
        vocabulary.tokenizer().save(str(folder / "tokenizer.json"))
        entries = golden_prompts(model, prompts(seed))
        if usable(entries):
            write_golden(folder, {"model": name, "seed": seed, "vocab_size": 260}, model, entries, fp32_error)
            print(name, "seed", seed)
            return
    raise RuntimeError(f"{name}: no seed gives clear choices")


def make_all():
    for name, options in BITSANDBYTES.items():
        make(name, lambda model, folder, options=options: save_bitsandbytes(model, folder, options))
    make(FP8, save_fp8)
