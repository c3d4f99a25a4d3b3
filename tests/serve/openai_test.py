#!/usr/bin/env python3
"""openai_test.py TENON SOURCE: OpenAI's own client against a real server. Skips where it is not installed."""
import asyncio
import json
import sys
import tempfile
import unittest

from server import Server, make_model

try:
    import openai
except ImportError as e:
    print(f"Skipped: {e}")
    sys.exit(77)

TENON, SOURCE = sys.argv[1], sys.argv[2]
HELLO = [{"role": "user", "content": "Hello"}]


class Client(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.server = Server(TENON, make_model(SOURCE, cls.folder.name), ["kv_cache.capacity=2048"],
                            ["--api-key", "secret", "--served-model-name", "tiny"])
        cls.url = cls.server.url + "/v1"
        cls.client = openai.OpenAI(base_url=cls.url, api_key="secret", max_retries=0)

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        code = cls.server.end()
        cls.server.__exit__(None)
        assert code == 0, code

    def chat(self, **fields):
        return self.client.chat.completions.create(**{"model": "tiny", "messages": HELLO, "max_tokens": 12, **fields})

    def text(self, **fields):
        return self.client.completions.create(**{"model": "tiny", "prompt": "Once", "max_tokens": 12, **fields})

    def test_models(self):
        self.assertEqual([m.id for m in self.client.models.list()], ["tiny"])
        self.assertEqual(self.client.models.retrieve("tiny").owned_by, "tenon")

    def test_fields(self):
        for fields in [{"temperature": 0}, {"temperature": 1.5, "seed": 3}, {"top_p": 0.5}, {"n": 3}, {"stop": "e"},
                       {"stop": ["e", "a"]}, {"presence_penalty": 1.0}, {"frequency_penalty": -1.0},
                       {"logit_bias": {"5": -100}}, {"user": "me"},
                       {"extra_body": {"top_k": 5, "min_p": 0.1, "repetition_penalty": 1.2, "ignore_eos": True}}]:
            chat, text = self.chat(**fields), self.text(**fields)
            for answer in [chat, text]:
                self.assertEqual(len(answer.choices), fields.get("n", 1))
                self.assertTrue(all(c.finish_reason in ("stop", "length") for c in answer.choices))
                self.assertEqual(answer.usage.total_tokens, answer.usage.prompt_tokens + answer.usage.completion_tokens)
            self.assertEqual(chat.choices[0].message.role, "assistant")
        self.chat(max_tokens=openai.omit, max_completion_tokens=5, store=False, metadata={"a": "b"}, tool_choice="none",
                  response_format={"type": "text"}, service_tier="auto", parallel_tool_calls=True)
        self.assertEqual(self.text(echo=True, max_tokens=0).choices[0].text, "Once")
        self.assertEqual(len(self.text(prompt=["a", "b"], n=2, best_of=2).choices), 4)

    def test_streams(self):
        whole = self.chat(seed=1, max_tokens=40)
        text, usage = "", None
        for chunk in self.chat(seed=1, max_tokens=40, stream=True, stream_options={"include_usage": True}):
            for choice in chunk.choices:
                text += choice.delta.content or ""
            usage = chunk.usage or usage
        self.assertEqual(text, whole.choices[0].message.content)
        self.assertEqual(usage.completion_tokens, whole.usage.completion_tokens)
        streamed = "".join(c.text for chunk in self.text(seed=1, stream=True) for c in chunk.choices)
        self.assertEqual(streamed, self.text(seed=1).choices[0].text)
        with self.client.chat.completions.stream(model="tiny", messages=HELLO, max_tokens=40, seed=1) as stream:
            text = "".join(event.delta for event in stream if event.type == "content.delta")
        self.assertEqual(text, whole.choices[0].message.content)

    def test_logprobs(self):
        content = self.chat(logprobs=True, top_logprobs=2, temperature=0).choices[0].logprobs.content
        self.assertTrue(all(len(e.top_logprobs) == 2 and e.logprob <= 0 for e in content))
        logprobs = self.text(logprobs=2, temperature=0).choices[0].logprobs
        self.assertEqual(len(logprobs.tokens), len(logprobs.token_logprobs))

    def test_embeddings(self):
        create = self.client.embeddings.create
        one, other = create(model="tiny", input="Once"), create(model="tiny", input="Hello", encoding_format="float")
        both = create(model="tiny", input=["Once", "Hello"], user="me")
        self.assertEqual([e.index for e in both.data], [0, 1])
        self.assertEqual(both.data[0].embedding, one.data[0].embedding)  # which the client asks for in base64
        self.assertEqual(len(other.data[0].embedding), 64)
        for x, y in zip(both.data[1].embedding, other.data[0].embedding):
            self.assertAlmostEqual(x, y, places=6)
        self.assertEqual(both.usage.total_tokens, one.usage.total_tokens + other.usage.total_tokens)
        self.assertEqual(both.model, "tiny")

    def test_errors_are_the_clients_own(self):
        for error, fields in [(openai.NotFoundError, {"model": "gpt-4"}), (openai.BadRequestError, {"n": 0}),
                              (openai.BadRequestError, {"tools": [{"type": "function", "function": {"name": "f"}}]}),
                              (openai.BadRequestError, {"messages": [{"role": "user", "content": "word " * 3000}]})]:
            for stream in [False, True]:
                with self.assertRaises(error) as caught:
                    self.chat(stream=stream, **fields)
                self.assertIn(caught.exception.param.split("[")[0], ["model", "n", "tools", "messages"])
        wrong = openai.OpenAI(base_url=self.url, api_key="wrong", max_retries=0)
        with self.assertRaises(openai.AuthenticationError):
            wrong.models.list()
        wrong.close()
        for fields in [{"input": ""}, {"input": "x", "dimensions": 8}]:
            with self.assertRaises(openai.BadRequestError):
                self.client.embeddings.create(model="tiny", **fields)

    def test_structured_output(self):
        schema = {"type": "object", "properties": {"a": {"enum": ["x", "y"]}, "b": {"type": "boolean"}}, "required": ["a", "b"],
                  "additionalProperties": False}
        form = {"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": schema}}
        try:
            texts = [self.chat(response_format=form, seed=seed, max_tokens=60).choices[0].message.content for seed in range(6)]
        except openai.BadRequestError as e:
            self.assertIn("no component of the kind grammar", e.message)
            self.skipTest(e.message)
        allowed = {json.dumps({"a": a, "b": b}) for a in "xy" for b in [True, False]}
        self.assertLessEqual(set(texts), allowed)
        with self.client.chat.completions.stream(model="tiny", messages=HELLO, max_tokens=60, seed=3, response_format=form) as stream:
            self.assertEqual("".join(event.delta for event in stream if event.type == "content.delta"), texts[3])
        self.assertIn(self.chat(extra_body={"guided_choice": ["yes", "no"]}).choices[0].message.content, ["yes", "no"])
        self.assertRegex(self.text(extra_body={"structured_outputs": {"regex": "[0-9]{4}"}}).choices[0].text, r"\A\d{4}\Z")
        with self.assertRaises(openai.BadRequestError) as caught:
            self.chat(response_format={"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "none"}}})
        self.assertEqual(caught.exception.param, "response_format.json_schema.schema")

    def test_many_at_once(self):
        async def ask():
            async with openai.AsyncOpenAI(base_url=self.url, api_key="secret", max_retries=0) as client:
                return await asyncio.gather(*(client.chat.completions.create(model="tiny", messages=HELLO, max_tokens=20,
                                                                              seed=i) for i in range(24)))
        expected = [self.chat(seed=i, max_tokens=20).choices[0].message.content for i in range(24)]
        self.assertEqual([a.choices[0].message.content for a in asyncio.run(ask())], expected)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
