#!/usr/bin/env python3
"""structured_test.py TENON SOURCE [unittest options]: answers that have to be of a form, by a model that writes nonsense. Skips
where grammar.xgrammar is not built, or there is no package jsonschema."""
import collections
import json
import re
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from call_templates import CALLS, CHANNELS, MARKS, THINKS, set_call_template, set_template
from random_model import make_random_model
from schemas import Schemas
from server import Server, in_threads

TENON, SOURCE = sys.argv[1], sys.argv[2]
if "xgrammar" not in subprocess.run([TENON, "inspect"], stdout=subprocess.PIPE, text=True).stdout:
    print("Skipped: grammar.xgrammar is not built")
    sys.exit(77)
try:
    import jsonschema
except ImportError as e:
    print(f"Skipped: {e}")
    sys.exit(77)

CHAT = "/v1/chat/completions"
HELLO = [{"role": "user", "content": "Hello"}]
FOLDER = tempfile.TemporaryDirectory()
MODEL, VOCAB = make_random_model(SOURCE, FOLDER.name)
SCHEMAS = 1000
OPTIONS = ["scheduler.sequences=8", "kv_cache.capacity=2048"]
# What closes strings, arrays and objects is likelier than the rest, so that most answers come to an end.
CLOSES = {str(i): 6 for text, i in VOCAB.items() if text in ('"', "}", "]", '"}', "}]", "}}", "</s>")}
SMALL = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 8}, "age": {"type": "integer", "minimum": 0, "maximum": 150},
                                          "tags": {"type": "array", "items": {"enum": ["red", "green"]}, "maxItems": 3}},
         "required": ["name", "age", "tags"]}


