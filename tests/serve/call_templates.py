"""Chat templates that write the calls of tools in the forms of published models, or begin a thought."""
import json
import pathlib

THINKS = "{% for m in messages %}{{ m.role }}: {{ m.content.split('</think>')[-1] }}{% endfor %}{% if add_generation_prompt %}<think>\n{% endif %}"

BEGIN = "{% for tool in tools or [] %}{{ tool | tojson }}{% endfor %}{% for m in messages %}{{ m.role }}: {{ m.content or '' }}"
END = "{% for call in m.tool_calls or [] %}{{ 'CALL' }}{% endfor %}{{ m.tool_call_id }}{% endfor %}"
CALLS = {"hermes": "<tool_call>\\n' + call.function | tojson + '\\n</tool_call>",
         "mistral": "[TOOL_CALLS][' + call.function | tojson + ']",
         "llama": "{\"name\": \"' + call.function.name + '\", \"parameters\": ' + call.function.arguments | tojson + '}",
         "harmony": "<|start|>assistant to=functions.' + call.function.name + '<|channel|>commentary json<|message|>' + call.function.arguments | tojson + '<|call|>",
         "qwen_coder": "<tool_call>\\n<function=' + call.function.name + '>\\n' }}{% for k, v in call.function.arguments | items %}"
                       "{{ '<parameter=' + k + '>\\n' + v | string + '\\n</parameter>\\n' }}{% endfor %}{{ '</function>\\n</tool_call>",
         "glm": "<tool_call>' + call.function.name + '\\n' }}{% for k, v in call.function.arguments | items %}{{ '<arg_key>' + k + "
                "'</arg_key>\\n<arg_value>' }}{{ v if v is string else v | tojson }}{{ '</arg_value>\\n' }}{% endfor %}{{ '</tool_call>",
         "deepseek3": "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>' + call.function.name + '\\n```json\\n' + "
                      "call.function.arguments + '\\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",  # it takes arguments as a text
         "deepseek31": "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>' + call.function.name + '<｜tool▁sep｜>' + call.function.arguments | tojson + "
                       "'<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
         "unknown": "<call ' + call.function.name + '>"}
DEEPSEEK = [f"<｜tool▁{name}｜>" for name in ("calls▁begin", "call▁begin", "sep", "call▁end", "calls▁end")]
# These marks of a form are control tokens of some models.
MARKS = {"qwen_coder": ["<tool_call>", "</tool_call>"], "harmony": ["<|start|>", "<|channel|>", "<|constrain|>", "<|message|>", "<|call|>"],
         "glm": ["<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"],
         "deepseek3": DEEPSEEK, "deepseek31": DEEPSEEK}
# This template knows of channels, and writes no calls.
CHANNELS = "{% for m in messages %}<|start|>{{ m.role }}<|message|>{{ m.content }}<|end|>{% endfor %}{% if add_generation_prompt %}<|start|>assistant{% endif %}{# <|channel|> #}"

# The template of the clients' model: it has a variable, writes calls as Hermes does, and the mark in its comment says that the model may think.
CLIENTS = "{# </think> #}{{ note }}" + BEGIN + END.replace("CALL", CALLS["hermes"])


def set_template(model, template):
    config = pathlib.Path(model) / "tokenizer_config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "chat_template": template}))


def set_call_template(model, call, end=""):
    """Gives a model's folder the template that writes such calls, and ends as is said."""
    set_template(model, BEGIN + END.replace("CALL", call) + end)
