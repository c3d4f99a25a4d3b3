#!/usr/bin/env python3
"""openai_test.py TENON SOURCE: OpenAI's own client against a real server. Skips where it is not installed."""
import asyncio
import json
import sys
import tempfile
import typing
import unittest

from client_fields import (ALLOWED, BEFORE, CALLED, CHAT, HELLO, SCHEMA, SETS, STREAM, TEXT, TOOLS, WRITE_CALLS, calls_of, check_all_are_sent,
                           check_answer, make_client_model)
from server import Server, in_threads, make_model

try:
    import openai
    import pydantic
except ImportError as e:
    print(f"Skipped: {e}")
    sys.exit(77)

TENON, SOURCE = sys.argv[1], sys.argv[2]


class Suite(unittest.TestCase):
    @classmethod
    def start(cls, model):
        cls.server = Server(TENON, model, SETS, ["--api-key", "secret", "--served-model-name", "tiny"])
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


class Client(Suite):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.start(make_model(SOURCE, cls.folder.name))

    def test_models(self):
        self.assertEqual([m.id for m in self.client.models.list()], ["tiny"])
        self.assertEqual(self.client.models.retrieve("tiny").owned_by, "tenon")

    def test_prompts(self):
        self.assertEqual(self.text(echo=True, max_tokens=0).choices[0].text, "Once")
        self.assertEqual(len(self.text(prompt=["a", "b"], n=2, best_of=2).choices), 4)
        self.assertEqual([c.text for c in self.text(prompt=[[5, 6], [7]], seed=1).choices],
                         [self.text(prompt=tokens, seed=1).choices[0].text for tokens in ([5, 6], [7])])

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

    def test_many_at_once(self):
        async def ask():
            async with openai.AsyncOpenAI(base_url=self.url, api_key="secret", max_retries=0) as client:
                return await asyncio.gather(*(client.chat.completions.create(model="tiny", messages=HELLO, max_tokens=20,
                                                                              seed=i) for i in range(24)))
        expected = [self.chat(seed=i, max_tokens=20).choices[0].message.content for i in range(24)]
        self.assertEqual([a.choices[0].message.content for a in asyncio.run(ask())], expected)