class Structured(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(TENON, MODEL, OPTIONS).__enter__()

    @classmethod
    def tearDownClass(cls):
        code = cls.server.end()
        cls.server.__exit__(None)
        assert code == 0, code

    def text(self, path="/v1/completions", **fields):
        fields = {"max_tokens": 400, "temperature": 1.0, "top_p": 1, "top_k": -1, "seed": 1, **fields}
        choice = self.server.complete("Once" if path != CHAT else HELLO, path, **fields)["choices"][0]
        text = choice["text"] if path != CHAT else choice["message"]["content"]
        return text, choice["finish_reason"]

    def refused(self, field, **fields):
        status, _, answer = self.server.ask("/v1/completions", dict({"prompt": "Once", "max_tokens": 4}, **fields))
        self.assertEqual(status, 400, answer)
        self.assertEqual(answer["error"]["param"], field, answer)
        return answer["error"]["message"]

    def test_random_schemas(self):
        """Each answer that ends by itself is allowed by its schema; the others are beginnings."""
        source = Schemas(1)
        schemas = [source.make() for _ in range(SCHEMAS)]

        def ask(item):
            i, schema = item
            fields = {"temperature": 0.7 + 0.1 * (i % 12), "seed": i, "logit_bias": CLOSES, "max_tokens": 600}
            status, _, answer = self.server.ask("/v1/completions", dict(fields, prompt="Once", guided_json=schema, top_k=-1, top_p=1))
            return status, answer

        ends = collections.Counter()
        for (status, answer), schema in zip(in_threads(ask, list(enumerate(schemas)), 8), schemas):
            if status == 400:  # the generator makes some that nothing satisfies
                self.assertRegex(answer["error"]["message"], "range|additional|Unsatisfiable|greater", schema)
                ends["refused"] += 1
                continue
            self.assertEqual(status, 200, (answer, schema))
            choice = answer["choices"][0]
            ends[choice["finish_reason"]] += 1
            self.assertNotIn("\N{REPLACEMENT CHARACTER}", choice["text"].rstrip("\N{REPLACEMENT CHARACTER}"), schema)
            if choice["finish_reason"] == "stop":
                value = json.loads(choice["text"])
                jsonschema.Draft202012Validator(schema).validate(value)
            elif choice["finish_reason"] == "length":
                self.assertEqual(answer["usage"]["completion_tokens"], 600)
        print(f"{SCHEMAS} schemas: {dict(ends)}", file=sys.stderr)
        self.assertGreater(ends["stop"], 0.9 * SCHEMAS)
        self.assertLess(ends["refused"], 0.02 * SCHEMAS)

    def test_what_ends_by_its_length_is_a_beginning(self):
        source = Schemas(2)
        for i in range(40):
            fields = {"guided_json": source.make(), "seed": i, "logit_bias": CLOSES}
            whole, finish = self.text(max_tokens=600, **fields)
            self.assertEqual(finish, "stop")
            part, _ = self.text(max_tokens=8, **fields)
            self.assertTrue(whole.startswith(part.rstrip("\N{REPLACEMENT CHARACTER}")), (part, whole))

    def test_text_does_not_depend_on_neighbours_or_on_streaming(self):
        forms = [{"guided_json": SMALL}, {"guided_regex": "[a-f]{5,60}(x|y)?"}, {"guided_choice": ["one", "two", "three"]},
                 {"guided_grammar": 'root ::= "<" item+ ">"\nitem ::= [0-9]+ ","'}, {}, {"response_format": {"type": "json_object"}}]
        requests = [dict(form, seed=seed, max_tokens=60, temperature=1.2, logprobs=2 * (seed % 2)) for seed in range(4) for form in forms]
        alone = [self.text(**r) for r in requests]
        self.assertEqual(in_threads(lambda r: self.text(**r), requests, 16), alone)
        self.assertEqual(in_threads(lambda r: self.text(**r), requests[::-1], 16), alone[::-1])
        for request, (expected, _) in zip(requests[:6], alone):
            chunks = self.server.stream("Once", top_p=1, top_k=-1, **request)
            self.assertEqual("".join(c["text"] for chunk in chunks for c in chunk["choices"]), expected)

    def test_forms(self):
        for seed in range(8):
            text, finish = self.text(guided_regex="[0-9]{3}-[0-9]{4}", seed=seed)
            self.assertRegex(text, r"\A\d{3}-\d{4}\Z")
            self.assertEqual(finish, "stop")
            choices = ["yes", "no", 'a "quoted"\n\\one', "日本"]
            self.assertIn(self.text(guided_choice=choices, seed=seed)[0], choices)
            self.assertIn(self.text(structured_outputs={"choice": choices}, seed=seed)[0], choices)
            text, _ = self.text(CHAT, response_format={"type": "json_schema", "json_schema": {"name": "n", "strict": True, "schema": SMALL}}, seed=seed)
            jsonschema.validate(json.loads(text), SMALL)
            text, finish = self.text(guided_grammar='root ::= "(" root ")" | "x"', seed=seed, max_tokens=2000, logit_bias={str(VOCAB["x"]): 5})
            self.assertEqual((re.sub(r"\A(\(*)x(\)*)\Z", "", text), finish, text.count("(")), ("", "stop", text.count(")")))
            text, finish = self.text(response_format={"type": "json_object"}, seed=seed, logit_bias=CLOSES)
            if finish == "stop":
                self.assertIsInstance(json.loads(text), dict)
        self.assertEqual(self.text(guided_json=json.dumps({"const": [1, "a"]}))[0], '[1,"a"]')

    def test_open_and_closed_objects(self):
        one = {"type": "object", "properties": {"a": {"const": 1}}, "required": ["a"]}
        def answers(strict):
            form = {"type": "json_schema", "json_schema": {"name": "n", "schema": one, **strict}}
            return {self.text(response_format=form, seed=seed, max_tokens=30)[0] for seed in range(40)}
        self.assertEqual(answers({}), {'{"a": 1}'})
        self.assertTrue(any(text.startswith('{"a": 1, "') for text in answers({"strict": False})))

    def test_rules_with_schemas(self):
        rules = 'root ::= "<" name ">" value "</x>"\nname ::= %json {"enum": ["a", "b"]}\nvalue ::= %text </x> SCHEMA\n'
        ends = {str(VOCAB[c]): bias for c, bias in [("<", 13), ("/", 13), ("x", 12), (">", 14)]}  # likelier than the rest
        for schema, pattern in [('{"type": "string"}', r"[\s\S]*"), ('{"type": "string", "minLength": 5}', r"[\s\S]{5,}"), ('{"const": "</y>"}', "</y>"),
                                ('{"enum": ["", "1\\n2", "\\"", "größe"]}', '|1\n2|"|größe'), ('{"type": "string", "maxLength": 3}', "[^<]{0,3}"),
                                ('{"type": "string", "pattern": "a+b?"}', "a+b?"), ('{"type": "string", "format": "time"}', r"\d\d:\d\d:.*"),
                                ('{"type": "string", "format": "path", "maxLength": 2}', "[^<]{0,2}")]:
            finishes = set()
            for seed in range(12):
                text, finish = self.text(guided_grammar=rules.replace("SCHEMA", schema), seed=seed, logit_bias=ends, max_tokens=800)
                finishes.add(finish)
                if finish == "stop":
                    self.assertRegex(text, rf'\A<"[ab]">(?:{pattern})</x>\Z', schema)
                    self.assertEqual(text.count("</x>"), 1)
            self.assertIn("stop", finishes, schema)
        for schema, part in [("3", "schema"), ('{"type": "integer"}', "texts alone"), ('{"enum": ["a", 1]}', "no text"), ('{"const": "a</x>"}', "</x>"),
                             ('{"type": "string", "minLength": 3, "maxLength": 2}', "maxLength"), ('{"type": "string", "minLength": -1}', "length"),
                             ('{"type": "string", "format": "date", "maxLength": 2}', "format"), ('{"not": {}}', "not"), ("{", "no JSON")]:
            self.assertIn(part, self.refused("guided_grammar", guided_grammar=rules.replace("SCHEMA", schema)))
        for rules, part in [('root ::= %text xx {"type": "string"}', "xx"), ('root ::= %json {"type": "nothing"}', "rule root"), ("root ::= %jsn {}", "%"),
                            ('root ::= Token(3) TagDispatch(("a", b))\nb ::= "c"', "TagDispatch"), ("root ::= Token(99999)", "99999")]:
            self.assertIn(part, self.refused("guided_grammar", guided_grammar=rules))

    def test_rules_name_control_tokens(self):
        with tempfile.TemporaryDirectory() as folder:
            model, vocab = make_random_model(SOURCE, folder, marks=["<|a|>", "<|b|>"])
            with Server(TENON, model, OPTIONS) as server:
                for seed in range(6):
                    form = f'root ::= "x" Token({vocab["<|a|>"]}) [^y]{{3}} Token({vocab["<|b|>"]}, {vocab["y"]}) "z"'
                    choice = server.complete("Once", guided_grammar=form, seed=seed, temperature=2.0, top_k=-1, top_p=1, logprobs=0)["choices"][0]
                    tokens = choice["logprobs"]["tokens"]
                    self.assertEqual((tokens[1], choice["finish_reason"]), ("<|a|>", "stop"), choice)
                    self.assertIn(tokens[-2], ["<|b|>", "y"])
                    self.assertEqual(tokens.count("<|a|>") + tokens.count("<|b|>") + tokens.count("y"), 2, choice)
                    self.assertNotIn("<|", choice["text"])

    def test_n_and_stops_and_logprobs(self):
        answer = self.server.complete("Once", guided_regex="[ab]{40}", n=3, seed=2, logprobs=1)
        texts = [c["text"] for c in answer["choices"]]
        self.assertEqual(len(set(texts)), 3)
        for choice in answer["choices"]:
            self.assertLessEqual(max(choice["logprobs"]["token_logprobs"]), 0)
        text, finish = self.text(guided_regex="[ab]{40}", stop="ab")
        self.assertEqual(finish, "stop")
        self.assertNotIn("ab", text)

    def test_what_is_wrong_is_said(self):
        for schema, part in [({"type": "strin"}, "strin"), ({"not": {}}, '#: "not" is not supported'), ("{", "no JSON"), ({"$ref": "#/a"}, "a"),
                             ({"properties": {"b": {"contains": {}}}}, '#/properties/b: "contains"'), ({"$ref": "#"}, "no text matches"),
                             ({"anyOf": [{"type": "null"}], "minLength": 3}, "minLength"), ({"type": "string", "pattern": "(?=a)b"}, "ook"),
                             ({"type": "string", "pattern": "a\\\\"}, "pattern"), ({"type": "integer", "minimum": 5, "maximum": 2}, "range")]:
            self.assertIn(part, self.refused("guided_json", guided_json=schema))
        self.assertIn("parenthesis", self.refused("guided_regex", guided_regex="(a"))
        self.assertIn("root", self.refused("guided_grammar", guided_grammar='a ::= "b"'))
        self.refused("guided_choice", guided_choice=[])
        self.refused("guided_choice", guided_choice=[1])
        self.refused("guided_json", guided_json=3)
        self.refused("guided_regex", guided_json={}, guided_regex="a")
        self.refused("ignore_eos", guided_regex="a", ignore_eos=True)
        self.refused("response_format.json_schema.name", response_format={"type": "json_schema", "json_schema": {"schema": {}}})
        self.refused("response_format.json_schema.schema", response_format={"type": "json_schema", "json_schema": {"name": "n"}})
        self.refused("response_format.json_schema.schema",
                     response_format={"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "no"}}})
        self.refused("structured_outputs.regex", structured_outputs={"regex": "(", "disable_fallback": True})
        status, _, answer = self.server.ask(CHAT, {"messages": HELLO, "stream": True, "guided_regex": "("})
        self.assertEqual((status, answer["error"]["param"]), (400, "guided_regex"))

    def test_nothing_costs_more_than_it_may(self):
        """Neither huge nor deep nor slow grammars hold anybody up for long."""
        deep = {}
        for _ in range(90):
            deep = {"type": "array", "items": deep}
        self.assertIn("deep", self.refused("guided_json", guided_json=json.dumps(deep)))
        self.assertIn("KiB", self.refused("guided_json", guided_json={"enum": ["x" * 9] * 9000}))
        self.assertIn("KiB", self.refused("guided_regex", guided_regex="a" * 70000))
        for text in ["(" * 30000 + ")" * 30000, "((a{1,1000}){1,1000}){1,1000}(", "[" * 60000, "a{2,1}", "\\"]:
            self.refused("guided_regex", guided_regex=text)
        self.refused("guided_grammar", guided_grammar="root ::= " + "(" * 30000)
        began = time.monotonic()
        slow = [threading.Thread(target=self.server.ask, args=("/v1/completions", {"prompt": "a", "max_tokens": 3, "guided_regex": r})) for r in
                ["(a|b|ab)*c" + "(a|b)?" * 6000 + "d" * i for i in range(2)]]
        for thread in slow:
            thread.start()
        self.assertEqual(self.server.ask("/health")[0], 200)
        self.text(max_tokens=3)  # nobody waits for them
        for thread in slow:
            thread.join()
        self.assertLess(time.monotonic() - began, 120)
        for pattern in ["a{1,1000000000}", "((a{1,1000}){1,1000}){1,1000}"]:
            text, finish = self.text(guided_regex=pattern, max_tokens=20, logit_bias={"1": -100})
            self.assertEqual((set(text), finish), ({"a"}, "length"))
        self.text(guided_json={"type": "string", "maxLength": 10**9}, max_tokens=20)
        self.assertEqual(self.text(guided_grammar='root ::= x\nx ::= x x | "a" | ""', max_tokens=50, logit_bias={"1": -100})[1], "length")

    def test_clients_that_go_away(self):
        for i in range(20):
            own = self.server.socket()
            body = json.dumps({"prompt": "a", "guided_regex": "[a-z]{900}" + "b" * i, "max_tokens": 900}).encode()
            own.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            if i % 2:
                time.sleep(0.05)
            own.close()
        for _ in range(200):
            metrics = self.server.metrics()
            if metrics["vllm:num_requests_running"] + metrics["vllm:num_requests_waiting"] == 0:
                break
            time.sleep(0.1)
        self.assertEqual(metrics["vllm:num_requests_running"] + metrics["vllm:num_requests_waiting"], 0)


class Others(unittest.TestCase):
    def test_generate(self):
        with tempfile.NamedTemporaryFile("w", suffix=".json") as schema:
            json.dump(SMALL, schema)
            schema.flush()
            for options, check in [(["--json-schema", schema.name], lambda t: jsonschema.validate(json.loads(t), SMALL)),
                                   (["--regex", "[xyz]{3}"], lambda t: self.assertRegex(t, r"\A[xyz]{3}\Z"))]:
                command = [TENON, "generate", MODEL, "--prompt", "Once", "-n", "300", "--json", *options]
                result = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                answer = json.loads(result.stdout)
                self.assertEqual(answer["finish"], "end_of_text")
                check(answer["text"])
                self.assertIn(options[0], result.stderr.splitlines()[-1])
        wrong = subprocess.run([TENON, "generate", MODEL, "--prompt", "a", "--regex", "("], stderr=subprocess.PIPE, text=True)
        self.assertEqual(wrong.returncode, 8, wrong.stderr)

    def test_without_a_grammar_component(self):
        with Server(TENON, MODEL, OPTIONS + ["grammar.use=none"]) as server:
            status, _, answer = server.ask("/v1/completions", {"prompt": "a", "guided_regex": "a"})
            self.assertEqual((status, answer["error"]["param"]), (400, "guided_regex"))
            self.assertIn("grammar.use", answer["error"]["message"])
            self.assertEqual(server.ask("/v1/completions", {"prompt": "a", "max_tokens": 3})[0], 200)
            self.assertEqual(server.end(), 0)

    def test_drafts_and_few_pages_change_nothing(self):
        def texts(*sets):
            with Server(TENON, MODEL, [*OPTIONS, "kv_cache.capacity=512", *sets]) as server:
                def ask(seed):
                    form = [{"guided_json": SMALL}, {}, {"guided_regex": "[abc]{20,90}"}][seed % 3]
                    return server.complete("abcabcabcabc" * 4, seed=seed, max_tokens=100, temperature=0.6, top_k=-1, top_p=1, **form)["choices"][0]["text"]
                answers = in_threads(ask, list(range(24)), 8)
                server.end()
                return answers
        plain = texts()
        self.assertEqual(texts("draft.use=ngram", "draft.k=3"), plain)
        self.assertEqual(texts("kv_cache.pool=640"), plain)


class ForcedCalls(unittest.TestCase):
    DEFINED = {"type": "object", "properties": {"sign": {"$ref": "#/$defs/sign"}}, "required": ["sign"],
               "additionalProperties": False, "$defs": {"sign": {"enum": ["plus", "minus"]}}}
    TOOLS = [{"type": "function", "function": {"name": "turn", "parameters": DEFINED}},
             {"type": "function", "function": {"name": "stop", "parameters": {"type": "object", "additionalProperties": False}}}]

    # Some of these are written without quotation marks where the form has none.
    TYPED = {"type": "object", "additionalProperties": False, "required": ["text", "word", "count", "flag", "day", "code", "either"], "$defs": {"word": {"enum": ["red", "two words", "1"]}},
             "properties": {"text": {"type": "string", "minLength": 1, "maxLength": 6}, "word": {"$ref": "#/$defs/word"},
                            "count": {"type": "integer", "minimum": 0, "maximum": 99}, "flag": {"type": "boolean"},
                            "day": {"type": "string", "format": "date"}, "code": {"type": "string", "pattern": "[a-c1]{2}"},
                            "list": {"type": "array", "items": {"$ref": "#/$defs/word"}, "maxItems": 2},
                            "either": {"anyOf": [{"enum": ["x", "7"]}, {"type": "integer", "minimum": 8, "maximum": 9}]}}}
    TYPED_TOOLS = [{"type": "function", "function": {"name": "set", "parameters": TYPED}}, TOOLS[1]]

    def calls(self, server, **fields):
        fields = {"tools": self.TOOLS, "max_tokens": 200, "temperature": 1.0, "logit_bias": CLOSES, **fields}
        answer = server.complete(HELLO, CHAT, **fields)
        choice = answer["choices"][0]
        self.assertEqual(choice["finish_reason"], "tool_calls", choice)
        self.assertIsNone(choice["message"]["content"])
        calls = [call["function"] for call in choice["message"]["tool_calls"]]
        for call in calls:
            tool = next(t["function"] for t in fields["tools"] if t["function"]["name"] == call["name"])
            jsonschema.validate(json.loads(call["arguments"]), tool["parameters"])
        return calls

    def test_a_model_that_writes_nonsense_calls(self):
        for name in ("hermes", "mistral", "llama"):
            with self.subTest(name), tempfile.TemporaryDirectory() as folder:
                model, _ = make_random_model(SOURCE, folder)
                set_call_template(model, CALLS[name])
                with Server(TENON, model, OPTIONS) as server:
                    called = set()
                    for seed in range(12):
                        called |= {call["name"] for call in self.calls(server, tool_choice="required", seed=seed)}
                        alone = self.calls(server, tool_choice="required", parallel_tool_calls=False, seed=seed)
                        self.assertEqual(len(alone), 1)
                        turn = self.calls(server, tool_choice={"type": "function", "function": {"name": "turn"}}, seed=seed)
                        self.assertEqual([call["name"] for call in turn], ["turn"])
                    self.assertEqual(called, {"turn", "stop"})
                    chunks = server.stream(HELLO, CHAT, tools=self.TOOLS, tool_choice="required", max_tokens=200, logit_bias=CLOSES)
                    deltas = [c["choices"][0]["delta"] for c in chunks if c["choices"]]
                    self.assertTrue(any(d.get("tool_calls") for d in deltas))
                    self.assertFalse(any(d.get("content") for d in deltas), deltas)

    def check_form(self, name, marks):
        """Has a model call tools whose form has these marks as control tokens."""
        with self.subTest(name, marks=marks), tempfile.TemporaryDirectory() as folder:
            model, vocab = make_random_model(SOURCE, folder, marks=marks)
            set_call_template(model, CALLS[name])
            named = {"tool_choice": {"type": "function", "function": {"name": "set"}}}
            # A list of calls may go on, and ends with its last mark.
            bias = dict(CLOSES, **{str(vocab[mark]): 3 for mark in MARKS[name][-1:] if mark in vocab})
            fields = {"tools": self.TYPED_TOOLS, "max_tokens": 1500, "logit_bias": bias}
            with Server(TENON, model, OPTIONS) as server:
                def ask(seed):
                    alone = self.calls(server, tool_choice="required", parallel_tool_calls=False, seed=seed, **fields)
                    return alone, self.calls(server, tool_choice="required", seed=seed, **fields), self.calls(server, **named, seed=seed, **fields)
                for alone, several, one in in_threads(ask, list(range(6)), 6):
                    self.assertEqual((len(alone), [call["name"] for call in one]), (1, ["set"]))
                    if name not in ("deepseek3", "deepseek31"):
                        self.assertEqual(len(several), 1)
                choice = {"type": "function", "function": {"name": "stop"}}
                self.assertEqual([call["name"] for call in self.calls(server, tool_choice=choice, **fields)], ["stop"])
                chunks = server.stream(HELLO, CHAT, tool_choice="required", **fields)
                deltas = [c["choices"][0]["delta"] for c in chunks if c["choices"]]
                self.assertTrue(all(json.loads(call["function"]["arguments"]) is not None for d in deltas for call in d.get("tool_calls", [])))
                self.assertTrue(any(d.get("tool_calls") for d in deltas))
                self.assertFalse(any(d.get("content") for d in deltas), deltas)

    def test_forms_with_marks(self):
        for name, marks in MARKS.items():
            self.check_form(name, marks)
            self.check_form(name, [])

    def test_a_call_ends_the_thought_that_the_prompt_has_begun(self):
        with tempfile.TemporaryDirectory() as folder:
            model, _ = make_random_model(SOURCE, folder)
            set_call_template(model, CALLS["qwen_coder"], "{# </think> #}{% if add_generation_prompt %}<think>\n{% endif %}")
            with Server(TENON, model, OPTIONS) as server:
                self.calls(server, tool_choice="required", max_tokens=500)
                def prompt(**fields):
                    return server.complete(HELLO, CHAT, tools=self.TOOLS, max_tokens=1, **fields)["usage"]["prompt_tokens"]
                begins = server.ask("/tokenize", {"prompt": "\n</think>\n\n<tool_call>\n", "add_special_tokens": False})[2]["count"]
                self.assertEqual(prompt(tool_choice="required"), prompt() + begins)

    def test_what_a_form_cannot_have_is_refused(self):
        tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "patternProperties": {"a": {}}}}}]
        with tempfile.TemporaryDirectory() as folder:
            model, _ = make_random_model(SOURCE, folder)
            set_call_template(model, CALLS["glm"])
            with Server(TENON, model, OPTIONS) as server:
                status, _, answer = server.ask(CHAT, {"messages": HELLO, "tools": tools, "tool_choice": "required"})
                self.assertEqual((status, answer["error"]["param"]), (400, "tools"))
                self.assertIn("patternProperties", answer["error"]["message"])
                del tools[0]["function"]["parameters"]["patternProperties"]
                tools[0]["function"]["parameters"]["properties"] = {"a": {"not": {}}}
                status, _, answer = server.ask(CHAT, {"messages": HELLO, "tools": tools, "tool_choice": "required"})
                self.assertEqual((status, answer["error"]["param"]), (400, "tools"))
                self.assertIn('"not"', answer["error"]["message"])

    def test_models_with_channels_call_what_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            model, _ = make_random_model(SOURCE, folder)
            set_call_template(model, CALLS["harmony"])
            with Server(TENON, model, OPTIONS) as server:
                called = {call["name"] for seed in range(12) for call in self.calls(server, tool_choice="required", seed=seed)}
                self.assertEqual(called, {"turn", "stop"})
                for name in ["turn", "stop"]:
                    calls = self.calls(server, tool_choice={"type": "function", "function": {"name": name}})
                    self.assertEqual([call["name"] for call in calls], [name])
                message = server.complete(HELLO, CHAT, guided_choice=["yes", "no"])["choices"][0]["message"]
                self.assertIn(message["content"], ["yes", "no"])


