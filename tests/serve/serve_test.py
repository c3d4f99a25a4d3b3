#!/usr/bin/env python3
"""serve_test.py TENON SOURCE [unittest options]: a real server, asked over sockets."""
import base64
import json
import pathlib
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from call_templates import CALLS, CHANNELS, set_call_template, set_template
from random_model import make_random_model
from server import Server, in_threads, make_model

TENON, SOURCE = sys.argv[1], sys.argv[2]
CHAT = "/v1/chat/completions"
HELLO = [{"role": "user", "content": "Hello"}]
TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]
FOLDER = tempfile.TemporaryDirectory()
MODEL = make_model(SOURCE, FOLDER.name)
SMALL = ["kv_cache.capacity=2048"]
ENDLESS = {"max_tokens": 30000, "ignore_eos": True, "temperature": 0}
LONG = ["kv_cache.capacity=32000"]


def generate(prompt, *words):
    """Returns what `tenon generate` says at temperature 0."""
    command = [TENON, "generate", MODEL, "--json", "--prompt", prompt, "--set", "sampler.chain=[]",
               "--set", "sampler.select=greedy", "--set", "kv_cache.capacity=2048", *words]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE).stdout)


def text_of(chunks, index=0):
    text = ""
    for chunk in chunks:
        for choice in chunk["choices"]:
            if choice["index"] == index:
                text += choice["text"] if "text" in choice else choice["delta"].get("content", "")
    return text


def wait_until(condition, what):
    for _ in range(6000):
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError("never: " + what)


