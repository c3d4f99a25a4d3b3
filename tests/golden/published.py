"""Small random checkpoints as other packages publish quantized ones, with what transformers makes of the weights that they stand for."""

import functools
import json
import shutil

import bitsandbytes
import numpy as np
import torch
from compressed_tensors.compressors import FloatQuantizationCompressor, IntQuantizationCompressor
from compressed_tensors.compressors.mxfp4 import MXFP4PackedCompressor
from compressed_tensors.compressors.nvfp4 import NVFP4PackedCompressor, unpack_fp4_from_uint8
from compressed_tensors.compressors.pack_quantized import PackedQuantizationCompressor
from compressed_tensors.quantization import QuantizationArgs, QuantizationConfig, QuantizationScheme
from compressed_tensors.quantization.lifecycle.forward import fake_quantize
from compressed_tensors.quantization.utils import calculate_qparams, compute_dynamic_scales_and_zp
from hqq.core.quantize import BaseQuantizeConfig, HQQLinear
from safetensors.torch import save_file
from torchao.prototype.safetensors.safetensors_support import flatten_tensor_state_dict
from torchao.quantization import Int4Tensor, Int4WeightOnlyConfig, Int8WeightOnlyConfig, IntxWeightOnlyConfig, MappingType, PerGroup
from transformers import BitsAndBytesConfig, HqqConfig, LlamaConfig, LlamaForCausalLM, TorchAoConfig

import reference
import vocabulary
from checkpoints import prompts
from common import DATA, fp32_error, golden_prompts, round_in_blocks, usable, write_golden

CONFIG = dict(vocab_size=260, hidden_size=64, num_attention_heads=4, num_key_value_heads=2, head_dim=32,
              intermediate_size=192, max_position_embeddings=512, bos_token_id=0, eos_token_id=1, pad_token_id=0)  # fmt: skip
BITSANDBYTES = {
    "tiny-bnb-nf4": dict(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True),
    "tiny-bnb-fp4": dict(load_in_4bit=True, bnb_4bit_quant_type="fp4"),
}
# x of a row becomes int8, but what is as large as this in fp16.
BITSANDBYTES_INT8, OUTLIER = "tiny-bnb-int8", 10.0
# DeepSeek's form: e4m3 codes with a scale a block, and x rounded with a scale for each row and a block's columns. The
# blocks leave rests on both sides.
FP8, BLOCK = "tiny-fp8-block", 128
# A scale a matrix, and one of its x, which is rounded: of matrices that share x each has its own.
FP8_STATIC, X_RANGE = "tiny-ct-fp8-static", dict(q_proj=1, k_proj=0.75, v_proj=0.6, o_proj=1, gate_proj=0.9, up_proj=0.7, down_proj=1)
# A scale a row of the weights, and one a row of x that each step finds.
W8A8 = "tiny-ct-w8a8"
# GPTQ's and AWQ's packages need a GPU: their checkpoints are packed here, from what they say of their form. Groups of
# columns.
GPTQ = {
    "tiny-gptq": dict(bits=4, group_size=32, desc_act=True, checkpoint_format="gptq"),
    "tiny-gptq-3bit": dict(bits=3, group_size=64, desc_act=False, checkpoint_format="gptq_v2"),
}
AWQ, AWQ_GROUP = "tiny-awq", 32
COMPRESSED, COMPRESSED_GROUP = "tiny-ct-int4", 32
# Floats of four bits, in groups of 32 with a power of two or of 16 with an e4m3 number.
FLOAT4 = {"tiny-ct-mxfp4": (MXFP4PackedCompressor, "group", 32), "tiny-ct-nvfp4": (NVFP4PackedCompressor, "tensor_group", 16)}
# Bits and group of HQQ's layers.
HQQ = {"tiny-hqq": (4, 32), "tiny-hqq-3bit": (3, 64)}
# torchao's types that its package quantizes on a CPU; and its int4, which the package only packs and multiplies on a
# GPU.
TORCHAO_GROUP = 32
TORCHAO = {
    "tiny-torchao-int8": Int8WeightOnlyConfig(),
    "tiny-torchao-intx": IntxWeightOnlyConfig(
        weight_dtype=torch.int4, granularity=PerGroup(TORCHAO_GROUP), mapping_type=MappingType.ASYMMETRIC, scale_dtype=torch.bfloat16
    ),
}
TORCHAO_INT4 = "tiny-torchao-int4"


