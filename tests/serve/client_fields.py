"""What clients are made to send, every field that docs/serving.md names, and what has to come back. `extra_body` has the fields that
OpenAI's own service does not know."""
import json
import pathlib
import re

from call_templates import CLIENTS, set_template
from random_model import make_random_model

HELLO = [{"role": "user", "content": "Hello"}]
SETS = ["scheduler.sequences=8", "kv_cache.capacity=2048"]
# What closes strings and objects is likelier than the rest, so that most answers in JSON come to an end.
CLOSES = ['"', "}", "]", '"}', "}]", "}}", "</s>"]
SCHEMA = {"type": "object", "properties": {"a": {"enum": ["x", "y"]}, "b": {"type": "boolean"}}, "required": ["a", "b"],
          "additionalProperties": False}
ALLOWED = [{"a": a, "b": b} for a in "xy" for b in [True, False]]  # what SCHEMA lets a model write
ARGUMENTS = {"turn": [{"sign": "plus"}, {"sign": "minus"}], "stop": [{}]}  # what TOOLS let a model write
TOOLS = [{"type": "function", "function": {"name": "turn", "description": "turns", "strict": True, "parameters": {
             "type": "object", "properties": {"sign": {"enum": ["plus", "minus"]}}, "required": ["sign"], "additionalProperties": False}}},
         {"type": "function", "function": {"name": "stop", "parameters": {"type": "object", "properties": {}, "additionalProperties": False}}}]
# The model writes nonsense, so a grammar has it write the calls that nobody forces.
BEFORE, TURN, STOP = "Let me see.", '{"name": "turn", "arguments": {"sign": "plus"}}', '{"name": "stop", "arguments": {}}'
WRITTEN = f"{BEFORE}\n<tool_call>\n{TURN}\n</tool_call>\n<tool_call>\n{STOP}\n</tool_call>"
WRITE_CALLS = {"guided_grammar": "root ::= " + json.dumps(WRITTEN)}
CALLED = [("turn", {"sign": "plus"}), ("stop", {})]

# Both interfaces take these.
COMMON = [{"temperature": 0}, {"temperature": 1.5, "seed": 3}, {"top_p": 0.5}, {"n": 2}, {"stop": "e"}, {"stop": ["e", "a"]}, {"presence_penalty": 1.0},
          {"frequency_penalty": -1.0}, {"logit_bias": {"5": -100}}, {"user": "me"},
          {"extra_body": {"top_k": 5, "min_p": 0.1, "repetition_penalty": 1.2, "ignore_eos": True, "priority": 1, "parse_special": True}},
          {"extra_body": {"guided_json": SCHEMA}}, {"extra_body": {"guided_regex": "[ab]{5}"}}, {"extra_body": {"guided_choice": ["yes", "no"]}},
          {"extra_body": {"guided_grammar": 'root ::= "a" "b" [c-e] "f"'}}, {"extra_body": {"structured_outputs": {"regex": "[0-9]{4}"}}},
          {"extra_body": {"request_id": "mine", "min_tokens": 0, "use_beam_search": False}}]
CHAT = COMMON + [{"response_format": {"type": "text"}}, {"max_completion_tokens": 5}, {"tool_choice": "none"}, {"logprobs": True, "top_logprobs": 2},
                 {"response_format": {"type": "json_object"}},
                 {"response_format": {"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": SCHEMA}}},
                 {"tools": TOOLS}, {"tools": TOOLS, "tool_choice": "auto", "parallel_tool_calls": True}, {"tools": TOOLS, "tool_choice": "none"},
                 {"tools": TOOLS, "tool_choice": "required"},
                 {"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "stop"}}, "parallel_tool_calls": False},
                 {"tools": TOOLS, "extra_body": WRITE_CALLS},
                 {"tools": TOOLS, "tool_choice": "none", "extra_body": WRITE_CALLS},
                 {"modalities": ["text"]}, {"store": False, "metadata": {"a": "b"}, "service_tier": "auto"},
                 {"safety_identifier": "me", "prompt_cache_key": "mine", "prompt_cache_retention": "24h"},
                 {"prediction": {"type": "content", "content": "Hello"}}, {"extra_body": {"chat_template_kwargs": {"note": "Be brief."}}},
                 {"extra_body": {"guided_regex": "<think>[ab]{5}</think>[cd]{5}"}},
                 {"extra_body": {"guided_regex": "<think>[ab]{5}</think>[cd]{5}", "include_reasoning": False}}]