class Thoughts(unittest.TestCase):
    FIELDS = {"guided_regex": " ?[ab]{5} \\n</think>\\n[cd]{5}", "max_tokens": 100, "temperature": 1.0}

    def test_thoughts_stand_beside_the_answer(self):
        with tempfile.TemporaryDirectory() as folder:
            model, _ = make_random_model(SOURCE, folder)
            set_template(model, THINKS)
            with Server(TENON, model, OPTIONS) as server:
                message = server.complete(HELLO, CHAT, **self.FIELDS)["choices"][0]["message"]
                self.assertRegex(message["reasoning_content"], r"\A[ab]{5}\Z")
                self.assertRegex(message["content"], r"\A[cd]{5}\Z")
                hidden = server.complete(HELLO, CHAT, include_reasoning=False, **self.FIELDS)["choices"][0]["message"]
                self.assertNotIn("reasoning_content", hidden)
                self.assertRegex(hidden["content"], r"\A[cd]{5}\Z")
                deltas = [c["choices"][0]["delta"] for c in server.stream(HELLO, CHAT, **self.FIELDS)]
                self.assertRegex("".join(d.get("reasoning_content", "") for d in deltas), r"\A[ab]{5}\Z")
                self.assertRegex("".join(d.get("content", "") for d in deltas), r"\A[cd]{5}\Z")

            def generate(*words):
                command = [TENON, "generate", model, "--chat", "--prompt", "x", "--regex", self.FIELDS["guided_regex"], *words]
                return subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True).stdout
            self.assertRegex(generate(), r"\A ?[ab]{5} \n</think>\n[cd]{5}\n\Z")
            self.assertRegex(generate("--hide-thoughts"), r"\A[cd]{5}\n\Z")
            self.assertRegex(json.loads(generate("--hide-thoughts", "--json"))["text"], r"\A[cd]{5}\Z")

    def test_thoughts_in_a_channel(self):
        form = r"<\|channel\|>analysis<\|message\|>[ab]{5}<\|end\|><\|start\|>assistant<\|channel\|>final<\|message\|>[cd]{5}"
        fields = {"guided_regex": form, "max_tokens": 200, "temperature": 1.0}
        with tempfile.TemporaryDirectory() as folder:
            model, _ = make_random_model(SOURCE, folder)
            set_template(model, CHANNELS)
            with Server(TENON, model, OPTIONS) as server:
                message = server.complete(HELLO, CHAT, **fields)["choices"][0]["message"]
                self.assertRegex(message["reasoning_content"], r"\A[ab]{5}\Z")
                self.assertRegex(message["content"], r"\A[cd]{5}\Z")
                deltas = [c["choices"][0]["delta"] for c in server.stream(HELLO, CHAT, **fields)]
                self.assertRegex("".join(d.get("reasoning_content", "") for d in deltas), r"\A[ab]{5}\Z")
                self.assertRegex("".join(d.get("content", "") for d in deltas), r"\A[cd]{5}\Z")
            for hide, shown in [([], r"\A[ab]{5}\n\n[cd]{5}\n\Z"), (["--hide-thoughts"], r"\A[cd]{5}\n\Z")]:
                command = [TENON, "generate", model, "--chat", "--prompt", "x", "--regex", form, *hide]
                text = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True).stdout
                self.assertRegex(text, shown)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