def random_model(seed, layers=2):
    model = LlamaForCausalLM._from_config(LlamaConfig(**CONFIG, num_hidden_layers=layers), attn_implementation="eager")
    rng = np.random.default_rng(seed)
    for name, weight in model.named_parameters():
        noise = torch.from_numpy(rng.standard_normal(tuple(weight.shape), dtype=np.float32))
        weight.data.copy_(1 + 0.2 * noise if "norm" in name else noise * (0.5 if "embed" in name else 0.2))
    return model.eval()


def save_bitsandbytes(model, folder, options):
    """Quantizes by the package, and gives the model the weights that the package unpacks."""
    plain = folder.with_suffix(".plain")
    model.save_pretrained(plain)
    quantization = BitsAndBytesConfig(bnb_4bit_compute_dtype=torch.float32, **options)
    held = LlamaForCausalLM.from_pretrained(plain, quantization_config=quantization, dtype=torch.float32, device_map="cpu")
    held.save_pretrained(folder)
    shutil.rmtree(plain)
    weights = model.state_dict()
    for name, module in held.named_modules():
        if isinstance(module, bitsandbytes.nn.Linear4bit):
            unpacked = bitsandbytes.functional.dequantize_4bit(module.weight.data, module.weight.quant_state)
            weights[name + ".weight"].copy_(unpacked.float())
        if isinstance(module, bitsandbytes.nn.Linear8bitLt):
            # The package has no function for it: a row's largest weight, SCB, stands for 127.
            weights[name + ".weight"].copy_(module.weight.data.float() * (module.weight.SCB / 127)[:, None])


def round_but_outliers(x):
    """The package's rounding of x, row by row: it takes a column of a whole batch out as soon as one row has an outlier there, and its x is fp16."""
    apart = x.abs() >= OUTLIER
    inside = torch.where(apart, 0, x)
    scale = inside.abs().amax(-1, keepdim=True) / 127
    return torch.where(apart, x.half().to(x.dtype), (inside / scale).round() * scale)


def save_bitsandbytes_int8(model, folder):
    save_bitsandbytes(model, folder, dict(load_in_8bit=True, llm_int8_threshold=OUTLIER))
    for name, module in model.named_modules():
        if name.endswith("_proj"):
            module.register_forward_pre_hook(lambda _, x: (round_but_outliers(x[0]),))
    model.round_x = lambda _, x: reference.rounded_but_outliers(x, OUTLIER)


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
    for name, module in model.named_modules():
        if name.endswith("_proj"):
            module.register_forward_pre_hook(lambda _, x: (round_in_blocks(x[0], BLOCK),))
    model.round_x = lambda _, x: reference.rounded_groups(x, BLOCK)
    save(model, folder, stored, dict(quant_method="fp8", fmt="e4m3", activation_scheme="dynamic", weight_block_size=[BLOCK, BLOCK]))


