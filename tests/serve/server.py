"""A `tenon serve` process for tests, and plain requests to it."""
import concurrent.futures
import http.client
import json
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.parse

# This template is Zephyr's.
TEMPLATE = """{% for message in messages %}
{% if message['role'] == 'user' %}
{{ '<|user|>\\n' + message['content'] + eos_token }}
{% elif message['role'] == 'system' %}
{{ '<|system|>\\n' + message['content'] + eos_token }}
{% elif message['role'] == 'assistant' %}
{{ '<|assistant|>\\n' + message['content'] + eos_token }}
{% endif %}
{% if loop.last and add_generation_prompt %}
{{ '<|assistant|>' }}
{% endif %}
{% endfor %}"""


def make_model(source, folder):
    """Makes a small model that can chat, with room for answers that take seconds."""
    path = pathlib.Path(folder) / "tiny-chat"
    shutil.copytree(pathlib.Path(source) / "tests/golden/data/tiny-gqa-untied", path)
    config = json.loads((path / "config.json").read_text())
    config["max_position_embeddings"] = 40000
    (path / "config.json").write_text(json.dumps(config))
    (path / "tokenizer_config.json").write_text(
        json.dumps({"eos_token": "</s>", "bos_token": "<s>", "chat_template": TEMPLATE}))
    return str(path)


def in_threads(function, items, threads=None):
    """Returns the function's results in the order of the items, of which so many are under way at once: all, if no number is given."""
    with concurrent.futures.ThreadPoolExecutor(threads or len(items)) as pool:
        return list(pool.map(function, items))


class Server:
    """Ends with the block. `sets` are overrides, `options` further words."""

    def __init__(self, program, model, sets=(), options=()):
        words = [program, "serve", model, "--port", "0"]
        for one in sets:
            words += ["--set", one]
        self.log = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(words + list(options), stdout=subprocess.PIPE, stderr=self.log, text=True)
        self.url = self.process.stdout.readline().strip()
        if not self.url:
            raise AssertionError(f"the server did not start ({self.process.wait()}): {self.errors()}")
        parts = urllib.parse.urlsplit(self.url)
        self.host, self.port = parts.hostname, parts.port

    def errors(self):
        self.log.seek(0)
        return self.log.read()

    def connect(self, timeout=120):
        return http.client.HTTPConnection(self.host, self.port, timeout=timeout)

    def socket(self, timeout=120):
        return socket.create_connection((self.host, self.port), timeout=timeout)

    def ask(self, path, body=None, headers=None, method=None, connection=None):
        """Returns status, headers and the body: JSON if it is."""
        own = connection or self.connect()
        if body is not None and not isinstance(body, (bytes, str)):
            body = json.dumps(body)
        own.request(method or ("GET" if body is None else "POST"), path, body, headers or {})
        response = own.getresponse()
        text = response.read()
        if not connection:
            own.close()
        if response.headers.get("Content-Type", "").startswith("application/json") and text:
            text = json.loads(text)
        return response.status, response.headers, text

    def complete(self, prompt, path="/v1/completions", **fields):
        body = dict(fields, prompt=prompt) if path == "/v1/completions" else dict(fields, messages=prompt)
        status, _, answer = self.ask(path, body)
        assert status == 200, (status, answer)
        return answer

    def stream(self, prompt, path="/v1/completions", **fields):
        """Returns the objects of a stream; the last line has to say that it is done."""
        body = dict(fields, stream=True)
        body["prompt" if path == "/v1/completions" else "messages"] = prompt
        own = self.connect()
        own.request("POST", path, json.dumps(body))
        response = own.getresponse()
        text = response.read().decode()
        own.close()
        assert response.status == 200, text
        lines = text.split("\n\n")
        assert lines[-2:] == ["data: [DONE]", ""], lines[-2:]
        return [json.loads(line.removeprefix("data: ")) for line in lines[:-2]]

    def metrics(self):
        """Returns them by name, summed over labels; and by name and finished_reason."""
        _, _, text = self.ask("/metrics")
        values = {}
        for line in text.decode().splitlines():
            if line.startswith("#"):
                continue
            name, labels, value = re.match(r"([^{ ]+)(\{.*\})? (\S+)$", line).groups()
            reason = re.search(r'finished_reason="(\w+)"', labels or "")
            values[name] = values.get(name, 0) + float(value)
            if reason:
                values[reason[1]] = float(value)
        return values

    def end(self, number=signal.SIGTERM, timeout=60):
        """Returns the exit code. What the server said is printed where it is not 0: a sanitizer's report, for example."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        code = self.process.wait(timeout)
        if code != 0:
            print(f"the server ended with {code}:\n{self.errors()[-20000:]}", file=sys.stderr)
        return code

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        if kind:
            print(self.errors())
        self.log.close()
