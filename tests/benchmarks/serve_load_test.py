#!/usr/bin/env python3
"""serve_load_test.py SCRIPT [TENON SOURCE]: what the script asks for, when, and what it makes of the answers, with a stand-in for
the server; and that it counts all tokens of `tenon serve`, where that was built."""
import http.server
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import threading
import time
import unittest

SCRIPT, *TENON_AND_SOURCE = sys.argv[1:]
del sys.argv[1:]
WAIT = 0.02  # seconds before each piece


class StandIn(http.server.ThreadingHTTPServer):
    """Answers each request in as many pieces as it wants tokens, and keeps what it was asked for."""
    request_queue_size = 256
    daemon_threads = True

    def __init__(self, fails_from=None, tokens_short=0):
        super().__init__(("127.0.0.1", 0), Handler)
        self.lock, self.bodies, self.now, self.most = threading.Lock(), [], 0, 0
        self.fails_from, self.tokens_short = fails_from, tokens_short
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server_port}"

    def __exit__(self, *words):
        self.shutdown()
        super().__exit__(*words)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        server = self.server
        with server.lock:
            server.bodies.append((self.path, body))
            server.now += 1
            server.most = max(server.most, server.now)
            fails = server.fails_from is not None and len(server.bodies) > server.fails_from
        if fails:
            self.send_error(503, "nobody is at home")
        else:
            self.stream(body["max_tokens"], server.tokens_short)
        self.close_connection = True

    def stream(self, pieces, short):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.piece('{"choices":[]}')  # no piece of text
        for i in range(pieces):
            time.sleep(WAIT)
            if i == pieces - 1:
                with self.server.lock:
                    self.server.now -= 1
            # Two writes: an event may come in parts.
            self.piece('{"id":"x","choices":[{"index":0,"text":"' + "a" * 2000 + '"}]}', parts=2)
        self.piece('{"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":%d}}' % (pieces - short))
        self.piece("[DONE]")
        self.wfile.write(b"0\r\n\r\n")

    def piece(self, text, parts=1):
        event = f"data: {text}\n\n".encode()
        chunk = b"%x\r\n%s\r\n" % (len(event), event)
        half = len(chunk) // parts
        for part in (chunk[:half], chunk[half:]):
            self.wfile.write(part)
            self.wfile.flush()

    def log_message(self, *_):
        pass