def save_fp8_static(model, folder):
    """Quantizes by the package, which also rounds x in the model. A scale of x reaches to a share of the largest that a text shows."""
    args = QuantizationArgs(num_bits=8, type="float", symmetric=True, strategy="tensor", dynamic=False)
    scheme = QuantizationScheme(targets=["Linear"], weights=args, input_activations=args, format="float-quantized")
    modules = {name: module for name, module in model.named_modules() if name.endswith("_proj")}
    stored, largest = dict(model.state_dict()), {}
    for name, module in modules.items():
        scale, _ = calculate_qparams(module.weight.amin().reshape(1), module.weight.amax().reshape(1), args)
        compressed = FloatQuantizationCompressor.compress(dict(weight=module.weight, weight_scale=scale), scheme)
        stored.update({f"{name}.{part}": tensor for part, tensor in compressed.items()})
        module.weight.data.copy_(FloatQuantizationCompressor.decompress(compressed, scheme)["weight"])
        module.seen = module.register_forward_pre_hook(lambda _, x, name=name: largest.update({name: x[0].abs().amax().reshape(1)}))
    with torch.no_grad():
        model(torch.tensor([vocabulary.tokenizer().encode(vocabulary.SENTENCE).ids]))
    for name, module in modules.items():
        module.seen.remove()
        most = largest[name] * X_RANGE[name.rsplit(".", 1)[1]]
        scale, _ = calculate_qparams(-most, most, args)
        stored[name + ".input_scale"] = scale
        module.register_forward_pre_hook(lambda _, x, scale=scale: (fake_quantize(x[0], scale, None, args),))
    x_scales = {name: float(stored[name + ".input_scale"]) for name in modules}
    model.round_x = lambda name, x: reference.rounded(x, x_scales[name])
    config = QuantizationConfig(
        config_groups={"group_0": scheme}, format="float-quantized", quantization_status="compressed", ignore=["lm_head"]
    )
    save(model, folder, stored, json.loads(config.model_dump_json()))


def save_w8a8(model, folder):
    """Quantizes by the package, which also rounds x in the model; weights are unpacked with scales widened to fp32 first. The largest x of a
    row is 127.5 steps. Where the package makes -128 steps of it, x is -127 steps here, which is as near: by rounding it makes -127 of others."""
    args = QuantizationArgs(num_bits=8, type="int", symmetric=True, strategy="channel")
    args_of_x = QuantizationArgs(num_bits=8, type="int", symmetric=True, strategy="token", dynamic=True)
    scheme = QuantizationScheme(targets=["Linear"], weights=args, input_activations=args_of_x, format="int-quantized")
    stored = dict(model.state_dict())

    def round_x(_, x):
        scale, _ = compute_dynamic_scales_and_zp(x[0], args_of_x, None)
        return (torch.maximum(fake_quantize(x[0], scale, None, args_of_x), -127 * scale),)

    for name, module in model.named_modules():
        if not name.endswith("_proj"):
            continue
        scale, _ = calculate_qparams(module.weight.amin(1, keepdim=True).bfloat16(), module.weight.amax(1, keepdim=True).bfloat16(), args)
        compressed = IntQuantizationCompressor.compress(dict(weight=module.weight, weight_scale=scale), scheme)
        stored.update({f"{name}.{part}": tensor for part, tensor in compressed.items()})
        module.weight.data.copy_(IntQuantizationCompressor.decompress(dict(compressed, weight_scale=scale.float()), scheme)["weight"])
        module.register_forward_pre_hook(round_x)
    model.round_x = lambda _, x: reference.rounded_rows(x)
    config = QuantizationConfig(
        config_groups={"group_0": scheme}, format="int-quantized", quantization_status="compressed", ignore=["lm_head"]
    )
    save(model, folder, stored, json.loads(config.model_dump_json()))


def save(model, folder, stored, quantization):
    model.save_pretrained(folder, state_dict={name: tensor.contiguous() for name, tensor in stored.items()})
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = quantization
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")


def grouped(weight, group, bits, least):
    """Codes (N, K), zero points and scales (N, groups) of integers that round to the nearest; group: (K) the group of each
    column; least: the smallest zero point. The weight becomes what they stand for."""
    top, count = 2**bits - 1, int(group.max()) + 1
    codes = torch.empty_like(weight, dtype=torch.int64)
    zeros, scales = (torch.empty(len(weight), count, dtype=dtype) for dtype in (torch.int64, torch.float16))
    for g in range(count):
        columns = weight[:, group == g]
        low, high = columns.amin(1).clamp(max=0), columns.amax(1).clamp(min=0)
        scales[:, g] = ((high - low) / top).half()
        scale = scales[:, g].float()
        zeros[:, g] = (-low / scale).round().long().clamp(least, top)
        codes[:, group == g] = ((columns / scale[:, None]).round().long() + zeros[:, g, None]).clamp(0, top)
    weight.copy_(scales[:, group].float() * (codes - zeros[:, group]).float())
    return codes, zeros, scales


