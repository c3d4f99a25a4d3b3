"""Conversations that are rendered by every template, as variables of the template."""

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city, \"now\" or <later>.",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "Where; é, 你好 & 'quotes'"},
                "days": {"type": "integer", "default": 3, "minimum": 0},
                "unit": {"type": "string", "enum": ["C", "F"]},
                "share": {"type": "number", "default": 0.7},
                "tags": {"type": "array", "items": {"type": "string"}},
                "maybe": {"type": ["string", "null"]},
            },
            "required": ["city"],
        },
    },
}
CLOCK = {"type": "function", "function": {"name": "clock", "description": "The time.", "parameters": {"type": "object", "properties": {}}}}
FULL = {"type": "function", "function": {**WEATHER["function"], "strict": True, "return": {"type": "string", "description": "a text"}}}


def user(content):
    return {"role": "user", "content": content}


def assistant(content, **more):
    return {"role": "assistant", "content": content, **more}


def system(content):
    return {"role": "system", "content": content}


def called(name, arguments, identity="call00001"):
    return {"id": identity, "type": "function", "function": {"name": name, "arguments": arguments}}


def tool(content, identity="call00001", name="get_weather"):
    return {"role": "tool", "name": name, "tool_call_id": identity, "content": content}


TURNS = [user("Hi"), assistant("Hello there."), user("  How are you?\n")]
ONE_CALL = [user("Weather in Paris?"), assistant("", tool_calls=[called("get_weather", {"city": "Paris", "days": 2})]),
            tool('{"temperature": 21.5}')]  # fmt: skip
TWO_CALLS = [user("Weather in Paris, and the time?"),
             assistant("Let me look.", tool_calls=[called("get_weather", {"city": "Paris", "tags": ["a", "b"], "share": 0.25, "maybe": None}),
                                                   called("clock", {}, "call00002")]),
             tool("21 degrees"), tool("12:00", "call00002", "clock"), assistant("It is 21 degrees at noon."), user("Thanks!")]  # fmt: skip

CONVERSATIONS = {
    "plain": {"messages": [user("Why is the sky blue?")]},
    "no prompt": {"messages": [user("Why?"), assistant("Because.")], "add_generation_prompt": False},
    "system": {"messages": [system("Be brief."), user("Why is the sky blue?")]},
    "turns": {"messages": [system(" Be kind. "), *TURNS]},
    "developer": {"messages": [{"role": "developer", "content": "Be brief."}, user("Hi")]},
    "empty contents": {"messages": [system(""), user(""), assistant(""), user("")]},
    "content of parts": {"messages": [user([{"type": "text", "text": "One."}, {"type": "text", "text": "Two."}])]},
    "names of special tokens": {"messages": [system("<|im_end|></s>"), user("<|im_start|>system\n<|eot_id|>[/INST]<|end|>"),
                                             assistant("<think>no</think>x</s>"), user("{{ bos_token }}{% if %}")]},
    "two users": {"messages": [user("One"), user("Two")]},
    "two assistants": {"messages": [user("One"), assistant("Two"), assistant("Three"), user("Four")]},
    "assistant first": {"messages": [assistant("Hello"), user("Hi")]},
    "system last": {"messages": [user("Hi"), system("Be brief.")]},
    "unknown role": {"messages": [user("Hi"), {"role": "critic", "content": "No."}]},
    "no messages": {"messages": []},
    "no content": {"messages": [{"role": "user"}]},
    "null content": {"messages": [user("Hi"), assistant(None), user("Ho")]},
    "number for a content": {"messages": [user(7)]},
    "many turns": {"messages": [m for i in range(5) for m in (user(f"Question {i}"), assistant(f"Answer {i}"))] + [user("Last")]},
    "unicode": {"messages": [user("日本語 🙂 é\u00a0 \u2028 \x00\x1f\x7f"), assistant("\tzwei\r\nZeilen"), user("ʼ")]},
    "tools, none called": {"messages": [user("Hi")], "tools": [WEATHER, CLOCK]},
    "tools and system": {"messages": [system("Be brief."), user("Hi")], "tools": [FULL]},
    "one call": {"messages": ONE_CALL, "tools": [WEATHER]},
    "two calls": {"messages": TWO_CALLS, "tools": [WEATHER, CLOCK]},
    "arguments as text": {"messages": [user("Weather?"), assistant(None, tool_calls=[called("get_weather", '{"city": "Paris"}')]), tool("ok")],
                          "tools": [WEATHER]},
    "calls without tools": {"messages": ONE_CALL},
    "result of parts": {"messages": [*ONE_CALL[:2], tool([{"type": "text", "text": "sunny"}])], "tools": [WEATHER]},
    "bare tools": {"messages": [user("Hi")], "tools": [WEATHER["function"]]},
    "no tools": {"messages": [user("Hi")], "tools": []},
    "result with special tokens": {"messages": [*ONE_CALL[:2], tool("</tool_response><|im_end|>")], "tools": [WEATHER]},
    "reasoning": {"messages": [user("2+2?"), assistant("4", reasoning_content="Two and two."), user("3+3?")]},
    "reasoning in the content": {"messages": [user("2+2?"), assistant("<think>\nTwo and two.\n</think>\n\n4"), user("3+3?")]},
    "reasoning and a call": {"messages": [ONE_CALL[0], {**ONE_CALL[1], "reasoning": "I look."}, ONE_CALL[2]], "tools": [WEATHER]},
    "thinking off": {"messages": [user("2+2?")], "enable_thinking": False, "thinking": False, "reasoning_effort": "low"},
    "thinking on": {"messages": [system("Be brief."), user("2+2?")], "enable_thinking": True, "thinking": True, "reasoning_effort": "high"},
    "documents": {"messages": [user("Who?")], "documents": [{"title": "A", "text": "Ann"}, {"title": "B", "text": "Bob"}]},
}  # fmt: skip


def variables(conversation):
    """Returns what transformers gives a template."""
    return {"tools": None, "documents": None, "add_generation_prompt": True, "bos_token": "<s>", "eos_token": "</s>",
            "unk_token": "<unk>", "pad_token": "<pad>", **conversation}  # fmt: skip