class ServeLoad(unittest.TestCase):
    def load(self, url, *words):
        """Returns what the script printed, and its result."""
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "result.json")
            done = subprocess.run([sys.executable, SCRIPT, url, "--json", path, *map(str, words)], capture_output=True, text=True,
                                  check=False, timeout=300)
            return done, json.loads(path.read_text()) if path.exists() else None

    def test_asks_for_what_it_says(self):
        with StandIn() as server:
            done, result = self.load(server.url, "--requests", 7, "--prompt-tokens", 5, "--new-tokens", 4, "--vocabulary", 9)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(server.bodies), 7)
        for path, body in server.bodies:
            self.assertEqual(path, "/v1/completions")
            self.assertEqual(len(body["prompt"]), 5)
            self.assertTrue(all(0 <= token < 9 for token in body["prompt"]), body["prompt"])
            self.assertEqual((body["max_tokens"], body["stream"], body["temperature"], body["ignore_eos"]), (4, True, 0, True))
            self.assertNotIn("model", body)
            self.assertEqual(body["stream_options"], {"include_usage": True})
        self.assertEqual((result["requests"], result["fewest_pieces"], result["fewest_tokens"]), (7, 4, 4))
        self.assertIn("7 requests, 5 + 4 tokens, all at once", done.stdout)

    def test_times_are_those_of_the_server(self):
        with StandIn() as server:
            done, result = self.load(server.url, "--requests", 3, "--prompt-tokens", 2, "--new-tokens", 6)
        self.assertEqual(done.returncode, 0, done.stderr)
        # The server waits before each piece, so nothing can be sooner; only the last times are bounded from above, by
        # the whole run.
        self.assertGreaterEqual(result["first_token_ms"]["median"], 1e3 * WAIT)
        self.assertGreaterEqual(result["answer_ms"]["median"], 6e3 * WAIT)
        self.assertLessEqual(result["answer_ms"]["p99"], 1e3 * result["seconds"])
        self.assertAlmostEqual(result["answer_ms"]["mean"], result["first_token_ms"]["mean"] + 5 * result["token_after_ms"]["mean"], 6)
        self.assertAlmostEqual(result["new_tok_per_s"], 18 / result["seconds"])

    def test_counts_the_tokens_that_there_were(self):
        with StandIn(tokens_short=2) as server:
            done, result = self.load(server.url, "--requests", 3, "--prompt-tokens", 2, "--new-tokens", 6)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(result["fewest_tokens"], 4)
        self.assertAlmostEqual(result["new_tok_per_s"], 12 / result["seconds"])
        self.assertAlmostEqual(result["answer_ms"]["mean"], result["first_token_ms"]["mean"] + 3 * result["token_after_ms"]["mean"], 6)

    def test_processes_share_the_same_requests(self):
        def prompts(processes):
            with StandIn() as server:
                done, result = self.load(server.url, "--requests", 9, "--prompt-tokens", 3, "--new-tokens", 1, "--processes", processes)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(result["processes"], processes)
            return sorted(body["prompt"] for _, body in server.bodies)

        alone = prompts(1)
        self.assertEqual(len({tuple(p) for p in alone}), 9)
        self.assertEqual(prompts(4), alone)

    def test_so_many_clients_ask_in_turn(self):
        with StandIn() as server:
            done, _ = self.load(server.url, "--requests", 12, "--prompt-tokens", 2, "--new-tokens", 2, "--clients", 3, "--processes", 2)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual((len(server.bodies), server.most), (12, 3))

    def test_all_come_at_once_without_a_rate(self):
        with StandIn() as server:
            self.load(server.url, "--requests", 12, "--prompt-tokens", 2, "--new-tokens", 20)
        self.assertEqual(server.most, 12)

    def test_requests_come_at_the_rate(self):
        with StandIn() as server:
            done, result = self.load(server.url, "--requests", 20, "--prompt-tokens", 2, "--new-tokens", 1, "--rate", 20,
                                     "--processes", 2)
        self.assertEqual(done.returncode, 0, done.stderr)
        rng = random.Random(0)  # the script's seed, prompts and gaps in turn
        last = 0.0
        for _ in range(19):
            for _ in range(2):
                rng.randrange(32000)
            last += rng.expovariate(20)
        # A slow machine makes the whole longer, never shorter.
        self.assertGreater(last, 0.4)
        self.assertGreaterEqual(result["seconds"], last + WAIT)

    def test_an_error_of_the_server_is_told(self):
        with StandIn(fails_from=2) as server:
            done, result = self.load(server.url, "--requests", 4, "--prompt-tokens", 2, "--new-tokens", 1, "--clients", 1)
        self.assertEqual(done.returncode, 1)
        self.assertIn("nobody is at home", done.stderr)
        self.assertIsNone(result)

    def test_refuses_what_contradicts(self):
        done, _ = self.load("http://127.0.0.1:1", "--rate", 1, "--clients", 2)
        self.assertEqual(done.returncode, 2)
        self.assertIn("give one of them", done.stderr)
        done, _ = self.load("http://127.0.0.1:1", "--requests", 3, "--processes", 4)
        self.assertEqual(done.returncode, 2)
        self.assertIn("expected 1 to 3", done.stderr)

    @unittest.skipUnless(TENON_AND_SOURCE, "tenon serve is not part of this build")
    def test_counts_the_tokens_of_tenon_serve(self):
        tenon, source = TENON_AND_SOURCE
        sys.path.insert(0, str(pathlib.Path(source, "tests/serve")))
        from server import Server
        sets = ["device.threads=2", "scheduler.sequences=4", "kv_cache.capacity=64"]
        with Server(tenon, "synthetic:stories15m", sets) as server:
            done, result = self.load(server.url, "--requests", 10, "--prompt-tokens", 20, "--new-tokens", 8, "--processes", 2)
            self.assertEqual(done.returncode, 0, done.stderr)
            metrics = server.metrics()
        self.assertEqual(result["requests"], 10)
        self.assertEqual((metrics["vllm:prompt_tokens_total"], metrics["vllm:generation_tokens_total"], metrics["length"]), (200, 80, 10))
        self.assertEqual(result["fewest_tokens"], 8)


if __name__ == "__main__":
    unittest.main()