def packed(numbers, bits):
    """Numbers (count, n) as words i32 (count * bits / 32, n): one stream of bits down each column, the lowest bit first."""
    stream = (numbers[:, None] >> torch.arange(bits)[:, None] & 1).reshape(-1, 32, numbers.shape[1])
    return (stream << torch.arange(32)[:, None]).sum(1).to(torch.uint32).view(torch.int32)


def save_gptq(model, folder, options):
    """With desc_act columns come into groups by size of what they meet, here at random; matrices that share x share the order.
    The first version stores zero points less 1 and, as AutoGPTQ did, a bias of zeros for layers that have none."""
    bits, size, first_version = options["bits"], options["group_size"], options["checkpoint_format"] == "gptq"
    stored = {}
    for name, weight in model.state_dict().items():
        if "_proj" not in name:
            stored[name] = weight
            continue
        place = name.rsplit(".", 1)[0]
        group = torch.arange(weight.shape[1]) // size
        if options["desc_act"]:
            x = [part for part in ("q_proj|k_proj|v_proj", "gate_proj|up_proj", "o_proj", "down_proj") if place.split(".")[-1] in part]
            group = group[np.random.default_rng([int(place.split(".")[2]), len(x[0])]).permutation(len(group))]
        codes, zeros, scales = grouped(weight, group, bits, 1 if first_version else 0)
        stored[place + ".qweight"] = packed(codes.T, bits)
        stored[place + ".qzeros"] = packed(zeros - (1 if first_version else 0), bits).T
        stored[place + ".scales"] = scales.T
        stored[place + ".g_idx"] = group.int()
        if first_version:
            stored[place + ".bias"] = torch.zeros(len(weight), dtype=torch.float16)
    save(model, folder, stored, dict(quant_method="gptq", sym=False, true_sequential=True, damp_percent=0.01, lm_head=False, **options))


