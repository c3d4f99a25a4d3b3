#!/usr/bin/env python3
"""train_small.py OUT [--text FOLDER_OR_FILE ...] [--seconds N] [--device cuda|cpu]: trains a small Llama on source code that is here, and
writes it to the folder OUT as Hugging Face does, in f32, with two texts beside it that it was not trained on: OUT/score.txt to measure
quality with, and OUT/calibrate.txt.

What it is for: no published model in full precision is at hand whose matrices K types' blocks of 256 divide. The widths here are multiples of
256. It learns for so many seconds, not steps, so two runs give two models; quantizations of one run can be compared with each other."""
import argparse
import math
import pathlib
import random
import sys
import sysconfig
import time

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

VOCABULARY = 16384
SIZES = {"100m": dict(hidden_size=768, intermediate_size=2048, num_hidden_layers=12, num_attention_heads=12, num_key_value_heads=4),
         "tiny": dict(hidden_size=256, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=4)}
# tokens, windows a step, of AdamW, the share of time in which the rate rises
CONTEXT, BATCH, HIGHEST_RATE, WARM_UP = 512, 64, 1e-3, 0.05
SCORED_BYTES, CALIBRATION_BYTES = 60_000, 400_000


def texts_of(args):
    """Returns the texts of all files, in an order that a seed gives."""
    files = sorted(path for place in map(pathlib.Path, args.text) for path in (place.rglob("*.py") if place.is_dir() else [place]))
    random.Random(args.seed).shuffle(files)
    texts, size = [], 0
    for path in files:
        text = path.read_text(errors="ignore")
        if 1000 <= len(text) <= 200_000 and text.isascii():
            texts.append(text)
            size += len(text)
        if size > args.most_bytes:
            break
    return texts


def split(texts, least):
    """Returns so many bytes of text from the end of the list, which loses them."""
    taken = ""
    while len(taken) < least:
        taken += texts.pop()
    return taken


def make_tokenizer(texts):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, special_tokens=["<s>", "</s>"], show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(texts[: len(texts) // 8 + 1], trainer)
    return tokenizer


def train(model, tokens, args):
    """Trains by AdamW, with a rate that rises, then falls as a cosine over the time given."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=HIGHEST_RATE, betas=(0.9, 0.95), weight_decay=0.1, fused=args.device == "cuda")
    generator = torch.Generator().manual_seed(args.seed)
    begin, seen = time.perf_counter(), 0
    while (done := (time.perf_counter() - begin) / args.seconds) < 1:
        rate = HIGHEST_RATE * min(1, done / WARM_UP) * 0.5 * (1 + math.cos(math.pi * done))
        for group in optimizer.param_groups:
            group["lr"] = rate
        starts = torch.randint(len(tokens) - CONTEXT, (args.batch,), generator=generator).to(args.device)
        windows = tokens[starts[:, None] + torch.arange(CONTEXT, device=args.device)]
        with torch.autocast(args.device, dtype=torch.bfloat16):
            loss = model(input_ids=windows, labels=windows, use_cache=False).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        seen += windows.numel()
        if seen // windows.numel() % 100 == 1:
            print(f"{time.perf_counter() - begin:.0f} s, {seen / 1e6:.1f} million tokens, loss {loss.item():.3f}", flush=True)
    print(f"{seen / 1e6:.1f} million tokens, loss {loss.item():.3f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--text", nargs="+", default=[sysconfig.get_paths()["purelib"]],
                        help="files, or folders of Python sources; the interpreter's packages if absent")
    parser.add_argument("--size", default="100m", choices=SIZES)
    parser.add_argument("--seconds", type=float, default=100)
    parser.add_argument("--batch", type=int, default=BATCH)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--most-bytes", type=int, default=150_000_000, help="of text")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    texts = texts_of(args)
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "score.txt").write_text(split(texts, SCORED_BYTES)[:SCORED_BYTES])
    (args.out / "calibrate.txt").write_text(split(texts, CALIBRATION_BYTES)[:CALIBRATION_BYTES])
    tokenizer = make_tokenizer(texts)
    tokens = torch.tensor([i for encoded in tokenizer.encode_batch(texts) for i in [0, *encoded.ids]], device=args.device)
    print(f"{len(texts)} files, {len(tokens) / 1e6:.1f} million tokens", flush=True)
    config = LlamaConfig(**SIZES[args.size], vocab_size=VOCABULARY, max_position_embeddings=2048, bos_token_id=0, eos_token_id=1,
                         tie_word_embeddings=False, attn_implementation="sdpa")
    with torch.device(args.device):
        model = LlamaForCausalLM(config).train()
    train(model, tokens, args)
    model.cpu().save_pretrained(args.out)
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>").save_pretrained(args.out)


if __name__ == "__main__":
    sys.exit(main())
