#!/usr/bin/env python3
"""serve_load.py URL [--requests N] [--rate R | --clients C] [--processes P] [--json PATH]

Loads any server of OpenAI's completions: N prompts of random tokens, each answered with as many new tokens as asked for, which
are streamed. With --rate requests come at random, R a second at the mean; with --clients C of them are under way at a time;
otherwise all come at once. Prints requests and new tokens a second, the time to the first token, the time for each token after
it, the time of whole answers, and what the clients took of a processor: near 100 % they were the limit, and more --processes
share the load. The same seed gives the same prompts at the same times, whatever the number of processes."""
import argparse
import asyncio
import dataclasses
import itertools
import json
import multiprocessing
import pathlib
import random
import re
import statistics
import sys
import time
import urllib.parse

COMPLETION_TOKENS = re.compile(rb'"completion_tokens": ?(\d+)')


@dataclasses.dataclass
class Answer:
    start: float = 0.0  # seconds of the system's monotonic clock, which all processes share
    first: float = 0.0
    last: float = 0.0
    pieces: int = 0
    tokens: int = 0  # as the server counts them


@dataclasses.dataclass
class Share:
    """This is what one process did."""
    answers: list
    start: float
    end: float
    cpu: float  # seconds


class Stream(asyncio.Protocol):
    """This is one request on a connection of its own; `done` gets its answer."""

    def __init__(self, request):
        self.request = request
        self.done = asyncio.get_running_loop().create_future()
        self.answer = Answer(start=time.perf_counter())
        self.transport, self.status, self.rest, self.said = None, b"", b"", b""

    def connection_made(self, transport):
        self.transport = transport
        transport.write(self.request)

    def data_received(self, data):
        now = time.perf_counter()
        lines = (self.rest + data).split(b"\n")
        self.rest = lines.pop()
        for line in lines:
            self.status = self.status or line
            if b" 200 " not in self.status or line.startswith(b'data: {"error"'):
                self.said += line + b"\n"
            elif line.startswith(b"data: [DONE]"):
                self.end(whole=True)
            elif line.startswith(b"data: {") and b'"choices":[{' in line:
                self.answer.first = self.answer.first or now
                self.answer.last = now
                self.answer.pieces += 1
            if counted := COMPLETION_TOKENS.search(line):
                self.answer.tokens = int(counted[1])

    def connection_lost(self, _):
        self.end(whole=False)

    def end(self, whole):
        if self.done.done():
            return
        self.transport.close()
        if whole and self.answer.tokens > 0:
            self.done.set_result(self.answer)
        else:
            said = (self.said + self.rest).decode(errors="replace").strip()[:2000] or f"{self.answer.pieces} pieces of text, without usage or end"
            self.done.set_exception(RuntimeError(f"the server answered: {said}"))


def request_of(args, url, prompt):
    body = {"prompt": prompt, "max_tokens": args.new_tokens, "stream": True, "stream_options": {"include_usage": True},
            "temperature": args.temperature, "ignore_eos": True}
    if args.model:
        body["model"] = args.model
    text = json.dumps(body).encode()
    head = (f"POST {url.path.rstrip('/')}/v1/completions HTTP/1.1\r\nHost: {url.netloc}\r\nContent-Type: application/json\r\n"
            f"Connection: close\r\nContent-Length: {len(text)}\r\n\r\n")
    return head.encode() + text


def requests_of(args, url, which):
    """(seconds after the start, the request) of each that this process sends."""
    rng = random.Random(args.seed)
    when = 0.0
    for i in range(args.requests):
        prompt = [rng.randrange(args.vocabulary) for _ in range(args.prompt_tokens)]
        if i % args.processes == which:
            yield when, request_of(args, url, prompt)
        when += rng.expovariate(args.rate) if args.rate > 0 else 0.0


async def ask(url, request):
    _, stream = await asyncio.get_running_loop().create_connection(lambda: Stream(request), url.hostname, url.port)
    return await stream.done


async def ask_at(url, begin, when, request):
    await asyncio.sleep(begin + when - time.perf_counter())
    return await ask(url, request)


async def ask_in_turn(url, requests):
    return [await ask(url, request) for _, request in requests]


async def load(args, url, which, requests):
    begin = time.perf_counter()
    if args.clients > 0:
        mine, waiting = args.clients // args.processes + (which < args.clients % args.processes), iter(requests)
        answers = itertools.chain(*await asyncio.gather(*(ask_in_turn(url, waiting) for _ in range(mine))))
    else:
        answers = await asyncio.gather(*(ask_at(url, begin, when, request) for when, request in requests))
    return Share(list(answers), begin, time.perf_counter(), 0)