def save_awq(model, folder):
    order = [0, 2, 4, 6, 1, 3, 5, 7]  # of the eight rows in a word

    def words(numbers):  # (n, rows) -> i32 (n, rows / 8)
        nibbles = numbers.reshape(len(numbers), -1, 8)[:, :, order]
        return (nibbles << 4 * torch.arange(8)).sum(2).to(torch.uint32).view(torch.int32)

    stored = {}
    for name, weight in model.state_dict().items():
        if "_proj" not in name:
            stored[name] = weight
            continue
        place = name.rsplit(".", 1)[0]
        codes, zeros, scales = grouped(weight, torch.arange(weight.shape[1]) // AWQ_GROUP, 4, 0)
        stored[place + ".qweight"] = words(codes.T)
        stored[place + ".qzeros"] = words(zeros.T)
        stored[place + ".scales"] = scales.T
    save(model, folder, stored, dict(quant_method="awq", bits=4, group_size=AWQ_GROUP, zero_point=True, version="gemm"))


def save_compressed(model, folder):
    """Quantizes and packs by the package; the weights are those that it unpacks, with scales widened to fp32 first."""
    args = QuantizationArgs(num_bits=4, type="int", symmetric=False, strategy="group", group_size=COMPRESSED_GROUP)
    scheme = QuantizationScheme(targets=["Linear"], weights=args, format="pack-quantized")
    stored = {}
    for name, weight in model.state_dict().items():
        if "_proj" not in name:
            stored[name] = weight
            continue
        groups = weight.reshape(len(weight), -1, COMPRESSED_GROUP)
        scale, zero = calculate_qparams(groups.amin(-1).bfloat16(), groups.amax(-1).bfloat16(), args)
        module = dict(weight=weight, weight_scale=scale, weight_zero_point=zero)
        compressed = PackedQuantizationCompressor.compress(module, scheme)
        stored.update({name.removesuffix("weight") + part: tensor for part, tensor in compressed.items()})
        widened = dict(compressed, weight_scale=scale.float())
        weight.copy_(PackedQuantizationCompressor.decompress(widened, scheme)["weight"])
    config = QuantizationConfig(
        config_groups={"group_0": scheme}, format="pack-quantized", quantization_status="compressed", ignore=["lm_head"]
    )
    save(model, folder, stored, json.loads(config.model_dump_json()))


def save_float4(model, folder, compressor, strategy, group):
    """Quantizes and packs by the package; the largest weight of a group becomes 6 times its scale or less."""
    args = QuantizationArgs(num_bits=4, type="float", symmetric=True, strategy=strategy, group_size=group)
    scheme = QuantizationScheme(targets=["Linear"], weights=args, format=compressor_format(compressor))
    stored = {}
    for name, weight in model.state_dict().items():
        if "_proj" not in name:
            stored[name] = weight
            continue
        scale = weight.reshape(len(weight), -1, group).abs().amax(-1) / 6
        module = dict(weight=weight)
        if compressor is NVFP4PackedCompressor:
            module["weight_global_scale"] = (448 / scale.max()).reshape(1)
            module["weight_scale"] = (scale * module["weight_global_scale"]).to(torch.float8_e4m3fn).float()
        else:
            module["weight_scale"] = torch.exp2(scale.log2().ceil())
        compressed = compressor.compress(module, scheme)
        stored.update({name.removesuffix("weight") + part: tensor for part, tensor in compressed.items()})
        weight.copy_(unpacked_float4(compressed, group))
        assert torch.allclose(compressor.decompress(compressed, scheme)["weight"].float(), weight, rtol=2**-7)
    config = QuantizationConfig(
        config_groups={"group_0": scheme}, format=scheme.format, quantization_status="compressed", ignore=["lm_head"]
    )
    save(model, folder, stored, json.loads(config.model_dump_json()))


def unpacked_float4(compressed, group):
    """The weights in fp32; the package unpacks them to bf16, which an e4m3 scale does not fit."""
    codes, scale = compressed["weight_packed"], compressed["weight_scale"]
    if scale.dtype == torch.uint8:
        scale = torch.exp2(scale.float() - 127)
    scale = scale.float() / compressed.get("weight_global_scale", torch.ones(1))
    values = unpack_fp4_from_uint8(codes, len(codes), 2 * codes.shape[1], dtype=torch.float32)
    return values * scale.repeat_interleave(group, 1)


def compressor_format(compressor):
    return "nvfp4-pack-quantized" if compressor is NVFP4PackedCompressor else "mxfp4-pack-quantized"


def save_hqq(model, folder, bits, group):
    """Each layer as the package quantizes it and writes it to safetensors, and config.json as transformers writes it."""
    stored = {}
    for name, weight in model.state_dict().items():
        if "_proj" not in name:
            stored[name] = weight
            continue
        plain = torch.nn.Linear(*reversed(weight.shape), bias=False)
        plain.weight.data.copy_(weight)
        config = BaseQuantizeConfig(nbits=bits, group_size=group, axis=1)
        layer = HQQLinear(plain, config, compute_dtype=torch.float32, device="cpu")
        layer.encoded_state_dict = True
        stored.update({name.removesuffix("weight") + part: tensor for part, tensor in layer.state_dict().items()})
        weight.copy_(layer.dequantize())
    save(model, folder, stored, HqqConfig(nbits=bits, group_size=group, axis=1).to_dict())


def save_torchao(model, folder, options):
    """Quantizes by the package, and gives the model the weights that the package unpacks."""
    plain = folder.with_suffix(".plain")
    model.save_pretrained(plain)
    held = LlamaForCausalLM.from_pretrained(plain, quantization_config=TorchAoConfig(options), dtype=torch.float32, device_map="cpu")
    held.save_pretrained(folder)
    shutil.rmtree(plain)
    weights = model.state_dict()
    for name, tensor in held.state_dict().items():
        if "_proj" in name:
            weights[name].copy_(tensor.dequantize())


def save_torchao_int4(model, folder):
    """Int4Tensor as torchao defines it and writes it to safetensors: a weight stands for scale q + zero point."""
    stored = {}
    for name, weight in model.state_dict().items():
        stored[name] = weight
        if "_proj" not in name:
            continue
        groups = weight.reshape(len(weight), -1, TORCHAO_GROUP)
        low, high = groups.amin(-1), groups.amax(-1)
        scale = ((high - low) / 15).bfloat16()
        zero = (low + 8 * scale.float()).bfloat16()
        numbers = ((groups - zero.float()[..., None]) / scale.float()[..., None]).round().clamp(-8, 7)
        weight.copy_((numbers * scale.float()[..., None] + zero.float()[..., None]).reshape(weight.shape))
        q = numbers.reshape(weight.shape).to(torch.int8)
        stored[name] = Int4Tensor(
            q[:, ::2] & 15 | q[:, 1::2] << 4, scale.T.contiguous(), zero.T.contiguous(), [1, TORCHAO_GROUP], weight.shape
        )
    save(model, folder, {}, TorchAoConfig(Int4WeightOnlyConfig(group_size=TORCHAO_GROUP)).to_dict())
    tensors, metadata = flatten_tensor_state_dict(stored)
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / "model.safetensors", metadata)


