#!/usr/bin/env python3
"""serve_beside_llama.py TENON MODEL.gguf [--llama LLAMA_SERVER] [--clients 1,2,4,...] [--pairs N] [--prefix "chrt -r 5"]

`tenon serve` and llama.cpp's llama-server in turns, so that what else the machine does meets both: for each number of clients
N pairs of runs, each of a fresh server. A client streams one completion after another: greedy, 64 new tokens after a prompt of
some 64 that has no beginning in common with another. Of Tenon also what its connections cost: the processor time of the threads
that compute nothing, which other work on the machine does not change. Last the time to the first token, alone and where
requests come at random at half the rate of the fullest run. Lines of CSV on standard output, and lines that sum up."""
import argparse
import http.client
import json
import pathlib
import random
import socket
import statistics
import subprocess
import sys
import threading
import time

WORDS = ("river stone cloud winter copper garden signal harbor engine letter window mountain silver shadow market "
         "thunder candle forest bridge mirror").split()
PROMPT_WORDS, NEW_TOKENS = 48, 64


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Server:
    """This is either server, ready when the block begins. It takes `slots` requests at once."""

    def __init__(self, args, which, slots):
        self.port = free_port()
        if which == "tenon":
            command = [args.tenon, "serve", args.model, "--port", str(self.port), "--threads", str(args.threads),
                       "--max-waiting", "1000", "--set", f"scheduler.sequences={slots}", "--set", "kv_cache.capacity=256"]
        else:
            command = [args.llama, "-m", args.model, "--port", str(self.port), "-t", str(args.threads), "-tb",
                       str(args.threads), "-np", str(slots), "-c", str(256 * slots), "--no-webui"]
        self.threads = args.threads
        self.process = subprocess.Popen(args.prefix.split() + command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def __enter__(self):
        for _ in range(1200):
            try:
                own = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
                own.request("GET", "/health")
                if own.getresponse().status == 200:
                    break
            except OSError:
                pass
            if self.process.poll() is not None:
                raise SystemExit(f"{self.process.args} ended with {self.process.returncode}")
            time.sleep(0.1)
        self.ask(random.Random(0))  # what is done once is done
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()

    def ask(self, rng):
        """Returns the seconds to the first token, and to the last."""
        body = {"prompt": " ".join(rng.choice(WORDS) for _ in range(PROMPT_WORDS)), "max_tokens": NEW_TOKENS, "stream": True,
                "temperature": 0, "ignore_eos": True}
        start = time.perf_counter()
        own = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        own.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        response = own.getresponse()
        if response.status != 200:
            raise SystemExit(f"answered {response.status}: {response.read()[:300]}")
        first = None
        while line := response.readline():
            if first is None and line.startswith(b"data: {"):
                first = time.perf_counter() - start
        own.close()
        return first, time.perf_counter() - start

    def connections_share(self):
        """Returns, of the processor time, what threads took that do not compute: all but those that took the most."""
        seconds = []
        for stat in pathlib.Path(f"/proc/{self.process.pid}/task").glob("*/stat"):
            fields = stat.read_text().rsplit(") ", 1)[1].split()
            seconds.append(int(fields[11]) + int(fields[12]))
        seconds.sort(reverse=True)
        return sum(seconds[self.threads:]) / max(1, sum(seconds))


def throughput(server, clients, seconds):
    """Returns new tokens a second of requests that follow each other, and the median time to the first token."""
    firsts, until, start = [], time.perf_counter() + seconds, time.perf_counter()

    def client(seed):
        rng = random.Random(seed)
        while time.perf_counter() < until:
            firsts.append(server.ask(rng)[0])

    threads = [threading.Thread(target=client, args=(time.time_ns() + i,)) for i in range(clients)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return len(firsts) * NEW_TOKENS / (time.perf_counter() - start), statistics.median(firsts)


def first_token_at(server, rate, seconds):
    """Returns the median time to the first token of requests that come at random, so many a second."""
    firsts, threads, rng = [], [], random.Random(time.time_ns())
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        t = threading.Thread(target=lambda seed: firsts.append(server.ask(random.Random(seed))[0]), args=(time.time_ns(),))
        t.start()
        threads.append(t)
        time.sleep(rng.expovariate(rate))
    for t in threads:
        t.join()
    return statistics.median(firsts)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tenon")
    parser.add_argument("model")
    parser.add_argument("--llama", default="", help="the program; without it Tenon is measured alone")
    parser.add_argument("--prefix", default="", metavar="WORDS", help='before both servers, such as "chrt -r 5"')
    parser.add_argument("--clients", default="1,2,4,8,16,32")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    counts = [int(n) for n in args.clients.split(",")]
    servers = ["tenon", "llama"] if args.llama else ["tenon"]
    rates = {}
    print("what,clients,server,tok_per_s,first_token_ms,connections", flush=True)
    for n in counts:
        for _ in range(args.pairs):
            for which in servers:
                with Server(args, which, n) as server:
                    rate, first = throughput(server, n, args.seconds)
                    share = f"{100 * server.connections_share():.2f} %" if which == "tenon" else ""
                rates.setdefault((n, which), []).append(rate)
                print(f"throughput,{n},{which},{rate:.1f},{first * 1e3:.1f},{share}", flush=True)
        medians = [statistics.median(rates[n, which]) for which in servers]
        ratios = [a / b for a, b in zip(rates[n, "tenon"], rates[n, servers[-1]])]
        print(f"# {n} clients: {' and '.join(f'{m:.0f}' for m in medians)} tok/s, ratios of the pairs "
              f"{', '.join(f'{r:.2f}' for r in ratios)}", flush=True)
    slots = counts[-1]
    for _ in range(args.pairs):
        for which in servers:
            half = statistics.median(rates[slots, which]) / NEW_TOKENS / 2
            with Server(args, which, slots) as server:
                alone = statistics.median(server.ask(random.Random(i))[0] for i in range(10))
                loaded = first_token_at(server, half, 2 * args.seconds)
            print(f"# first token of {which}: {alone * 1e3:.1f} ms alone, {loaded * 1e3:.1f} ms at {half:.2f} requests a second, "
                  f"{loaded / alone:.2f} times", flush=True)


if __name__ == "__main__":
    sys.exit(main())
