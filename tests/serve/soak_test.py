#!/usr/bin/env python3
"""soak_test.py TENON SOURCE [--seconds N] [--clients N] [--seed N]: clients of all kinds, at random, for a time.

N seconds, by default TENON_SOAK_SECONDS or 60. Each request comes at a random time and is, by the seed, an ordinary one, one
that streams, one whose client goes away, one for embeddings, one that is no JSON or states nonsense, one that comes in
pieces, or one whose client reads slowly. In the end every admitted request has ended, no slot, page, descriptor or thread is
held, the server takes no more memory than after the first third, and it answers as it did at first."""
import argparse
import json
import os
import pathlib
import random
import socket
import sys
import tempfile
import threading
import time

from server import Server, make_model

GROWTH_KIB = 24 << 10  # that the second and third part may add: what allocators keep
PAUSE = 0.02  # seconds between a client's requests, on average
KINDS = ["whole", "whole", "stream", "embeds", "leaves", "leaves", "nonsense", "slow", "halves"]
NONSENSE = [b"{", b"[]", b"\xff\xfe", b'{"prompt": 1}', b'{"prompt": "x", "n": -1}', b'{"prompt": "x", "what": 1}',
            b'{"prompt": [[]]}', b'{"prompt": "x", "logit_bias": {"a": 1}}', b'{"messages": [{}]}', b"\0" * 1000]


