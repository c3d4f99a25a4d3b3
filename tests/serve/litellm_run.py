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

from client_fields import BEFORE, CALLED, CHAT, HELLO, SETS, STREAM, TEXT, TOOLS, WRITE_CALLS, calls_of, check_answer, make_client_model
from server import Server

TENON, SOURCE = sys.argv[1], sys.argv[2]
# The server is asked as `model="hosted_vllm/..."` and as OpenAI's own interface.
PROVIDERS = ["openai", "hosted_vllm"]
# litellm keeps `metadata` to itself, and takes these only as fields that it does not know.
UNKNOWN = ["modalities", "store", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention", "prediction"]


def for_litellm(fields):
    extra = {name: fields[name] for name in UNKNOWN if name in fields} | fields.get("extra_body", {})
    return {name: value for name, value in fields.items() if name not in UNKNOWN} | ({"extra_body": extra} if extra else {})


class Client(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        model, cls.closes = make_client_model(SOURCE, cls.folder.name)
        cls.server = Server(TENON, model, SETS, ["--api-key", "secret", "--served-model-name", "tiny"])

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
            fields.setdefault("max_tokens", 200)
        return litellm.completion(**{**self.common(provider), "messages": HELLO, "seed": 1, "logit_bias": self.closes, **for_litellm(fields)})

    def text(self, **fields):
        common = dict(self.common("text-completion-openai"), prompt="Once", max_tokens=40, seed=1, logit_bias=self.closes)
        return litellm.text_completion(**{**common, **for_litellm(fields)})

    def test_fields(self):
        for provider in PROVIDERS:
            for fields in CHAT:
                with self.subTest(provider=provider, fields=fields):
                    answer = self.chat(provider, **fields)
                    check_answer(self, fields, answer, fields.get("max_completion_tokens", 200))
                    self.assertEqual(answer.choices[0].message.role, "assistant")

    def test_fields_in_streams(self):
        for provider in PROVIDERS:
            for fields in CHAT:
                if "n" in fields:  # litellm numbers all choices of a stream 0
                    continue
                with self.subTest(provider=provider, fields=fields):
                    message, text, thought, calls = self.chat(provider, **fields).choices[0].message, "", "", []
                    for chunk in self.chat(provider, **fields, **STREAM):
                        for choice in chunk.choices:
                            text += choice.delta.content or ""
                            thought += getattr(choice.delta, "reasoning_content", None) or ""
                            calls += calls_of(choice.delta)
                    self.assertEqual((text, thought, calls), (message.content or "", getattr(message, "reasoning_content", None) or "", calls_of(message)))

    def test_calls_go_back(self):
        for provider in PROVIDERS:
            message = self.chat(provider, tools=TOOLS, extra_body=WRITE_CALLS).choices[0].message
            self.assertEqual((message.content, calls_of(message)), (BEFORE, CALLED))
            talk = HELLO + [message.model_dump(include={"role", "content", "tool_calls"})]
            answers = [{"role": "tool", "tool_call_id": call.id, "content": "done"} for call in message.tool_calls]
            sizes = [self.chat(provider, messages=m, tools=TOOLS, max_tokens=1).usage.prompt_tokens for m in (HELLO, talk, talk + answers)]
            self.assertEqual(sizes, sorted(set(sizes)))

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
        for fields in TEXT:
            with self.subTest(fields=fields):
                answer = self.text(**fields)
                check_answer(self, fields, answer, 40)
                self.assertTrue(all(c.text.startswith("Once") for c in answer.choices if "echo" in fields))
                if "n" not in fields:
                    streamed = "".join(c.choices[0].text or "" for c in self.text(**fields, stream=True) if c.choices)
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
