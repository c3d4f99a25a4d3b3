"""Makes data/jinja.json, what jinja2 makes of small templates, and data/chat_templates.json, what it makes of published
templates with conversations: a hash of each text (FNV-1a, 64 bits), or "error". Run as make_chat_cases.py [FOLDER], where
scripts/fetch_chat_templates.sh put the templates."""

import json
import pathlib
import sys

import chat_conversations
import jinja_cases
from chat_environment import message_variables, render

HERE = pathlib.Path(__file__).parent


def fnv1a(text):
    result = 0xCBF29CE484222325
    for byte in text.encode():
        result = ((result ^ byte) * 0x100000001B3) % 2**64
    return f"{result:016x}"


def write(name, value):
    text = json.dumps(value, ensure_ascii=True, indent=0)
    (HERE / "data" / name).write_text(text + "\n")


def features():
    answers = []
    for template in jinja_cases.cases():
        text, error = render(template, jinja_cases.VARIABLES)
        answers.append({"template": template, "error": error} if text is None else {"template": template, "text": text})
    return {"variables": jinja_cases.VARIABLES, "cases": answers}


def templates(folder):
    conversations = {}
    for name, conversation in chat_conversations.CONVERSATIONS.items():
        messages = [message_variables(message) for message in conversation["messages"]]
        conversations[name] = chat_conversations.variables({**conversation, "messages": messages})
    answers = {}
    for path in sorted(folder.glob("*.jinja")):
        source = path.read_bytes().decode()
        texts = (render(source, variables)[0] for variables in conversations.values())
        answers[path.name] = ["error" if text is None else fnv1a(text) for text in texts]
    return {"conversations": conversations, "answers": answers}


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else HERE.parents[1] / "build/chat_templates")
    write("jinja.json", features())
    write("chat_templates.json", templates(folder))


main()
