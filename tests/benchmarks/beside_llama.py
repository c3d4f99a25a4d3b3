#!/usr/bin/env python3
"""Tenon beside llama.cpp on the same machine, files and threads: prompt and decode speed, resident memory, time to the first token.

    beside_llama.py --llama BUILD/bin [--tenon PATH] [--threads 2] FILE.gguf ...

Both programs take turns, a run of one and a run of the other, with the order reversed every second time; figures are medians
over --runs. Each run is a process of its own that warms up before it times anything:

  prompt  tok/s over --prompt tokens, from an empty cache
  decode  tok/s over --new tokens after --depth tokens (llama-bench -d; Tenon reads a prompt of that length, 1 at least)
  first   seconds from the start of the process to the first byte of text, prompt of --text; the page cache is warm
  memory  the most that process had resident (ru_maxrss), cache room for --room tokens, --first-new tokens generated

The ratio is Tenon's figure by llama.cpp's for speeds, llama.cpp's by Tenon's for time and memory: above 1, Tenon is better.
Needs llama-bench and llama-completion of llama.cpp, and a Tenon whose plugins it finds. Exit status: 0 measured, 1 a program
failed, 2 the command line or a missing program.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

MEASURES = {"prompt": ("tok/s", 1), "decode": ("tok/s", 1), "first": ("s", -1), "memory": ("MB", -1)}


class Failed(Exception):
    pass


def parse(argv):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], epilog="\n".join(__doc__.splitlines()[2:]),
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", metavar="FILE", help="GGUF files, read by both")
    parser.add_argument("--llama", required=True, metavar="DIR", help="the folder of llama-bench and llama-completion")
    parser.add_argument("--tenon", default="build/release/bin/tenon", metavar="PATH", help="the program (%(default)s)")
    parser.add_argument("--threads", type=positive, default=2, help="of each program (%(default)s)")
    parser.add_argument("--prompt", type=positive, default=512, help="tokens of the prompt (%(default)s)")
    parser.add_argument("--new", type=positive, default=128, help="tokens to decode (%(default)s)")
    parser.add_argument("--depth", type=int, default=0, help="tokens in the cache before decoding (%(default)s)")
    parser.add_argument("--runs", type=positive, default=5, help="of each program and measure (%(default)s)")
    parser.add_argument("--text", default="The capital of France is", help="prompt of first and memory (%(default)r)")
    parser.add_argument("--first-new", type=positive, default=64, metavar="N", help="tokens generated there (%(default)s)")
    parser.add_argument("--room", type=positive, default=512, help="tokens that the cache has room for there (%(default)s)")
    parser.add_argument("--only", default=",".join(MEASURES), metavar="LIST", help="of %(default)s")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="for Tenon (repeatable)")
    parser.add_argument("--prefix", default="", metavar="WORDS", help='before every command, such as "chrt -r 5"')
    parser.add_argument("--json", metavar="PATH", help="also write every sample there")
    args = parser.parse_args(argv)
    args.only = args.only.split(",")
    unknown = [name for name in args.only if name not in MEASURES]
    if unknown:
        parser.error(f"--only {','.join(unknown)}: known are {', '.join(MEASURES)}")
    if args.depth < 0:
        parser.error("--depth must be 0 or more")
    programs = {"--llama": [pathlib.Path(args.llama) / name for name in ("llama-bench", "llama-completion")],
                "--tenon": [pathlib.Path(args.tenon)]}
    for option, paths in programs.items():
        for path in paths:
            if not (path.is_file() and os.access(path, os.X_OK)):
                parser.error(f"{option}: {path} is no program; llama.cpp builds it as target {path.name}"
                             if option == "--llama" else f"{option}: {path} is no program; build it or name another")
    for file in args.files:
        if not pathlib.Path(file).is_file():
            parser.error(f"{file}: no such file")
    return args


def positive(text):
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return value


def run(args, command):
    """A process's standard output, the seconds to its first byte, and the most memory it had resident, in MB."""
    words = args.prefix.split() + [str(word) for word in command]
    with tempfile.TemporaryFile() as errors:
        start = time.monotonic()
        child = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors)
        output = child.stdout.read(1)
        seconds = time.monotonic() - start
        output += child.stdout.read()
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode != 0 or not output:
            errors.seek(0)
            tail = errors.read().decode(errors="replace").strip().splitlines()[-5:]
            raise Failed(f"{' '.join(words)}\nended with {child.returncode}" + "".join(f"\n  {line}" for line in tail))
    return output.decode(errors="replace"), seconds, usage.ru_maxrss * 1024 / 1e6


