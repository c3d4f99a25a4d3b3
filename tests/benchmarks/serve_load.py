#!/usr/bin/env python3
"""serve_load.py URL [--requests N] [--rate R] [--prompt-tokens P] [--new-tokens T]

Loads any server of OpenAI's completions: N prompts of P random tokens, each answered with T tokens that are streamed. With
--rate requests come at random, R a second at the mean, otherwise all at once. Prints requests and new tokens a second, the time
to the first token, the time for each token
after it, and how many pieces the answer in the fewest pieces had."""
import argparse
import asyncio
import json
import random
import statistics
import sys
import time
import urllib.parse


class Answer:
    def __init__(self):
        self.start = self.first = self.last = 0.0
        self.pieces = 0


async def ask(args, url, tokens):
    """One request on a connection of its own, as a client sees it."""
    answer = Answer()
    body = {"prompt": tokens, "max_tokens": args.new_tokens, "stream": True, "temperature": args.temperature, "ignore_eos": True}
    if args.model:
        body["model"] = args.model
    text = json.dumps(body).encode()
    answer.start = time.perf_counter()
    reader, writer = await asyncio.open_connection(url.hostname, url.port, limit=1 << 20)
    writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: load\r\nContent-Type: application/json\r\nConnection: close\r\n"
                 b"Content-Length: %d\r\n\r\n" % len(text) + text)
    status = await reader.readline()
    if b" 200 " not in status:
        raise SystemExit(f"answered {status!r}: {(await reader.read(2000))!r}")
    while line := await reader.readline():
        if line.startswith(b"data: {") and b'"choices":[{' in line:
            answer.last = time.perf_counter()
            answer.first = answer.first or answer.last
            answer.pieces += 1
        elif line.startswith(b"data: [DONE]"):
            break
    writer.close()
    return answer


async def load(args):
    url = urllib.parse.urlparse(args.url)
    rng = random.Random(args.seed)
    prompts = [[rng.randrange(args.vocabulary) for _ in range(args.prompt_tokens)] for _ in range(args.requests)]
    start, tasks = time.perf_counter(), []
    for prompt in prompts:
        tasks.append(asyncio.create_task(ask(args, url, prompt)))
        if args.rate > 0:
            await asyncio.sleep(rng.expovariate(args.rate))
    answers = await asyncio.gather(*tasks)
    return answers, time.perf_counter() - start


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", help="such as http://127.0.0.1:8000")
    parser.add_argument("--model", default="", help="the name that the server knows it by; Tenon needs none")
    parser.add_argument("--requests", type=int, default=500)
    parser.add_argument("--rate", type=float, default=0, help="requests a second; 0: all at once")
    parser.add_argument("--prompt-tokens", type=int, default=512)
    parser.add_argument("--new-tokens", type=int, default=128)
    parser.add_argument("--vocabulary", type=int, default=32000)
    parser.add_argument("--temperature", type=float, default=0)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    answers, seconds = asyncio.run(load(args))
    firsts = [1e3 * (a.first - a.start) for a in answers]
    each = [1e3 * (a.last - a.first) / (args.new_tokens - 1) for a in answers]
    print(f"{args.requests} requests, {args.prompt_tokens} + {args.new_tokens} tokens, "
          f"{f'{args.rate:g} a second' if args.rate > 0 else 'all at once'}: {seconds:.2f} s, "
          f"{args.requests / seconds:.2f} requests/s, {args.requests * args.new_tokens / seconds:.0f} new tok/s")
    for name, values in (("first token", firsts), ("a token after", each)):
        print(f"  {name}: mean {statistics.mean(values):.2f} ms, median {statistics.median(values):.2f}, p99 {percentile(values, 0.99):.2f}")
    fewest = min(a.pieces for a in answers)
    print(f"  pieces of an answer: {fewest} at the fewest")


if __name__ == "__main__":
    sys.exit(main())