def steady(model, entry):
    """Where x is rounded, noise larger than fp32's must not take numbers that are nearly halfway to the other side."""
    weights = {name: weight.double().numpy() for name, weight in model.state_dict().items()}
    ids, rng = entry["ids"] + entry["greedy"][:-1], np.random.default_rng(1)
    exact = reference.logits(model.config, weights, ids, model.round_x)
    for _ in range(8):
        noisy = {name: weight * (1 + 5e-7 * rng.standard_normal(weight.shape)) for name, weight in weights.items()}
        off = np.abs(reference.logits(model.config, noisy, ids, model.round_x) - exact).max()
        if off > 2e-5 * np.abs(exact).max():
            return False
    return True


def make(name, save, rounds=False):
    folder = DATA / name
    for seed in range(1, 200):
        model = random_model(seed, 1 if rounds else 2)
        shutil.rmtree(folder, ignore_errors=True)
        save(model, folder)
        vocabulary.tokenizer().save(str(folder / "tokenizer.json"))
        entries = golden_prompts(model, prompts(seed)[: 1 if rounds else None])
        if usable(entries) and (not rounds or steady(model, entries[0])):
            error = functools.partial(fp32_error, round_x=getattr(model, "round_x", None))
            write_golden(folder, {"model": name, "seed": seed, "vocab_size": 260}, model, entries, error)
            print(name, "seed", seed)
            return
    raise RuntimeError(f"{name}: no seed gives clear choices")


def make_all():
    for name, options in BITSANDBYTES.items():
        make(name, lambda model, folder, options=options: save_bitsandbytes(model, folder, options))
    make(BITSANDBYTES_INT8, save_bitsandbytes_int8, rounds=True)
    make(FP8, save_fp8, rounds=True)
    make(FP8_STATIC, save_fp8_static, rounds=True)
    make(W8A8, save_w8a8, rounds=True)
    for name, options in GPTQ.items():
        make(name, lambda model, folder, options=options: save_gptq(model, folder, options))
    make(AWQ, save_awq)
    make(COMPRESSED, save_compressed)
    for name, form in FLOAT4.items():
        make(name, lambda model, folder, form=form: save_float4(model, folder, *form))
    for name, form in HQQ.items():
        make(name, lambda model, folder, form=form: save_hqq(model, folder, *form))
    for name, options in TORCHAO.items():
        make(name, lambda model, folder, options=options: save_torchao(model, folder, options))
    make(TORCHAO_INT4, save_torchao_int4)