def settings(args):
    return [word for value in args.set for word in ("--set", value)]


def tenon_bench(args, file, prompt, new):
    command = [args.tenon, "bench", file, "--threads", args.threads, "--prompt-tokens", prompt, "--new-tokens", new,
               "--warmups", 1, "--runs", 1, "--format", "json", *settings(args)]
    return json.loads(run(args, command)[0])["points"][0]


def llama_bench(args, file, prompt, new, depth):
    command = [pathlib.Path(args.llama) / "llama-bench", "-m", file, "-t", args.threads, "-p", prompt, "-n", new, "-d", depth,
               "-r", 1, "-o", "json"]
    return json.loads(run(args, command)[0])[0]["avg_ts"]


def tenon_sample(args, file, measure):
    if measure == "prompt":
        return {measure: tenon_bench(args, file, args.prompt, 1)["prefill_tok_per_s"]["median"]}
    if measure == "decode":
        return {measure: tenon_bench(args, file, max(args.depth, 1), args.new)["decode_tok_per_s"]["median"]}
    _, first, memory = run(args, [args.tenon, "generate", file, "--threads", args.threads, "--prompt", args.text,
                                  "--max-new-tokens", args.first_new, "--ignore-end", "--quiet",
                                  "--set", f"kv_cache.capacity={args.room}", "--set", "sampler.chain=[]",
                                  "--set", "sampler.select=greedy", *settings(args)])
    return {"first": first, "memory": memory}


def llama_sample(args, file, measure):
    if measure == "prompt":
        return {measure: llama_bench(args, file, args.prompt, 0, 0)}
    if measure == "decode":
        return {measure: llama_bench(args, file, 0, args.new, args.depth)}
    _, first, memory = run(args, [pathlib.Path(args.llama) / "llama-completion", "-m", file, "-t", args.threads, "-p", args.text,
                                  "-n", args.first_new, "-c", args.room, "--ignore-eos", "--temp", 0, "-no-cnv",
                                  "--no-display-prompt", "--simple-io"])
    return {"first": first, "memory": memory}


def measure_file(args, file):
    """Returns samples by measure and program."""
    samples = {name: {"tenon": [], "llama": []} for name in args.only}
    kinds = [kind for kind in ("prompt", "decode", "first") if kind in samples or (kind == "first" and "memory" in samples)]
    for kind in kinds:
        for turn in range(args.runs):
            programs = [("tenon", tenon_sample), ("llama", llama_sample)]
            for program, sample in programs if turn % 2 == 0 else reversed(programs):
                for name, value in sample(args, file, kind).items():
                    if name in samples:
                        samples[name][program].append(value)
    return samples


def main(argv):
    args = parse(argv)
    print(f"{args.threads} threads, medians of {args.runs}; prompt of {args.prompt}, {args.new} new tokens at a depth of "
          f"{args.depth}; cache room for {args.room} and {args.first_new} new tokens in first and memory\n")
    print("| file | measure | Tenon | llama.cpp | ratio |\n|---|---|---|---|---|", flush=True)
    everything = {}
    for file in args.files:
        try:
            samples = everything[file] = measure_file(args, file)
        except Failed as failure:
            print(f"beside_llama.py: {failure}", file=sys.stderr)
            return 1
        for name in args.only:
            unit, better = MEASURES[name]
            ours, theirs = (statistics.median(samples[name][program]) for program in ("tenon", "llama"))
            ratio = (ours / theirs) ** better
            print(f"| {pathlib.Path(file).name} | {name}, {unit} | {ours:.4g} | {theirs:.4g} | {ratio:.2f} |", flush=True)
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps({"arguments": vars(args), "samples": everything}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