class Answers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(TENON, MODEL, SMALL, ["--served-model-name", "tiny", "--served-model-name", "other"])
        cls.server.__enter__()

    @classmethod
    def tearDownClass(cls):
        code = cls.server.end()
        cls.server.__exit__(None)
        assert code == 0, code

    def error(self, path, body, status, param=None, code=None):
        got, _, answer = self.server.ask(path, body)
        self.assertEqual(got, status, answer)
        error = answer["error"]
        self.assertEqual(set(error), {"message", "type", "param", "code"})
        if param:
            self.assertEqual(error["param"], param, error)
        if code:
            self.assertEqual(error["code"], code, error)
        return error["message"]

    def test_says_what_it_serves(self):
        _, _, answer = self.server.ask("/v1/models")
        self.assertEqual([m["id"] for m in answer["data"]], ["tiny", "other"])
        self.assertEqual(self.server.ask("/v1/models/other")[2]["id"], "other")
        self.assertEqual(self.server.ask("/v1/models/third")[0], 404)
        self.assertEqual(self.server.ask("/health")[0], 200)
        self.assertIn("version", self.server.ask("/version")[2])
        status, headers, page = self.server.ask("/")
        self.assertEqual((status, headers["Content-Type"]), (200, "text/html; charset=utf-8"))
        self.assertIn(b"v1/chat/completions", page)
        self.assertEqual(self.server.ask("/", method="HEAD")[2], b"")

    def test_text_is_what_generate_says(self):
        for prompt in ["Once upon a time", "Hello", "x" * 300]:
            expected = generate(prompt, "-n", "40")
            answer = self.server.complete(prompt, max_tokens=40, temperature=0, model="tiny")
            self.assertEqual(answer["choices"][0]["text"], expected["text"])
            self.assertEqual(answer["object"], "text_completion")
            usage = answer["usage"]
            self.assertEqual(usage["prompt_tokens"], len(expected["prompt_tokens"]))
            self.assertEqual(usage["completion_tokens"], len(expected["tokens"]))
            self.assertEqual(usage["total_tokens"], usage["prompt_tokens"] + usage["completion_tokens"])
            by_tokens = self.server.complete(expected["prompt_tokens"], max_tokens=40, temperature=0)
            self.assertEqual(by_tokens["choices"][0]["text"], expected["text"])

    def test_conversation_is_what_generate_says(self):
        expected = generate("Hello", "--chat", "--system", "Be brief", "-n", "40")
        for system in ["system", "developer"]:
            messages = [{"role": system, "content": "Be brief"},
                        {"role": "user", "content": [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}]}]
            answer = self.server.complete(messages, CHAT, max_completion_tokens=40, temperature=0)
            self.assertEqual(answer["object"], "chat.completion")
            self.assertEqual(answer["choices"][0]["message"]["role"], "assistant")
            self.assertEqual(answer["choices"][0]["message"]["content"], expected["text"])

    def test_stream_is_what_comes_at_once(self):
        for path, prompt in [("/v1/completions", "Once upon"), (CHAT, HELLO)]:
            fields = {"max_tokens": 60, "seed": 5, "temperature": 0.9, "n": 2}
            whole = self.server.complete(prompt, path, **fields)
            chunks = self.server.stream(prompt, path, stream_options={"include_usage": True}, **fields)
            for choice in whole["choices"]:
                text = choice["text"] if path != CHAT else choice["message"]["content"]
                self.assertEqual(text_of(chunks, choice["index"]), text)
            for usage in [chunks[-1]["usage"], whole["usage"]]:
                usage.pop("prompt_tokens_details")  # the second request finds what the first one computed
            self.assertEqual(chunks[-1]["usage"], whole["usage"])
            self.assertEqual(chunks[-1]["choices"], [])
            self.assertEqual({c["id"] for c in chunks}, {chunks[0]["id"]})
            ends = [c["choices"][0] for c in chunks[:-1] if c["choices"][0]["finish_reason"]]
            self.assertEqual({e["index"]: e["finish_reason"] for e in ends},
                             {c["index"]: c["finish_reason"] for c in whole["choices"]})
            self.assertTrue(all(c["usage"] is None for c in chunks[:-1]))
            if path == CHAT:
                self.assertEqual(chunks[0]["choices"][0]["delta"], {"role": "assistant", "content": ""})
                self.assertEqual(chunks[0]["object"], "chat.completion.chunk")
            self.assertNotIn("usage", self.server.stream(prompt, path, max_tokens=2)[-1])

    def test_a_beginning_is_computed_once(self):
        prompt = "".join(chr(97 + i * 7 % 26) for i in range(120))
        before = self.server.metrics()
        answers = [self.server.complete(prompt, max_tokens=4, temperature=0) for _ in range(2)]
        self.assertEqual(answers[0]["choices"][0]["text"], answers[1]["choices"][0]["text"])
        cached = [a["usage"]["prompt_tokens_details"]["cached_tokens"] for a in answers]
        tokens = answers[0]["usage"]["prompt_tokens"]
        self.assertEqual(cached, [0, (tokens - 1) // 16 * 16])
        after = self.server.metrics()
        self.assertEqual(after["vllm:prefix_cache_hits_total"] - before["vllm:prefix_cache_hits_total"], cached[1])
        self.assertEqual(after["vllm:prefix_cache_queries_total"] - before["vllm:prefix_cache_queries_total"], 2 * tokens)

    def risen(self, before):
        """Returns by how much each metric has risen."""
        return {name: value - before.get(name, 0) for name, value in self.server.metrics().items()}

    def test_metrics_of_a_request(self):
        before = self.server.metrics()
        usage = self.server.complete("Twice: xyzzy", max_tokens=7, ignore_eos=True)["usage"]
        risen = self.risen(before)
        computed = usage["prompt_tokens"] - usage["prompt_tokens_details"]["cached_tokens"]
        self.assertEqual(risen["vllm:iteration_tokens_total_sum"], computed + 7)
        self.assertEqual(risen["vllm:iteration_tokens_total_count"], 7)  # the prompt's step has the first token
        first, gaps, whole = (risen[f"vllm:{name}_seconds_sum"] for name in
                              ["time_to_first_token", "inter_token_latency", "e2e_request_latency"])
        queued, prefill, decode = (risen[f"vllm:request_{name}_time_seconds_sum"] for name in ["queue", "prefill", "decode"])
        self.assertAlmostEqual(queued + prefill, first, places=5)
        self.assertAlmostEqual(decode, gaps, places=5)
        self.assertGreater(min(prefill, decode), 0)
        self.assertLessEqual(first + decode, whole + 1e-6)
        for name in ["queue_time_seconds", "prefill_time_seconds", "decode_time_seconds", "max_num_generation_tokens"]:
            self.assertEqual(risen[f"vllm:request_{name}_count"], 1, name)

    def test_metrics_have_the_longest_answer_to_a_prompt(self):
        fields = {"max_tokens": 20, "ignore_eos": True, "n": 2}
        for longer in [0, 1]:  # which of the two goes on to the end
            for seed in range(100):
                texts = [c["text"] for c in self.server.complete("Once", seed=seed, **fields)["choices"]]
                if stops := [c for c in texts[1 - longer][:6] if c.isascii() and c not in texts[longer]]:
                    break
            before = self.server.metrics()
            answer = self.server.complete(["Once", "Once"], seed=seed, stop=stops[0], **fields)
            risen = self.risen(before)
            self.assertEqual([c["finish_reason"] for c in answer["choices"]], ["length" if i == longer else "stop" for i in [0, 1, 0, 1]])
            self.assertEqual(risen["vllm:request_max_num_generation_tokens_count"], 2)
            self.assertEqual(risen["vllm:request_max_num_generation_tokens_sum"], 40)
            self.assertEqual(risen["vllm:request_generation_tokens_sum"], answer["usage"]["completion_tokens"])

    def test_several_answers_to_several_prompts(self):
        answer = self.server.complete(["Once", "Hello"], n=2, max_tokens=10, seed=3)
        self.assertEqual([c["index"] for c in answer["choices"]], [0, 1, 2, 3])
        alone = self.server.complete("Hello", max_tokens=10, seed=3)
        self.assertEqual(answer["choices"][2]["text"], alone["choices"][0]["text"])
        self.assertNotEqual(answer["choices"][0]["text"], answer["choices"][1]["text"])
        counts = [self.server.complete(p, max_tokens=10, seed=3)["usage"]["prompt_tokens"] for p in ["Once", "Hello"]]
        self.assertEqual(answer["usage"]["prompt_tokens"], sum(counts))

    def test_seed(self):
        texts = [self.server.complete("Once", max_tokens=30, seed=s)["choices"][0]["text"] for s in [1, 1, 2, -1, -1]]
        self.assertEqual(texts[0], texts[1])
        self.assertEqual(texts[3], texts[4])
        self.assertEqual(len(set(texts)), 3)
        self.assertEqual(len({self.server.complete("Once", max_tokens=30)["choices"][0]["text"] for _ in range(3)}), 3)

    def test_sampling_is_what_generate_says(self):
        chain = '{use="repetition_penalty", penalty=1.3}, {use="temperature", value=0.7}, {use="top_k", k=20}, ' \
                '{use="top_p", p=0.8}, {use="min_p", p=0.05}'
        expected = generate("Once upon a time", "-n", "40", "--seed", "11", "--set", "sampler.select=categorical",
                            "--set", f"sampler.chain=[{chain}]")
        answer = self.server.complete("Once upon a time", max_tokens=40, seed=11, temperature=0.7, top_k=20, top_p=0.8,
                                      min_p=0.05, repetition_penalty=1.3)
        self.assertEqual(answer["choices"][0]["text"], expected["text"])
        def text(**fields):
            return self.server.complete("Once", max_tokens=40, temperature=0, **fields)["choices"][0]["text"]
        for field in ["frequency_penalty", "presence_penalty"]:
            self.assertNotEqual(text(**{field: 2}), text(), field)
            self.assertEqual(text(**{field: 0}), text(), field)

    def test_stop(self):
        full = self.server.complete("Once", max_tokens=60, temperature=0)["choices"][0]["text"]
        stop = full[20:23]
        expected = full[:full.index(stop)]
        for value in [stop, [stop], ["\0never", stop]]:
            answer = self.server.complete("Once", max_tokens=60, temperature=0, stop=value)["choices"][0]
            self.assertEqual((answer["text"], answer["finish_reason"]), (expected, "stop"))
            self.assertEqual(text_of(self.server.stream("Once", max_tokens=60, temperature=0, stop=value)), expected)
        self.assertEqual(self.server.complete("Once", max_tokens=3)["choices"][0]["finish_reason"], "length")

    def test_logit_bias(self):
        _, _, tokens = self.server.ask("/tokenize", {"prompt": "Once upon", "add_special_tokens": False})
        wanted = tokens["tokens"][-1]
        answer = self.server.complete("Hello", max_tokens=4, logit_bias={str(wanted): 100}, logprobs=0, ignore_eos=True)
        self.assertEqual(len(set(answer["choices"][0]["logprobs"]["tokens"])), 1)
        forbidden = self.server.complete("Hello", max_tokens=4, logit_bias={str(wanted): -100}, temperature=0)
        self.assertEqual(self.server.ask("/v1/completions", {"prompt": "x", "logit_bias": {"-1": 5}})[2]["error"]["param"],
                         "logit_bias")
        self.assertEqual(len(forbidden["choices"]), 1)

    def test_logprobs_of_text(self):
        answer = self.server.complete("Once", max_tokens=8, temperature=0, logprobs=3)["choices"][0]
        logprobs = answer["logprobs"]
        expected = generate("Once", "-n", "8", "--logprobs", "3")["logprobs"]
        self.assertEqual(len(logprobs["tokens"]), len(expected))
        for value, e in zip(logprobs["token_logprobs"], expected):
            self.assertAlmostEqual(value, e["logprob"], places=4)
        for token, value, top in zip(logprobs["tokens"], logprobs["token_logprobs"], logprobs["top_logprobs"]):
            self.assertEqual(top[token], value)  # greedy: the chosen one is the likeliest
            self.assertEqual(max(top.values()), value)
        self.assertEqual(logprobs["text_offset"][0], 0)
        chunks = self.server.stream("Once", max_tokens=8, temperature=0, logprobs=3)
        streamed = [t for c in chunks for t in (c["choices"][0]["logprobs"] or {}).get("tokens", [])]
        self.assertEqual(streamed, logprobs["tokens"])

    def test_logprobs_of_conversation(self):
        fields = {"max_tokens": 8, "temperature": 0, "logprobs": True, "top_logprobs": 2}
        content = self.server.complete(HELLO, CHAT, **fields)["choices"][0]["logprobs"]["content"]
        self.assertGreater(len(content), 0)
        for entry in content:
            self.assertEqual(len(entry["top_logprobs"]), 2)
            self.assertEqual(entry["top_logprobs"][0]["logprob"], entry["logprob"])
            self.assertEqual(bytes(entry["bytes"]).decode(errors="replace"), entry["token"])
        chunks = self.server.stream(HELLO, CHAT, **fields)
        self.assertEqual([e for c in chunks for e in (c["choices"][0]["logprobs"] or {}).get("content", [])], content)

    def test_echo(self):
        answer = self.server.complete("Once upon", max_tokens=0, echo=True)
        self.assertEqual(answer["choices"][0]["text"], "Once upon")
        text = self.server.complete("Once upon", max_tokens=5, temperature=0)["choices"][0]["text"]
        self.assertEqual(text_of(self.server.stream("Once upon", max_tokens=5, temperature=0, echo=True)),
                         "Once upon" + text)

    def test_tokens_and_back(self):
        _, _, answer = self.server.ask("/tokenize", {"prompt": "Once upon a time", "return_token_strs": True})
        self.assertEqual(answer["count"], len(answer["tokens"]))
        self.assertEqual(len(answer["token_strs"]), answer["count"])
        _, _, plain = self.server.ask("/tokenize", {"prompt": "Once upon a time", "add_special_tokens": False})
        _, _, back = self.server.ask("/detokenize", {"tokens": plain["tokens"]})
        self.assertEqual(back["prompt"].strip(), "Once upon a time")
        _, _, chat = self.server.ask("/tokenize", {"messages": HELLO})
        self.assertEqual(chat["count"], self.server.complete(HELLO, CHAT, max_tokens=1)["usage"]["prompt_tokens"])

    def test_refusals_name_the_field(self):
        text, chat = "/v1/completions", CHAT
        for path, fields, param in [
            (text, {}, "prompt"), (chat, {}, "messages"), (text, {"prompt": "x", "tempature": 1}, "tempature"),
            (text, {"prompt": "x", "temperature": -1}, "temperature"), (text, {"prompt": "x", "n": 0}, "n"),
            (text, {"prompt": ["x"] * 100, "n": 2}, "prompt"), (text, {"prompt": [1, 10**9]}, "prompt"),
            (chat, {"messages": HELLO, "tools": [{"type": "function"}]}, "tools[0].function"),
            (chat, {"messages": HELLO, "tools": TOOLS}, "tools"),  # the template writes no calls
            (chat, {"messages": HELLO, "response_format": {"type": "grammar"}}, "response_format.type"),
            (chat, {"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role"),
            (text, {"prompt": "word " * 3000}, "prompt"), (chat, {"messages": [{"role": "user", "content": "word " * 3000}]},
                                                            "messages")]:
            self.error(path, fields, 400, param)
        self.assertIn("2048", self.error(text, {"prompt": "word " * 3000, "stream": True}, 400, "prompt",
                                         "context_length_exceeded"))
        self.error(text, {"prompt": "x", "model": "gpt-4"}, 404, "model", "model_not_found")
        self.error(text, "{", 400, code="invalid_json")
        self.error(text, "[" * 100000, 400, code="invalid_json")
        self.error("/nowhere", {}, 404)
        status, headers, _ = self.server.ask("/v1/completions", method="GET")
        self.assertEqual((status, headers["Allow"]), (405, "POST"))

    def test_usage_in_every_chunk(self):
        options = {"include_usage": True, "continuous_usage_stats": True}
        for path, prompt in [("/v1/completions", "Once upon"), (CHAT, HELLO)]:
            fields = {"max_tokens": 20, "temperature": 0, "ignore_eos": True}
            *chunks, last = self.server.stream(prompt, path, stream_options=options, **fields)
            counts = [c["usage"]["completion_tokens"] for c in chunks]
            self.assertEqual(counts, sorted(counts))
            self.assertEqual((counts[-1], last["usage"]["completion_tokens"], last["choices"]), (20, 20, []))
            self.assertEqual({c["usage"]["prompt_tokens"] for c in chunks}, {last["usage"]["prompt_tokens"]})
            plain = self.server.stream(prompt, path, stream_options={"include_usage": True}, **fields)
            self.assertTrue(all(c["usage"] is None for c in plain[:-1]))

    def embed(self, given, **fields):
        status, _, answer = self.server.ask("/v1/embeddings", dict(fields, input=given))
        self.assertEqual(status, 200, answer)
        self.assertEqual(answer["object"], "list")
        self.assertEqual([d["index"] for d in answer["data"]], list(range(len(answer["data"]))))
        return [d["embedding"] for d in answer["data"]], answer["usage"]

    def test_embeddings(self):
        texts = ["Once upon a time", "Hello", "word " * 300, "é"]
        alone = [self.embed(text, model="tiny")[0][0] for text in texts]
        for vector in alone:
            self.assertEqual(len(vector), 64)
            self.assertAlmostEqual(sum(x * x for x in vector), 1, places=5)
        together, usage = self.embed(texts)
        self.assertEqual(together, alone)
        tokens = [self.server.ask("/tokenize", {"prompt": text})[2]["tokens"] for text in texts]
        self.assertEqual(usage, {"prompt_tokens": sum(map(len, tokens)), "total_tokens": sum(map(len, tokens))})
        self.assertEqual(self.embed(tokens)[0], alone)
        self.assertEqual(self.embed(tokens[0])[0], alone[:1])
        for given, expected in zip(self.embed(texts, encoding_format="base64")[0], alone):
            self.assertEqual(list(struct.unpack("<64f", base64.b64decode(given))), expected)
        raw, = self.embed(texts[0], normalize=False)[0]
        length = sum(x * x for x in raw)**0.5
        self.assertNotAlmostEqual(length, 1, places=2)
        for x, y in zip(raw, alone[0]):
            self.assertAlmostEqual(x / length, y, places=5)
        self.assertNotEqual(self.embed(texts[0], pooling="last")[0][0], alone[0])
        self.assertEqual(self.embed(texts[0], dimensions=64, user="me", encoding_format="float")[0], alone[:1])

    def test_embeddings_are_what_embed_says(self):
        texts = ["Once upon a time", "Hello"]
        for options, fields in [([], {}), (["--pooling", "last", "--raw"], {"pooling": "last", "normalize": False})]:
            command = [TENON, "embed", MODEL, "--set", "kv_cache.capacity=2048", *options, "-p", texts[0], "-p", texts[1]]
            lines = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE).stdout.splitlines()
            self.assertEqual([json.loads(line) for line in lines], self.embed(texts, **fields)[0])

    def test_embeddings_beside_texts(self):
        prompts = [f"Story {i}: once" for i in range(12)]
        fields = {"max_tokens": 30, "temperature": 0}
        texts = [self.server.complete(p, **fields)["choices"][0]["text"] for p in prompts]
        vectors = [self.embed(p)[0] for p in prompts]
        both = in_threads(lambda ask: ask(), [lambda p=p: self.server.complete(p, **fields)["choices"][0]["text"] for p in prompts] +
                          [lambda p=p: self.embed(p)[0] for p in prompts])
        self.assertEqual(both, texts + vectors)

    def test_refusals_of_embeddings_name_the_field(self):
        for fields, param in [({}, "input"), ({"input": ""}, "input"), ({"input": []}, "input"), ({"input": ["x", ""]}, "input"),
                              ({"input": [[]]}, "input"), ({"input": [10**9]}, "input"), ({"input": {"a": 1}}, "input"),
                              ({"input": ["x"] * 2049}, "input"), ({"input": "word " * 3000}, "input"),
                              ({"input": "x", "dimensions": 32}, "dimensions"), ({"input": "x", "what": 1}, "what"),
                              ({"input": "x", "encoding_format": "int8"}, "encoding_format"),
                              ({"input": "x", "pooling": "max"}, "pooling"), ({"input": "x", "stream": True}, "stream"),
                              ({"input": "x", "normalize": 1}, "normalize")]:
            self.error("/v1/embeddings", fields, 400, param)
        self.error("/v1/embeddings", {"input": "x", "model": "gpt-4"}, 404, "model", "model_not_found")

    def test_many_clients_get_what_one_gets(self):
        prompts = [f"Story {i}: once" for i in range(24)]
        fields = {"max_tokens": 50, "seed": 9, "temperature": 0.8}
        alone = [self.server.complete(p, **fields)["choices"][0]["text"] for p in prompts]
        together = in_threads(lambda p: self.server.complete(p, **fields)["choices"][0]["text"], prompts)
        self.assertEqual(together, alone)
        streamed = in_threads(lambda p: text_of(self.server.stream(p, **fields)), prompts)
        self.assertEqual(streamed, alone)

    def test_one_connection_takes_one_request_after_another(self):
        own = self.server.connect()
        for path in ["/health", "/v1/models", "/nowhere"]:
            self.server.ask(path, connection=own)
            self.assertIsNotNone(own.sock, path)
        body = json.dumps({"prompt": "Once", "max_tokens": 5, "temperature": 0, "stream": True})
        own.request("POST", "/v1/completions", body)
        streamed = own.getresponse().read()
        self.assertIn(b"[DONE]", streamed)
        self.assertEqual(self.server.ask("/health", connection=own)[0], 200)
        own.close()

    def test_requests_sent_ahead_are_answered_in_turn(self):
        body = b'{"prompt": "Once", "max_tokens": 30, "temperature": 0}'
        one = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
        with self.server.socket() as s:
            s.sendall(one)
            time.sleep(0.01)  # so that it is read while the first is answered
            s.sendall(one * 2 + b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            answers = b""
            while more := s.recv(65536):
                answers += more
        self.assertEqual(answers.count(b"HTTP/1.1 200 OK"), 4)
        self.assertEqual(answers.count(b'"text_completion"'), 3)

    def test_older_and_careful_clients(self):
        body = b'{"prompt": "Once", "max_tokens": 3, "temperature": 0, "stream": true}'
        with self.server.socket() as s:
            s.sendall(b"POST /v1/completions HTTP/1.0\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
            answer = b""
            while more := s.recv(65536):
                answer += more
        self.assertTrue(answer.endswith(b"data: [DONE]\n\n"), answer)
        self.assertNotIn(b"chunked", answer)
        with self.server.socket() as s:
            s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(body))
            self.assertTrue(s.recv(100).startswith(b"HTTP/1.1 100 Continue"))
            s.sendall(body)
            self.assertTrue(s.recv(100).startswith(b"HTTP/1.1 200 OK"))

    def test_what_is_not_http(self):
        for sent, status in [(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\r\n\r\n", b"400"), (b"GET\r\n\r\n", b"400"),
                             (b"GET / HTTP/1.1\r\nX: " + b"y" * 100000 + b"\r\n\r\n", b"431")]:
            with self.server.socket() as s:
                s.sendall(sent)
                self.assertEqual(s.recv(100)[9:12], status, sent[:20])


class Clients(unittest.TestCase):
    def test_take_turns_if_the_operator_says_so(self):
        """The first request of a client comes after those that run, and not after the forty of another one."""
        sets = LONG + ["scheduler.sequences=2"]
        for clients, set_fair, last in [("key", False, True), ("key", True, False), ("user", True, False)]:
            key = lambda i: {"Authorization": f"Bearer {'ab'[i]}"}
            with Server(TENON, MODEL, sets + (["scheduler.fair=true"] if set_fair else []),
                        ["--clients", clients, "--api-key", "a", "--api-key", "b"]) as server:
                order = []

                def ask(client):
                    body = {"prompt": "Once", "max_tokens": 400, "ignore_eos": True, "user": str(client)}
                    status, _, answer = server.ask("/v1/completions", body, key(0 if clients == "user" else client))
                    self.assertEqual(status, 200, answer)
                    order.append(client)

                # Two requests hold both sequences until all others wait.
                held = [server.connect() for _ in range(2)]
                for own in held:
                    own.request("POST", "/v1/completions", json.dumps(dict(ENDLESS, prompt="Once", user="0")), key(0))
                wait_until(lambda: server.metrics()["vllm:num_requests_running"] == 2, "both run")
                threads = [threading.Thread(target=ask, args=(0,)) for _ in range(40)]
                for t in threads:
                    t.start()
                wait_until(lambda: server.metrics()["vllm:num_requests_waiting"] == 40, "all of them wait")
                threads.append(threading.Thread(target=ask, args=(1,)))
                threads[-1].start()
                wait_until(lambda: server.metrics()["vllm:num_requests_waiting"] == 41, "the other client waits")
                for own in held:
                    own.sock.shutdown(socket.SHUT_RDWR)
                    own.close()
                for t in threads:
                    t.join()
                self.assertEqual(order.index(1) >= 25, last, order)

    def test_embeddings_that_the_pipeline_does_not_make(self):
        with Server(TENON, MODEL, SMALL + ["pipeline.embeddings=false"]) as server:
            status, _, answer = server.ask("/v1/embeddings", {"input": "x"})
            self.assertEqual((status, answer["error"]["code"]), (501, "not_supported"))
            self.assertIn("pipeline.embeddings", answer["error"]["message"])


class Limits(unittest.TestCase):
    def test_a_client_that_goes_away_ends_its_request(self):
        with Server(TENON, MODEL, LONG) as server:
            for stream in [True, False]:
                before = server.metrics()["abort"]
                body = json.dumps(dict(ENDLESS, prompt="Once", stream=stream))
                own = server.connect()
                own.request("POST", "/v1/completions", body)
                if stream:
                    own.getresponse().read(100)
                else:
                    wait_until(lambda: server.metrics()["vllm:num_requests_running"] == 1, "it runs")
                own.sock.shutdown(socket.SHUT_RDWR)
                own.close()
                wait_until(lambda: server.metrics()["abort"] == before + 1, "it is aborted")
                wait_until(lambda: server.metrics()["vllm:num_requests_running"] == 0, "nothing runs")
                self.assertEqual(server.metrics()["vllm:kv_cache_usage_perc"], 0)
            self.assertEqual(server.end(), 0)

    def test_too_many_wait(self):
        with Server(TENON, MODEL, LONG + ["scheduler.sequences=1"], ["--max-waiting", "2"]) as server:
            holders = []
            for i in range(3):
                own = server.connect()
                own.request("POST", "/v1/completions", json.dumps(dict(ENDLESS, prompt="Once")))
                holders.append(own)
                wait_until(lambda: server.metrics()["vllm:num_requests_running"] == 1 and
                           server.metrics()["vllm:num_requests_waiting"] == i, f"{i} wait")
            status, headers, answer = server.ask("/v1/completions", {"prompt": "Once"})
            self.assertEqual((status, answer["error"]["code"]), (429, "rate_limit_exceeded"))
            self.assertGreaterEqual(int(headers["Retry-After"]), 1)
            self.assertEqual(server.metrics()["tenon:requests_refused_total"], 1)
            for own in holders:
                own.close()
            wait_until(lambda: server.metrics()["abort"] == 3, "all are aborted")
            self.assertEqual(len(server.complete("Once", max_tokens=2)["choices"]), 1)

    def test_keys(self):
        keys = pathlib.Path(FOLDER.name) / "keys"
        keys.write_text("second\r\n\nthird\n")
        with Server(TENON, MODEL, SMALL, ["--api-key", "first", "--api-key-file", str(keys)]) as server:
            for key in ["first", "second", "third"]:
                self.assertEqual(server.ask("/v1/models", headers={"Authorization": "Bearer " + key})[0], 200)
            for headers in [{}, {"Authorization": "Bearer fourth"}, {"Authorization": "first"}, {"Authorization": "Bearer "}]:
                status, _, answer = server.ask("/v1/models", headers=headers)
                self.assertEqual((status, answer["error"]["code"]), (401, "invalid_api_key"))
                self.assertEqual(server.ask("/v1/completions", {"prompt": "x" * 3000000}, headers)[0], 401)
            for path in ["/health", "/metrics", "/"]:
                self.assertEqual(server.ask(path)[0], 200)
            self.assertNotIn("first", server.errors())

    def test_sizes_and_times(self):
        options = ["--max-body-mib", "0.01", "--read-seconds", "1", "--max-header-bytes", "1000"]
        with Server(TENON, MODEL, SMALL, options) as server:
            status, _, answer = server.ask("/v1/completions", {"prompt": "x" * 5000000})
            self.assertEqual((status, answer["error"]["code"]), (413, "body_too_large"))
            self.assertEqual(server.ask("/health", headers={"X": "y" * 2000})[0], 431)
            for sent in [b"", b"GET / HT", b"POST /tokenize HTTP/1.1\r\nContent-Length: 100\r\n\r\n{"]:
                with server.socket(30) as s:
                    s.sendall(sent)
                    self.assertEqual(s.recv(100), b"", sent)  # closed

    def test_a_request_has_a_time(self):
        with Server(TENON, MODEL, LONG, ["--request-seconds", "0.5"]) as server:
            status, _, answer = server.ask("/v1/completions", dict(ENDLESS, prompt="Once"))
            self.assertEqual((status, answer["error"]["code"]), (503, "cancelled"))
            self.assertEqual(server.metrics()["abort"], 1)

    def slow_client(self, server):
        """Asks for a stream of more than any socket buffers, of which nothing is read."""
        fields = {"prompt": "Once", "max_tokens": 3000, "ignore_eos": True, "seed": 4, "logprobs": 60, "n": 2}
        body = json.dumps(dict(fields, stream=True))
        slow = socket.socket()
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 17)
        slow.connect((server.host, server.port))
        slow.sendall(f"POST /v1/completions HTTP/1.0\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
        return slow, fields

    def test_a_slow_reader_holds_nobody(self):
        with Server(TENON, MODEL, LONG, ["--write-seconds", "600"]) as server:
            slow, fields = self.slow_client(server)
            for _ in range(3):
                server.complete("Hello", max_tokens=5)
            wait_until(lambda: server.metrics()["length"] >= 2 and server.metrics()["vllm:num_requests_running"] == 0,
                       "all is generated")
            text = b""
            while more := slow.recv(1 << 20):
                text += more
            slow.close()
            self.assertGreater(len(text), 9 << 20)
            self.assertTrue(text.endswith(b"data: [DONE]\n\n"))
            expected = server.complete(**fields)
            chunks = [json.loads(line[6:]) for line in text.split(b"\r\n\r\n", 1)[1].split(b"\n\n")[:-2]]
            for choice in expected["choices"]:
                self.assertEqual(text_of(chunks, choice["index"]), choice["text"])

    def test_a_reader_that_takes_nothing_is_dropped(self):
        with Server(TENON, MODEL, LONG, ["--write-seconds", "0.5"]) as server:
            slow, _ = self.slow_client(server)
            wait_until(lambda: server.metrics()["vllm:e2e_request_latency_seconds_count"] == 2, "it is over")
            self.assertEqual(server.end(), 0)
            text = b""
            with self.assertRaises(ConnectionError):  # or the end of what was in buffers
                while more := slow.recv(1 << 20):
                    text += more
                if b"[DONE]" not in text:
                    raise ConnectionError
            slow.close()

    def test_a_pipeline_without_a_sampler_says_so(self):
        with Server(TENON, MODEL, SMALL + ['sampler.chain=[{use="temperature"}]']) as server:
            for field, value, neutral in [("top_p", 0.5, 1), ("top_k", 5, 0), ("min_p", 0.1, 0),
                                          ("frequency_penalty", 1, 0), ("logit_bias", {"3": 1}, {})]:
                status, _, answer = server.ask("/v1/completions", {"prompt": "x", "max_tokens": 1, field: value})
                self.assertEqual((status, answer["error"]["param"]), (400, field))
                self.assertEqual(answer["error"]["code"], "unsupported_parameter")
                server.complete("x", max_tokens=1, **{field: neutral})

    def test_a_model_without_a_chat_format(self):
        with Server(TENON, "synthetic:stories15m", SMALL) as server:
            self.assertEqual(server.ask("/v1/models")[2]["data"][0]["id"], "synthetic:stories15m")
            status, _, answer = server.ask(CHAT, {"messages": HELLO})
            self.assertEqual((status, answer["error"]["param"]), (400, "messages"))
            self.assertEqual(len(server.complete([1, 2, 3], max_tokens=4, ignore_eos=True)["choices"]), 1)

    def test_tools_reach_the_template(self):
        talk = HELLO + [{"role": "assistant", "content": None, "tool_calls": [
            {"id": "abcdefghi", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}]},
            {"role": "tool", "tool_call_id": "abcdefghi", "content": "two"}]
        for name, call in CALLS.items():
            with self.subTest(name), tempfile.TemporaryDirectory() as folder:
                model = make_model(SOURCE, folder)
                set_call_template(model, call)
                with Server(TENON, model, SMALL) as server:
                    if name == "unknown":
                        status, _, answer = server.ask(CHAT, {"messages": HELLO, "tools": TOOLS})
                        self.assertEqual((status, answer["error"]["param"]), (400, "tools"))
                        continue
                    def size(messages=HELLO, **fields):
                        return server.complete(messages, CHAT, max_tokens=1, **fields)["usage"]["prompt_tokens"]
                    self.assertGreater(size(tools=TOOLS), size())
                    self.assertEqual(size(tools=TOOLS, tool_choice="none"), size())
                    self.assertGreater(size(talk, tools=TOOLS), size(tools=TOOLS))
                    chunks = server.stream(HELLO, CHAT, max_tokens=4, tools=TOOLS)
                    self.assertEqual(chunks[0]["choices"][0]["delta"]["role"], "assistant")

    def test_marks_that_are_control_tokens_are_seen(self):
        for template, mark in [(CALLS["mistral"], "[TOOL_CALLS]"), (CHANNELS, "<|end|>")]:
            with self.subTest(mark), tempfile.TemporaryDirectory() as folder:
                model, vocab = make_random_model(SOURCE, folder)
                config = pathlib.Path(model) / "tokenizer_config.json"
                tokens = {str(len(vocab) + i): {"content": text, "special": True} for i, text in enumerate([mark, "<|return|>"])}
                config.write_text(json.dumps({**json.loads(config.read_text()), "added_tokens_decoder": tokens}))
                set_template(model, template) if template == CHANNELS else set_call_template(model, template)
                with Server(TENON, model, SMALL) as server:
                    fields = {"max_tokens": 3, "temperature": 0, "logit_bias": {str(len(vocab)): 100}}
                    tools = {} if template == CHANNELS else {"tools": TOOLS}
                    self.assertEqual(server.complete(HELLO, CHAT, **tools, **fields)["choices"][0]["message"]["content"], 3 * mark)
                    self.assertEqual(text_of(server.stream(HELLO, CHAT, **tools, **fields)), 3 * mark)
                    self.assertEqual(server.complete("Once", **fields)["choices"][0]["text"], "")

    def test_tls(self):
        if not shutil.which("openssl"):
            self.skipTest("the program openssl, which makes a certificate, is not installed")
        cert, key = (str(pathlib.Path(FOLDER.name) / name) for name in ("cert.pem", "key.pem"))
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
                        "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", cert], check=True, capture_output=True)
        with Server(TENON, MODEL, SMALL, ["--tls-cert", cert, "--tls-key", key]) as server:
            self.assertTrue(server.url.startswith("https://"))
            import http.client
            own = http.client.HTTPSConnection(server.host, server.port, timeout=60,
                                              context=ssl.create_default_context(cafile=cert))
            fields = {"prompt": "Once", "max_tokens": 20, "temperature": 0}
            for _ in range(3):
                status, _, answer = server.ask("/v1/completions", fields, connection=own)
                self.assertEqual(status, 200)
            self.assertEqual(answer["choices"][0]["text"], generate("Once", "-n", "20")["text"])
            own.request("POST", "/v1/completions", json.dumps(dict(ENDLESS, prompt="Once", max_tokens=2000, stream=True)))
            own.getresponse().read(100)
            own.sock.close()
            own.close()
            self.assertEqual(server.end(), 0)


class Ends(unittest.TestCase):
    def start_stream(self, server, **fields):
        own = server.connect()
        own.request("POST", "/v1/completions", json.dumps({**ENDLESS, "prompt": "Once", "stream": True, **fields}))
        response = own.getresponse()
        response.read(50)
        return response

    def test_requests_that_run_have_time_to_end(self):
        for number in [signal.SIGTERM, signal.SIGINT]:
            with Server(TENON, MODEL, LONG, ["--drain-seconds", "600"]) as server:
                idle = server.connect()
                server.ask("/health", connection=idle)
                response = self.start_stream(server, max_tokens=2000)
                server.process.send_signal(number)
                rest = response.read()
                self.assertTrue(b'"finish_reason":"length"' in rest[-500:], rest[-500:])
                self.assertTrue(rest.endswith(b"data: [DONE]\n\n"))
                self.assertEqual(server.process.wait(60), 0)
                idle.close()
                with self.assertRaises(OSError):
                    server.socket(5)

    def test_and_no_more_than_that(self):
        with Server(TENON, MODEL, LONG, ["--drain-seconds", "0.2"]) as server:
            response = self.start_stream(server)
            server.process.send_signal(signal.SIGTERM)
            rest = response.read()
            self.assertEqual(server.process.wait(60), 0)
            self.assertEqual(json.loads(rest.split(b"\n\n")[-2][6:])["error"]["code"], "cancelled")

    def test_an_address_that_is_taken(self):
        with Server(TENON, MODEL, SMALL) as server:
            done = subprocess.run([TENON, "serve", MODEL, "--port", str(server.port), "--set", SMALL[0]],
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60)
            self.assertEqual(done.returncode, 7, done.stderr)
            self.assertIn(str(server.port), done.stderr)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
