#!/usr/bin/env python3
"""litellm_run.py TENON SOURCE: litellm's client against a real server, every field, streaming and not.

    python3 -m venv build/litellm && build/litellm/bin/pip install litellm
    build/litellm/bin/python tests/serve/litellm_run.py build/release/bin/tenon .

It is run by hand: what litellm brings along is too much for every run of the tests. docs/serving.md has the last result."""
import gc
import os
import sys
import tempfile
import unittest

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else it asks the network for prices

import litellm

# litellm leaves streams open that have ended. If they are collected while its connections are locked (httpcore), the
# thread waits for itself.
gc.disable()

from server import Server, make_model

TENON, SOURCE = sys.argv[1], sys.argv[2]
HELLO = [{"role": "user", "content": "Hello"}]
FIELDS = [{"temperature": 0}, {"temperature": 1.5, "seed": 3}, {"top_p": 0.5}, {"n": 2}, {"stop": "e"}, {"stop": ["e", "a"]},
          {"presence_penalty": 1.0}, {"frequency_penalty": -1.0}, {"logit_bias": {"5": -100}}, {"user": "me"},
          {"response_format": {"type": "text"}}, {"max_completion_tokens": 5}, {"tool_choice": "none"},
          {"extra_body": {"top_k": 5, "min_p": 0.1, "repetition_penalty": 1.2, "ignore_eos": True, "priority": 1}}]
# The server is asked as `model="hosted_vllm/..."` and as OpenAI's own interface.
PROVIDERS = ["openai", "hosted_vllm"]


class Client(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.server = Server(TENON, make_model(SOURCE, cls.folder.name), ["kv_cache.capacity=2048"],
                            ["--api-key", "secret", "--served-model-name", "tiny"])

    @classmethod
    def tearDownClass(cls):
        code = cls.server.end()
        cls.server.__exit__(None)
        assert code == 0, code

    def common(self, provider):
        return {"model": f"{provider}/tiny", "api_base": self.server.url + "/v1", "api_key": "secret", "num_retries": 0,
                "timeout": 60}

    def chat(self, provider, **fields):
        gc.collect()
        if "max_completion_tokens" not in fields:
            fields.setdefault("max_tokens", 12)
        return litellm.completion(**self.common(provider), messages=HELLO, **fields)

    def test_fields(self):
        for provider in PROVIDERS:
            for fields in FIELDS:
                with self.subTest(provider=provider, fields=fields):
                    answer = self.chat(provider, **fields)
                    self.assertEqual(len(answer.choices), fields.get("n", 1))
                    self.assertTrue(all(c.finish_reason in ("stop", "length") for c in answer.choices))
                    self.assertEqual(answer.usage.total_tokens,
                                     answer.usage.prompt_tokens + answer.usage.completion_tokens)
                    self.assertEqual(answer.choices[0].message.role, "assistant")

    def test_fields_in_streams(self):
        for provider in PROVIDERS:
            for fields in FIELDS:
                with self.subTest(provider=provider, fields=fields):
                    fields = {"seed": 1, **fields}
                    whole = self.chat(provider, **fields)
                    texts = {}
                    for chunk in self.chat(provider, stream=True, **fields):
                        for choice in chunk.choices:
                            texts[choice.index] = texts.get(choice.index, "") + (choice.delta.content or "")
                    if fields.get("n", 1) == 1:  # litellm numbers all choices of a stream 0
                        self.assertEqual(texts[0], whole.choices[0].message.content or "")

    def test_usage_in_streams(self):
        for provider in PROVIDERS:
            chunks = list(self.chat(provider, stream=True, stream_options={"include_usage": True}, temperature=0))
            usage = [c.usage for c in chunks if getattr(c, "usage", None)]
            self.assertEqual(usage[-1].completion_tokens, self.chat(provider, temperature=0).usage.completion_tokens)

    def test_logprobs(self):
        for provider in PROVIDERS:
            content = self.chat(provider, logprobs=True, top_logprobs=2, temperature=0).choices[0].logprobs.content
            self.assertTrue(content and all(len(e.top_logprobs) == 2 for e in content))

    def test_texts(self):
        for fields in [{}, {"echo": True}, {"n": 2}, {"logprobs": 2}, {"stop": ["e"]}, {"suffix": ""}, {"best_of": 1}]:
            with self.subTest(fields=fields):
                common = dict(self.common("text-completion-openai"), prompt="Once", max_tokens=8, temperature=0)
                answer = litellm.text_completion(**common, **fields)
                self.assertEqual(len(answer.choices), fields.get("n", 1))
                if not fields:
                    streamed = "".join(c.choices[0].text or "" for c in litellm.text_completion(**common, stream=True))
                    self.assertEqual(streamed, answer.choices[0].text)

    def test_embeddings(self):
        for provider in PROVIDERS:
            one = litellm.embedding(**self.common(provider), input=["Once", "Hello"])
            self.assertEqual([len(d["embedding"]) for d in one.data], [64, 64])
            again = litellm.embedding(**self.common(provider), input=["Once", "Hello"], encoding_format="float", user="me")
            for a, b in zip(one.data, again.data):
                self.assertEqual(len(a["embedding"]), len(b["embedding"]))
                self.assertLess(max(abs(x - y) for x, y in zip(a["embedding"], b["embedding"])), 1e-6)

    def test_errors_are_litellms_own(self):
        for provider in PROVIDERS:
            for stream in [False, True]:
                with self.assertRaises(litellm.BadRequestError):
                    self.chat(provider, n=0, stream=stream)
                with self.assertRaises(litellm.NotFoundError):
                    list(litellm.completion(**dict(self.common(provider), model=f"{provider}/gpt-4"), messages=HELLO,
                                            stream=stream))
            with self.assertRaises(litellm.BadRequestError):  # of which ContextWindowExceededError is one
                litellm.completion(**self.common(provider), messages=[{"role": "user", "content": "word " * 3000}])
            with self.assertRaises(litellm.AuthenticationError):
                litellm.completion(**dict(self.common(provider), api_key="wrong"), messages=HELLO)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
