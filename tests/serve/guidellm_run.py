#!/usr/bin/env python3
"""guidellm_run.py TENON MODEL TOKENIZER [SECONDS]: guidellm's load against a real server.

    python3 -m venv build/guidellm && build/guidellm/bin/pip install guidellm
    build/guidellm/bin/python tests/serve/guidellm_run.py build/release/bin/tenon models/SmolLM2-135M-Instruct.Q4_1.gguf TOKENIZER

TOKENIZER is a Hugging Face folder with the model's tokenizer, which guidellm makes its prompts with. Completions of 64 and 64
tokens by 1, 2, 4, 8 and 16 clients, SECONDS each (20). It is run by hand, since guidellm brings along gigabytes;
docs/benchmarks.md has figures."""
import pathlib
import subprocess
import sys

from server import Server


def main():
    tenon, model, tokenizer, *rest = sys.argv[1:]
    with Server(tenon, model, ["kv_cache.capacity=256", "scheduler.sequences=16"],
                ["--served-model-name", "model", "--threads", "2"]) as server:
        command = [
            str(pathlib.Path(sys.executable).parent / "guidellm"), "run", "--disable-progress",
            "--backend", f"kind=openai_http,target={server.url},model=model,request_format=/v1/completions",
            "--tokenizer", f"kind=hf_auto,model={tokenizer}",
            "--data", "kind=synthetic_text,prompt_tokens=64,output_tokens=64",
            "--profile", "kind=concurrent", "--override", "profile.streams", "1,2,4,8,16",
            "--constraint", f"kind=max_duration,seconds={rest[0] if rest else 20}", "--output", "kind=console"]
        code = subprocess.run(command).returncode
        metrics = server.metrics()
        ended = {reason: int(metrics[reason]) for reason in ["stop", "length", "abort", "error"]}
        print(f"the server's own count: {ended}, {int(metrics['vllm:generation_tokens_total'])} tokens")
        if metrics["length"] == 0:
            raise SystemExit("no request was answered")
        return code or server.end()


if __name__ == "__main__":
    sys.exit(main())