class Fields(Suite):
    """Every field that the server takes, with what it asks for."""
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        model, cls.closes = make_client_model(SOURCE, cls.folder.name)
        cls.start(model)
        try:
            cls.text(cls, extra_body={"guided_regex": "a"})
        except openai.BadRequestError as e:
            cls.tearDownClass()
            assert "no component of the kind grammar" in e.message, e
            raise unittest.SkipTest(e.message)

    def ask(self, create, fields, **more):
        most = openai.omit if "max_completion_tokens" in fields else 200
        return create(**{"seed": 1, "logit_bias": self.closes, "max_tokens": most, **fields, **more})

    def test_that_all_are_sent(self):
        check_all_are_sent(self, SOURCE)

    def test_chats(self):
        for fields, answer in zip(CHAT, in_threads(lambda fields: self.ask(self.chat, fields), CHAT, 8)):
            with self.subTest(fields):
                check_answer(self, fields, answer, fields.get("max_completion_tokens", 200))
                self.assertTrue(all(c.message.role == "assistant" for c in answer.choices))

    def test_texts(self):
        for fields, answer in zip(TEXT, in_threads(lambda fields: self.ask(self.text, fields), TEXT, 8)):
            with self.subTest(fields):
                check_answer(self, fields, answer, 200)
                self.assertTrue(all(c.text.startswith("Once") for c in answer.choices if "echo" in fields))

    def test_chats_in_streams(self):
        for fields in CHAT:
            with self.subTest(fields):
                whole, parts, ends = self.ask(self.chat, fields), {}, {}
                for chunk in self.ask(self.chat, fields, **STREAM):
                    for choice in chunk.choices:
                        if choice.finish_reason:
                            ends[choice.index] = choice.finish_reason
                        text, thought, calls = parts.get(choice.index, ("", "", []))
                        delta = choice.delta
                        calls += [(call.index, call.function.name, json.loads(call.function.arguments)) for call in delta.tool_calls or []]
                        parts[choice.index] = text + (delta.content or ""), thought + (getattr(delta, "reasoning_content", None) or ""), calls
                    usage = chunk.usage
                for choice in whole.choices:
                    message = choice.message
                    calls = [(i, *call) for i, call in enumerate(calls_of(message))]
                    self.assertEqual(parts[choice.index], (message.content or "", getattr(message, "reasoning_content", None) or "", calls))
                self.assertEqual(ends, {choice.index: choice.finish_reason for choice in whole.choices})
                self.assertEqual(usage.completion_tokens, whole.usage.completion_tokens)

    def test_texts_in_streams(self):
        for fields in TEXT:
            with self.subTest(fields):
                whole, parts = self.ask(self.text, fields), {}
                for chunk in self.ask(self.text, fields, **STREAM):
                    for choice in chunk.choices:
                        parts[choice.index] = parts.get(choice.index, "") + choice.text
                self.assertEqual(parts, {choice.index: choice.text for choice in whole.choices})

    def test_what_the_client_makes_of_calls(self):
        form = {"model": "tiny", "messages": HELLO, "max_tokens": 200, "tools": TOOLS, "extra_body": WRITE_CALLS}
        with self.client.chat.completions.stream(**form) as stream:
            done = [(e.name, json.loads(e.arguments)) for e in stream if e.type == "tool_calls.function.arguments.done"]
            message = stream.get_final_completion().choices[0].message
        self.assertEqual(done, CALLED)
        self.assertEqual((message.content, calls_of(message)), (BEFORE, CALLED))
        self.assertEqual(message.tool_calls[0].function.parsed_arguments, CALLED[0][1])  # the client does so where a tool is strict
        answers = [{"role": "tool", "tool_call_id": call.id, "content": "done"} for call in message.tool_calls]
        size = lambda messages: self.chat(messages=messages, tools=TOOLS, max_tokens=1).usage.prompt_tokens
        talk = HELLO + [{"role": "assistant", "content": message.content, "tool_calls": [call.to_dict() for call in message.tool_calls]}]
        for call in talk[1]["tool_calls"]:
            call["function"].pop("parsed_arguments", None)
        self.assertLess(size(HELLO), size(talk))
        self.assertLess(size(talk), size(talk + answers))

    def test_what_the_client_makes_of_json(self):
        class Answer(pydantic.BaseModel):
            a: typing.Literal["x", "y"]
            b: bool
        parsed = self.client.chat.completions.parse(model="tiny", messages=HELLO, max_tokens=200, response_format=Answer).choices[0].message.parsed
        self.assertIn(parsed.model_dump(), ALLOWED)
        form = {"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": SCHEMA}}
        with self.client.chat.completions.stream(model="tiny", messages=HELLO, max_tokens=60, seed=3, response_format=form) as stream:
            text = "".join(event.delta for event in stream if event.type == "content.delta")
        self.assertIn(json.loads(text), ALLOWED)
        with self.assertRaises(openai.BadRequestError) as caught:
            self.chat(response_format={"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "none"}}})
        self.assertEqual(caught.exception.param, "response_format.json_schema.schema")

    def test_json_objects(self):
        ends = 0
        for seed in range(12):
            choice = self.ask(self.chat, {"response_format": {"type": "json_object"}, "seed": seed, "max_tokens": 400}).choices[0]
            if choice.finish_reason == "stop":
                self.assertIsInstance(json.loads(choice.message.content), dict)
                ends += 1
        self.assertGreater(ends, 3)

    def test_forms_of_messages(self):
        size = lambda *messages: self.chat(messages=messages, max_tokens=1).usage.prompt_tokens
        whole = size({"role": "system", "content": "Be brief"}, *HELLO)
        self.assertEqual(size({"role": "developer", "content": [{"type": "text", "text": "Be "}, {"type": "text", "text": "brief"}]},
                              {"role": "user", "name": "me", "content": "Hello"}), whole)
        self.assertGreater(size({"role": "system", "content": "Be brief"}, *HELLO, {"role": "assistant", "content": "Hi"}, *HELLO), whole)

    def test_embeddings(self):
        plain = self.client.embeddings.create(model="tiny", input="Hello", dimensions=64).data[0].embedding
        more = {"priority": 1, "parse_special": True, "normalize": True, "pooling": "mean"}
        self.assertEqual(self.client.embeddings.create(model="tiny", input="Hello", user="me", extra_body=more).data[0].embedding, plain)
        last = self.client.embeddings.create(model="tiny", input=[[5, 6], [7]], extra_body={"pooling": "last", "normalize": False})
        self.assertEqual(len(last.data), 2)
        self.assertNotAlmostEqual(sum(x * x for x in last.data[0].embedding), 1, places=2)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
