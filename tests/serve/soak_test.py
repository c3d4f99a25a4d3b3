#!/usr/bin/env python3
"""soak_test.py TENON SOURCE [--requests N] [--clients N] [--seed N]: clients of all kinds, at random.

Each of N requests is, by the seed, an ordinary one, one that streams, one whose client goes away, one that is no JSON or
states nonsense, or one whose client reads slowly. In the end every admitted request has ended, no slot is held, and the
server takes no more memory than after the first third."""
import argparse
import json
import pathlib
import random
import socket
import sys
import tempfile
import threading
import time

from server import Server, make_model

GROWTH_KIB = 24 << 10  # that the second and third part may add: what allocators keep
NONSENSE = [b"{", b"[]", b"\xff\xfe", b'{"prompt": 1}', b'{"prompt": "x", "n": -1}', b'{"prompt": "x", "what": 1}',
            b'{"prompt": [[]]}', b'{"prompt": "x", "logit_bias": {"a": 1}}', b'{"messages": [{}]}', b"\0" * 1000]


def resident_kib(process):
    for line in pathlib.Path(f"/proc/{process.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])


def http_post(path, body):
    return b"POST %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (path, len(body), body)


class Client(threading.Thread):
    def __init__(self, server, seed, take):
        super().__init__()
        self.server, self.random, self.take = server, random.Random(seed), take
        self.counts, self.problems = {}, []

    def run(self):
        while self.take():
            kind = self.random.choice(["whole", "whole", "stream", "leaves", "leaves", "nonsense", "slow", "halves"])
            self.counts[kind] = self.counts.get(kind, 0) + 1
            try:
                getattr(self, kind)()
            except Exception as e:  # a client's thread that dies would look like success
                self.problems.append(f"{kind}: {e!r}")
            time.sleep(self.random.random() * 0.01)

    def body(self, **fields):
        r = self.random
        fields.update(max_tokens=r.randrange(1, 80), n=r.choice([1, 1, 1, 2, 4]), seed=r.randrange(1000),
                      temperature=r.choice([0, 0.5, 1]), ignore_eos=r.random() < 0.5)
        if r.random() < 0.2:
            fields["logprobs"] = r.randrange(4)
        if r.random() < 0.2:
            fields["stop"] = ["e", "the"]
        fields["prompt"] = "word " * r.choice([1, 5, 50, 150])
        return json.dumps(fields).encode()

    def send(self, body):
        s = self.server.socket(300)
        s.sendall(http_post(b"/v1/completions", body))
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

    def slow(self):
        self.check(self.read(self.send(self.body(stream=True)), 0.005), b"data: [DONE]")

    def leaves(self):
        s = self.send(self.body(stream=self.random.random() < 0.5))
        time.sleep(self.random.random() * 0.05)
        if self.random.random() < 0.5:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # a reset
        s.close()

    def halves(self):
        """A request that comes in pieces, or never as a whole."""
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


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tenon")
    parser.add_argument("source")
    parser.add_argument("--requests", type=int, default=1500)
    parser.add_argument("--clients", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    left, lock = [0], threading.Lock()

    def take():
        with lock:
            left[0] -= 1
            return left[0] >= 0

    problems = []
    with tempfile.TemporaryDirectory() as folder, \
            Server(args.tenon, make_model(args.source, folder), ["kv_cache.capacity=1024", "scheduler.sequences=6"],
                   ["--max-waiting", "40"]) as server:
        resident = []
        for part in range(3):
            left[0] = args.requests // 3
            clients = [Client(server, args.seed * 1000 + part * 100 + i, take) for i in range(args.clients)]
            for c in clients:
                c.start()
            for c in clients:
                c.join()
            problems += [p for c in clients for p in c.problems]
            counts = {}
            for c in clients:
                for kind, n in c.counts.items():
                    counts[kind] = counts.get(kind, 0) + n
            for _ in range(1200):  # those whose clients have left end with the next step
                metrics = server.metrics()
                if metrics["vllm:num_requests_running"] + metrics["vllm:num_requests_waiting"] == 0:
                    break
                time.sleep(0.05)
            resident.append(resident_kib(server.process))
            ended = {r: int(metrics[r]) for r in ["stop", "length", "abort", "error"]}
            print(f"part {part}: {counts}, answers that ended: {ended}, resident {resident[-1]} KiB", flush=True)
            for name in ["vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc"]:
                if metrics[name] != 0:
                    problems.append(f"{name} is {metrics[name]} with nobody there")
        if metrics["vllm:e2e_request_latency_seconds_count"] != sum(ended.values()):
            problems.append("the metrics count answers differently")
        if resident[2] - resident[0] > GROWTH_KIB:
            problems.append(f"memory grew: {resident} KiB")
        code = server.end()
        if code != 0:
            problems.append(f"the server ended with {code}")
    for problem in problems[:20]:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
