"""SmolLM2-135M-Instruct (Q4_1), dequantized to fp32 by transformers: prompts and their greedy continuations."""

import hashlib
import pathlib

import numpy as np
import torch
from gguf import GGUFReader
from tokenizers import pre_tokenizers
from transformers import AutoModelForCausalLM, AutoTokenizer

from common import DATA, MIN_MARGIN, fp32_error, margins, run_greedy, write_json
from gguf_models import unpermute

GGUF = pathlib.Path(__file__).parents[2] / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"
TOKENS = 32
TOP = 20

LONG = """The lighthouse stood at the end of a narrow spit of rock, and every evening for forty-one years Marta had \
climbed its 214 steps to light the lamp. She knew the sound of each stair, the places where the paint had come away, \
and the window on the third landing that never quite closed. In winter the wind came straight from the north and \
pushed the salt into everything: the bread, the blankets, the pages of the log book in which she wrote the weather \
twice a day.

On the morning of 3 November the supply boat did not come. At first she thought nothing of it, for the sea was high \
and the captain was careful. But on the fourth day she began to count what was left: two sacks of flour, a tin of oil, \
eleven candles, and a little coffee. She wrote the numbers down, looked at them for a while, and then went up to the \
lamp room, where she could see all the way to the harbour. What she saw there"""

PROMPTS = {
    "english": "Photosynthesis is the process by which",
    "python": 'def fibonacci(n):\n    """Return the n-th Fibonacci number."""\n'
    "    if n < 2:\n        return n\n    return",
    "c": "#include <stdio.h>\n\nint main(void) {\n    for (int i = 0; i < 10; i++) {\n",
    "french": "Bonjour ! Je m'appelle Hélène et j'habite à",
    "german": "Die Hauptstadt von Österreich heißt Wien. Die Hauptstadt von Deutschland heißt",
    "numbers": "Here are the first prime numbers, in order: 2, 3, 5, 7, 11,",
    "mixed": 'It\'s  a "naïve" test – 🙂👩‍👩‍👧 \t(tab)\n\n\n   1234 + 5678 = 6912;  日本語 and Русский.\n\nThe text above',
    "long": LONG,
}
CHATS = {
    "chat": [{"role": "user", "content": "What is gravity?"}],
    "chat_turns": [
        {"role": "system", "content": "You answer in one short sentence."},
        {"role": "user", "content": "Hello! Who are you?"},
        {"role": "assistant", "content": "I am a small language model."},
        {"role": "user", "content": "Why is the sky blue?"},
    ],
}


def load_tokenizer():
    """transformers takes GPT-2's splitting for every GGUF vocabulary; `smollm` also sets every digit apart."""
    tokenizer = AutoTokenizer.from_pretrained(GGUF.parent, gguf_file=GGUF.name)
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    return tokenizer


def dequantize_q4_1(blocks):
    """Rows of 20-byte blocks: scale, minimum (half), 16 bytes of 4-bit q, low halves first; w = q * scale + minimum."""
    blocks = blocks.reshape(blocks.shape[0], -1, 20)
    scale, minimum = (blocks[..., i : i + 2].copy().view("<f2").astype(np.float32) for i in (0, 2))
    packed = blocks[..., 4:]
    quants = np.concatenate([packed & 15, packed >> 4], axis=-1).astype(np.float32)
    return (quants * scale + minimum).reshape(blocks.shape[0], -1)


def check_weights(model):
    """What transformers loaded must be what the file says, with Q and K back in rotate-halves order."""
    tensors = {tensor.name: tensor.data for tensor in GGUFReader(GGUF).tensors}
    attention = model.model.layers[7].self_attn
    roles = [("attn_q", 9, attention.q_proj), ("attn_k", 3, attention.k_proj), ("attn_v", 0, attention.v_proj)]
    for name, heads, loaded in roles:
        expected = dequantize_q4_1(tensors[f"blk.7.{name}.weight"])
        expected = unpermute(expected, heads) if heads else expected
        if not np.array_equal(expected, loaded.weight.detach().numpy()):
            raise RuntimeError(f"{name}: transformers' weights are not those of the file")


def make_all():
    tokenizer = load_tokenizer()
    model = AutoModelForCausalLM.from_pretrained(
        GGUF.parent, gguf_file=GGUF.name, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    check_weights(model)

    texts = dict(PROMPTS)
    for name, messages in CHATS.items():
        texts[name] = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    entries = []
    for name, text in texts.items():
        ids = tokenizer.encode(text)
        if tokenizer.decode(ids) != text:
            raise RuntimeError(f"{name}: the ids do not give the text back")
        tokens, logits = run_greedy(model, ids, TOKENS)
        first = logits[len(ids) - 1]
        entry = {
            "name": name,
            "text": text,
            "ids": ids,
            "greedy": tokens,
            "greedy_text": tokenizer.decode(tokens),
            "margins": [float(f"{m:.3e}") for m in margins(logits[len(ids) - 1 :])],
            "first_max_abs": float(np.abs(first).max()),
            "first_top": [{"id": int(i), "logit": float(first[i])} for i in np.argsort(-first, kind="stable")[:TOP]],
        }
        if min(entry["margins"]) <= MIN_MARGIN:
            raise RuntimeError(f"{name}: a choice is too close: {entry['greedy_text']!r} {entry['margins']}")
        entry["fp32_error"] = float(f"{fp32_error(model, entry, logits):.1e}")
        entries.append(entry)
    folder = DATA / "smollm2"
    folder.mkdir(parents=True, exist_ok=True)
    header = {"file": GGUF.name, "sha256": hashlib.sha256(GGUF.read_bytes()).hexdigest()}
    write_json(folder / "golden.json", {**header, "prompts": entries})