TEXT = COMMON + [{"echo": True}, {"logprobs": 2}, {"suffix": ""}, {"best_of": 1}]
STREAM = {"stream": True, "stream_options": {"include_usage": True, "include_obfuscation": False, "continuous_usage_stats": True}}
# What answers to these are of the form that a grammar says; the patterns are of whole texts.
PATTERNS = {"guided_regex": r"[ab]{5}|[cd]{5}", "guided_choice": "yes|no", "guided_grammar": "ab[c-e]f", "structured_outputs": "[0-9]{4}"}


def make_client_model(source, folder):
    """Makes a model that writes nonsense, calls tools in Hermes's form and may think. Returns its folder and the logit_bias of CLOSES."""
    model, vocab = make_random_model(source, folder)
    set_template(model, CLIENTS)
    return model, {str(vocab[text]): 6 for text in CLOSES if text in vocab}


def names_in(fields):
    names = set()
    for name, value in fields.items():
        inner = value if isinstance(value, dict) else {}
        names |= names_in(inner) if name == "extra_body" else {name, *(f"{name}.{one}" for one in inner)}
    return names


def check_all_are_sent(test, source):
    """Holds the lists to the fields that docs/serving.md has in its table, and to those that it calls accepted and without effect."""
    table, rest = (pathlib.Path(source) / "docs/serving.md").read_text().split("### Fields")[1].split("Accepted and without effect")
    listed = "".join(line.split("|")[1] for line in table.splitlines() if line.startswith("|"))
    named = set(re.findall(r"`([a-z_.]+)[`:]", listed + rest.split("Everything else")[0]))
    test.assertGreater(len(named), 45)
    sent = {"model", "messages", "prompt", "max_tokens"}.union(*map(names_in, [*CHAT, *TEXT, STREAM]))
    test.assertEqual(named - sent, set())


def calls_of(message):
    return [(call.function.name, json.loads(call.function.arguments)) for call in message.tool_calls or []]


def check_choice(test, fields, choice):
    """Holds one answer to what its request asked for."""
    extra = fields.get("extra_body", {})
    message = getattr(choice, "message", None)
    text = (message.content or "") if message else choice.text
    for stop in fields.get("stop", []):
        test.assertNotIn(stop, text)
    if extra == WRITE_CALLS:
        forbidden = fields.get("tool_choice") == "none"
        test.assertEqual((text, calls_of(message)), (WRITTEN, []) if forbidden else (BEFORE, CALLED))
        return test.assertEqual(choice.finish_reason, "stop" if forbidden else "tool_calls")
    for name, pattern in PATTERNS.items():
        if name in extra:
            test.assertRegex(text, rf"\A(?:{pattern})\Z")
    if "think" in extra.get("guided_regex", ""):
        thought = getattr(message, "reasoning_content", None) or ""
        test.assertRegex(thought, r"\A\Z" if "include_reasoning" in extra else r"\A[ab]{5}\Z")
    form = fields.get("response_format", {}).get("type")
    if form == "json_schema" or "guided_json" in extra:
        test.assertIn(json.loads(text), ALLOWED)
    if form == "json_object" and choice.finish_reason == "stop":
        test.assertIsInstance(json.loads(text), dict)
    if fields.get("tool_choice") not in (None, "none", "auto"):
        (name, arguments), = calls_of(message)
        test.assertIn(arguments, ARGUMENTS[name])
        if fields["tool_choice"] != "required":
            test.assertEqual(name, "stop")
        return test.assertEqual((choice.finish_reason, text), ("tool_calls", ""))
    if fields.get("logprobs"):
        test.assertTrue(choice.logprobs)
    test.assertIn(choice.finish_reason, ("stop", "length"))


def check_answer(test, fields, answer, most):
    """Holds an answer of at most so many tokens to what its request asked for."""
    test.assertEqual(len(answer.choices), fields.get("n", 1))
    for choice in answer.choices:
        check_choice(test, fields, choice)
    usage = answer.usage
    test.assertEqual(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens)
    test.assertLessEqual(usage.completion_tokens, most * len(answer.choices))
    if fields.get("extra_body", {}).get("ignore_eos"):
        test.assertEqual(usage.completion_tokens, most)