def resident_kib(process):
    for line in pathlib.Path(f"/proc/{process.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])


def held(process):
    """Returns descriptors and threads."""
    return [len(os.listdir(f"/proc/{process.pid}/{name}")) for name in ["fd", "task"]]


def http_post(path, body):
    return b"POST %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (path, len(body), body)


class Client(threading.Thread):
    def __init__(self, server, seed, until):
        super().__init__()
        self.server, self.random, self.until = server, random.Random(seed), until
        self.counts, self.problems = {}, []

    def run(self):
        while time.monotonic() < self.until:
            time.sleep(self.random.expovariate(1 / PAUSE))
            kind = self.random.choice(KINDS)
            self.counts[kind] = self.counts.get(kind, 0) + 1
            try:
                getattr(self, kind)()
            except Exception as e:  # a client's thread that dies would look like success
                self.problems.append(f"{kind}: {e!r}")

    def body(self, **fields):
        r = self.random
        fields.update(max_tokens=r.randrange(1, 80), n=r.choice([1, 1, 1, 2, 4]), seed=r.randrange(1000),
                      temperature=r.choice([0, 0.5, 1]), ignore_eos=r.random() < 0.5)
        if r.random() < 0.2:
            fields["logprobs"] = r.randrange(4)
        if r.random() < 0.2:
            fields["stop"] = ["e", "the"]
        fields["user"] = str(r.randrange(5))
        fields["priority"] = r.choice([0, 0, 0, 1])
        fields["prompt"] = "word " * r.choice([1, 5, 50, 150])
        return json.dumps(fields).encode()

    def send(self, body, path=b"/v1/completions"):
        s = self.server.socket(300)
        s.sendall(http_post(path, body))
        return s

    def read(self, s, pause=0.0):
        answer = b""
        while more := s.recv(2048 if pause else 65536):
            answer += more
            time.sleep(pause)
        s.close()
        return answer

    def check(self, answer, end):
        if answer.startswith(b"HTTP/1.1 429 "):
            self.counts["429"] = self.counts.get("429", 0) + 1
        elif not answer.startswith(b"HTTP/1.1 200 ") or end not in answer[-200:]:
            self.problems.append(f"answered {answer[:300]!r} ... {answer[-100:]!r}")

    def whole(self):
        self.check(self.read(self.send(self.body())), b'"usage":')

    def stream(self):
        self.check(self.read(self.send(self.body(stream=True))), b"data: [DONE]")

    def embeds(self):
        texts = ["word " * self.random.choice([1, 20, 150]) for _ in range(self.random.choice([1, 1, 5]))]
        body = {"input": texts, "encoding_format": self.random.choice(["float", "base64"])}
        self.check(self.read(self.send(json.dumps(body).encode(), b"/v1/embeddings")), b'"usage":')

    def slow(self):
        self.check(self.read(self.send(self.body(stream=True)), 0.005), b"data: [DONE]")

    def leaves(self):
        s = self.send(self.body(stream=self.random.random() < 0.5))
        time.sleep(self.random.random() * 0.05)
        if self.random.random() < 0.5:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # a reset
        s.close()

    def halves(self):
        """Sends a request that comes in pieces, or never as a whole."""
        whole = http_post(b"/v1/completions", self.body())
        with self.server.socket(300) as s:
            for _ in range(3):
                at = self.random.randrange(len(whole) + 1)
                s.sendall(whole[:at])
                whole = whole[at:]
                time.sleep(0.005)

    def nonsense(self):
        body = self.random.choice(NONSENSE)
        answer = self.read(self.send(body))
        if not answer.startswith(b"HTTP/1.1 400 ") or b'"error"' not in answer:
            self.problems.append(f"{body!r} is answered {answer[:300]!r}")


def run_part(server, seed, clients, seconds):
    """Runs clients for so long, and then until the server has nothing left to do: counts by kind, problems, metrics."""
    until = time.monotonic() + seconds
    threads = [Client(server, seed + i, until) for i in range(clients)]
    for c in threads:
        c.start()
    for c in threads:
        c.join()
    counts = {}
    for c in threads:
        for kind, n in c.counts.items():
            counts[kind] = counts.get(kind, 0) + n
    for _ in range(1200):  # those whose clients have left end with the next step
        metrics = server.metrics()
        if metrics["vllm:num_requests_running"] + metrics["vllm:num_requests_waiting"] == 0:
            break
        time.sleep(0.05)
    problems = [p for c in threads for p in c.problems]
    for name in ["vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc"]:
        if metrics[name] != 0:
            problems.append(f"{name} is {metrics[name]} with nobody there")
    return counts, problems, metrics


def settled(server):
    """Returns descriptors and threads once connections that were left have closed."""
    now = held(server.process)
    for _ in range(200):
        time.sleep(0.2)
        before, now = now, held(server.process)
        if now == before:
            break
    return now


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tenon")
    parser.add_argument("source")
    parser.add_argument("--seconds", type=float, default=float(os.environ.get("TENON_SOAK_SECONDS", "60")))
    parser.add_argument("--clients", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    problems, resident, holds = [], [], []
    with tempfile.TemporaryDirectory() as folder, \
            Server(args.tenon, make_model(args.source, folder),
                   ["kv_cache.capacity=1024", "scheduler.sequences=6", "scheduler.fair=true"],
                   ["--max-waiting", "40", "--clients", "user"]) as server:
        known = server.complete("Once upon", max_tokens=60, temperature=0)["choices"]
        for part in range(3):
            counts, found, metrics = run_part(server, args.seed * 1000 + part * 100, args.clients, args.seconds / 3)
            problems += found
            resident.append(resident_kib(server.process))
            holds.append(settled(server))
            ended = {r: int(metrics[r]) for r in ["stop", "length", "abort", "error"]}
            print(f"part {part}: {counts}, {sum(counts.values())} requests; answers that ended so far: {ended}, "
                  f"{int(metrics['vllm:generation_tokens_total'])} tokens, "
                  f"{int(metrics['vllm:num_preemptions_total'])} pre-empted; resident {resident[-1]} KiB, "
                  f"descriptors and threads {holds[-1]}", flush=True)
        if metrics["vllm:e2e_request_latency_seconds_count"] != sum(ended.values()):
            problems.append("the metrics count answers differently")
        if resident[2] - resident[0] > GROWTH_KIB:
            problems.append(f"memory grew: {resident} KiB")
        if holds[2] != holds[0]:
            problems.append(f"descriptors and threads: {holds}")
        if server.complete("Once upon", max_tokens=60, temperature=0)["choices"] != known:
            problems.append("an answer is not what it was at first")
        code = server.end()
        if code != 0:
            problems.append(f"the server ended with {code}")
    for problem in problems[:20]:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