def run_share(args, which, all_ready, results):
    url = urllib.parse.urlparse(args.url)
    requests = list(requests_of(args, url, which))
    all_ready.wait()
    cpu = time.process_time()
    try:
        share = asyncio.run(load(args, url, which, requests))
        share.cpu = time.process_time() - cpu
        results.put(share)
    except (RuntimeError, OSError) as error:
        results.put(error)


def run_all(args):
    all_ready, results = multiprocessing.Barrier(args.processes), multiprocessing.Queue()
    processes = [multiprocessing.Process(target=run_share, args=(args, which, all_ready, results), daemon=True)
                 for which in range(args.processes)]
    for process in processes:
        process.start()
    shares = []
    for _ in processes:
        shares.append(results.get())
        if isinstance(shares[-1], Exception):
            raise SystemExit(str(shares[-1]))
    for process in processes:
        process.join()
    return shares


def percentile(values, share):
    """What lies between two values is interpolated."""
    ordered, place = sorted(values), share * (len(values) - 1)
    low = int(place)
    return ordered[low] + (place - low) * (ordered[min(low + 1, len(ordered) - 1)] - ordered[low])


def spread(values):
    return {"mean": statistics.mean(values), "median": statistics.median(values), "p90": percentile(values, 0.9),
            "p99": percentile(values, 0.99)}


def result_of(args, shares):
    answers = [answer for share in shares for answer in share.answers]
    seconds = max(share.end for share in shares) - min(share.start for share in shares)
    tokens = sum(answer.tokens for answer in answers)
    return {"requests": len(answers), "prompt_tokens": args.prompt_tokens, "new_tokens": args.new_tokens, "rate": args.rate,
            "clients": args.clients, "processes": args.processes, "seed": args.seed, "seconds": seconds,
            "requests_per_s": len(answers) / seconds, "new_tok_per_s": tokens / seconds,
            "first_token_ms": spread([1e3 * (a.first - a.start) for a in answers]),
            "token_after_ms": spread([1e3 * (a.last - a.first) / max(1, a.tokens - 1) for a in answers]),
            "answer_ms": spread([1e3 * (a.last - a.start) for a in answers]), "fewest_pieces": min(a.pieces for a in answers),
            "fewest_tokens": min(a.tokens for a in answers),
            "client_cpu_share": max(share.cpu / (share.end - share.start) for share in shares)}


def print_result(args, result):
    how = f"{args.rate:g} a second" if args.rate > 0 else f"{args.clients} at a time" if args.clients > 0 else "all at once"
    print(f"{result['requests']} requests, {args.prompt_tokens} + {args.new_tokens} tokens, {how}: {result['seconds']:.2f} s, "
          f"{result['requests_per_s']:.2f} requests/s, {result['new_tok_per_s']:.0f} new tok/s")
    for name, key in (("first token", "first_token_ms"), ("a token after", "token_after_ms"), ("answer", "answer_ms")):
        print(f"  {name}: mean {result[key]['mean']:.2f} ms, median {result[key]['median']:.2f}, p90 {result[key]['p90']:.2f}, "
              f"p99 {result[key]['p99']:.2f}")
    print(f"  at the fewest {result['fewest_tokens']} tokens in {result['fewest_pieces']} pieces; "
          f"clients: {100 * result['client_cpu_share']:.0f} % of a processor at the most, of {args.processes} processes")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", help="such as http://127.0.0.1:8000")
    parser.add_argument("--model", default="", help="the name that the server knows it by; Tenon needs none")
    parser.add_argument("--requests", type=int, default=500)
    parser.add_argument("--rate", type=float, default=0, help="requests a second; 0: all at once")
    parser.add_argument("--clients", type=int, default=0, help="so many requests are under way at a time; 0: as many as there are")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--prompt-tokens", type=int, default=512)
    parser.add_argument("--new-tokens", type=int, default=128)
    parser.add_argument("--vocabulary", type=int, default=32000)
    parser.add_argument("--temperature", type=float, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=pathlib.Path, help="write the result to this file, too")
    args = parser.parse_args()
    if args.rate > 0 and args.clients > 0:
        parser.error("--rate and --clients are two ways to load a server; give one of them")
    most = min(args.requests, args.clients or args.requests)
    if not 1 <= args.processes <= most:
        parser.error(f"--processes is {args.processes}; expected 1 to {most}, so that each has something to ask")
    return args


def main():
    args = arguments()
    result = result_of(args, run_all(args))
    print_result(args, result)
    if args.json:
        args.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
