"""Chat templates as the package transformers runs them (its utils/chat_template_utils.py, versions 4.5x and 5), with jinja2 alone
and a clock that stands still."""

import datetime
import json

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.sandbox

NOW = datetime.datetime(2025, 3, 9, 14, 5, 7)
REASONING = ("reasoning_content", "thinking", "reasoning")


class Generation(jinja2.ext.Extension):
    """This is {% generation %} ... {% endgeneration %}: what it holds is printed."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("printed"), [], [], body).set_lineno(line)

    def printed(self, caller):
        return caller()


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def environment():
    made = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    made.filters["tojson"] = tojson
    made.globals["raise_exception"] = raise_exception
    made.globals["strftime_now"] = NOW.strftime
    return made


def message_variables(message):
    """Returns a message without what is null, and with its reasoning under the names that templates read."""
    present = {key: value for key, value in message.items() if value is not None}
    reasoning = next((present[key] for key in REASONING if key in present), None)
    return present if reasoning is None else {"thinking": reasoning, **present, "reasoning_content": reasoning}


def render(template, variables):
    """Returns the text, or None with what is wrong."""
    try:
        return environment().from_string(template).render(**variables), None
    except Exception as error:  # Templates raise whatever Python does.
        return None, f"{type(error).__name__}: {error}"
