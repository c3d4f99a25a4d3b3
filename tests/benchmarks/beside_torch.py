#!/usr/bin/env python3
"""beside_torch.py [--tenon PROGRAM] [--python PROGRAM] [--peers NAME,...] [--model NAME] [--json PATH]

Decoding of one sequence with weights in few bits: what bitsandbytes and torchao make of transformers' Llama on PyTorch, one peer
after the other in processes of their own (torch_decode.py), and beside each the scheme of Tenon that is nearest to it
(`tenon bench`), on the same NVIDIA GPU in the same run. Weights are random. A ratio above 1 says that Tenon is faster. A peer that
fails is told with its reason, and the others go on."""
import argparse
import json
import pathlib
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
# Beside a peer stands the scheme that is measured, and what is set for it. Both sides have groups of 64; bitsandbytes'
# int8 rounds activations as well, with outliers in fp16 (llm_int8) or without (absmax).
BESIDE = {"bf16": ("none", []), "torchao-int4": ("int4wo", ["quantization.group_size=64"]), "bnb-nf4": ("nf4", []),
          "torchao-int8": ("int8wo", []), "bnb-int8": ("absmax", []), "bnb-int8-outliers": ("llm_int8", [])}


def run(words, seconds):
    """Returns what the program printed; raises RuntimeError with the last of what it said if it failed."""
    try:
        done = subprocess.run([str(w) for w in words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired as late:
        raise RuntimeError(f"stopped after {seconds} s") from late
    if done.returncode != 0:
        said = (done.stderr.strip() or "nothing").splitlines()[-1]
        raise RuntimeError(f"ended with {done.returncode}: {said}")
    return done.stdout


def peer(args, name):
    """Returns the object that torch_decode.py prints last."""
    words = [args.python, HERE / "torch_decode.py", name, "--model", args.model, "--prompt-tokens", args.prompt_tokens, "--new-tokens",
             args.new_tokens, "--runs", args.runs, "--device", args.device]
    return json.loads(run(words, args.seconds).splitlines()[-1])


def tenon(args, name):
    scheme, sets = BESIDE[name]
    words = [args.tenon, "bench", f"synthetic:{args.model}", "--set", f"device.use={args.device}", "--set", f"quantization.use={scheme}"]
    for one in sets:
        words += ["--set", one]
    words += ["--prompt-tokens", args.prompt_tokens, "--new-tokens", args.new_tokens, "--warmups", 1, "--runs", args.runs, "--format", "json"]
    return json.loads(run(words, args.seconds))["points"][0]


def measured(function, *words):
    """A result, or an object with the reason why there is none."""
    begin = time.monotonic()
    try:
        result = function(*words)
    except (RuntimeError, OSError, ValueError, IndexError, KeyError) as error:
        result = {"error": str(error)}
    return {**result, "seconds": round(time.monotonic() - begin, 1)}


def row(name, theirs, ours):
    """Returns a line of the table."""
    speed = theirs.get("tok_per_s")
    mine = ours.get("decode_tok_per_s", {}).get("median")
    return (f"| {name} | {f'{speed:.1f}' if speed else '-'} | {theirs.get('how') or theirs['error']} | {BESIDE[name][0]} | "
            f"{f'{mine:.1f}' if mine else ours['error']} | {f'{mine / speed:.2f}' if mine and speed else '-'} |")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tenon", default=str(ROOT / "build/release/bin/tenon"), help="the program")
    parser.add_argument("--python", default=sys.executable, help="an interpreter that has torch, transformers, bitsandbytes and torchao")
    parser.add_argument("--peers", default=",".join(BESIDE), help="of " + ", ".join(BESIDE))
    parser.add_argument("--model", default="llama-2-7b", help="a shape that both know: torch_decode.py's SHAPES")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--prompt-tokens", type=int, default=16)
    parser.add_argument("--new-tokens", type=int, default=200)
    parser.add_argument("--runs", type=int, default=3, help="of which the median counts")
    parser.add_argument("--seconds", type=float, default=300, help="for one program at most")
    parser.add_argument("--json", type=pathlib.Path, help="write all that was measured to this file")
    args = parser.parse_args()
    unknown = [name for name in args.peers.split(",") if name not in BESIDE]
    if unknown:
        parser.error(f"--peers has {', '.join(unknown)}; known are {', '.join(BESIDE)}")
    return args


def main():
    args, all_of_it = arguments(), {}
    print("| peer | tok/s | how | Tenon's scheme | tok/s | ratio |\n|---|---|---|---|---|---|", flush=True)
    for name in args.peers.split(","):
        all_of_it[name] = {"peer": measured(peer, args, name), "tenon": measured(tenon, args, name)}
        print(row(name, all_of_it[name]["peer"], all_of_it[name]["tenon"]), flush=True)
        if args.json:
            args.json.write_text(json.dumps(all_of_it, indent=1) + "\n")
    return 1 if any("error" in result for pair in all_of_it.values() for result in pair.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
