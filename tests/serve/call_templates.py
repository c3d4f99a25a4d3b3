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
         "unknown": "<call ' + call.function.name + '>"}
# This template knows of channels, and writes no calls.
CHANNELS = "{% for m in messages %}<|start|>{{ m.role }}<|message|>{{ m.content }}<|end|>{% endfor %}{% if add_generation_prompt %}<|start|>assistant{% endif %}{# <|channel|> #}"

# The template of the clients' model: it has a variable, writes calls as Hermes does, and the mark in its comment says that the model may think.
CLIENTS = "{# </think> #}{{ note }}" + BEGIN + END.replace("CALL", CALLS["hermes"])


def set_template(model, template):
    config = pathlib.Path(model) / "tokenizer_config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "chat_template": template}))


def set_call_template(model, call):
    """Gives a model's folder the template that writes such calls."""
    set_template(model, BEGIN + END.replace("CALL", call))
