#!/usr/bin/env python3
"""Makes tests/data/tokenizer: small tokenizers and what the published libraries answer for odd strings.

Needs PyPI's tokenizers, sentencepiece, protobuf, gguf and jinja2. The vocabularies are trained on the texts given with
--text (Debian's /usr/share/common-licenses by default) and on the odd strings themselves. Real vocabularies, given as
--gguf NAME=PRE=FILE, are cut down to the tokens and merges that the odd strings can touch: what is left encodes those
strings as the whole does.

    python3 scripts/make_tokenizer_goldens.py --gguf smollm2=smollm=models/SmolLM2-135M-Instruct.Q4_1.gguf
"""

import argparse
import io
import json
import pathlib
import re

import gguf
import jinja2
import jinja2.sandbox
import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

OUT = pathlib.Path(__file__).resolve().parent.parent / "tests" / "data" / "tokenizer"

STRINGS = [
    "", " ", "  ", "   ", "\t", "\n", "\n\n", "\n\n\n", "\r\n", " \n", "\n ", "\t\n \r\n\t ", "a", " a", "a ", "  a  b   c    d",
    "Hello, world!", "The quick brown fox jumps over the lazy dog.",
    "I'm you're he's we'll they'd I've don't", "I'M YOU'RE HE'S WE'LL THEY'D I'VE DON'T", "'s 'S '\u017f 'll'LL ''' it''s",
    "0 1 12 123 1234 12345 123456 1234567", "3.14159 1,000,000.50 -42 +7 1e-9 0x1F",
    "\u0663\u0664\u0665 \u0967\u0968\u0969 \u00b2\u00b3 \u00bd \u2167 \u2460\u2461 \uff11\uff12",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466 family", "\U0001f44d\U0001f3fd\U0001f44d \u2764\ufe0f \U0001f1e9\U0001f1ea\U0001f1eb",
    "\U0001f600\U0001f600\U0001f600", "caf\u00e9 cafe\u0301 \u00c5 A\u030a \u212b \u1ec7 e\u0323\u0302 e\u0302\u0323", "\u0301\u0323 leading marks",
    "\ufb01ne \uff46\uff55\uff4c\uff4c \u2126 \u212a \u01c5 \ufdfa", "\u4f60\u597d\uff0c\u4e16\u754c\u3002 \u6211 love \u4e2d\u6587 and \u65e5\u672c\u8a9e\u3067\u3059\u3002",
    "\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440! \u0395\u03bb\u03bb\u03b7\u03bd\u03b9\u03ba\u03ac", "\u0645\u0631\u062d\u0628\u0627 \u0628\u0627\u0644\u0639\u0627\u0644\u0645",
    "\u0928\u092e\u0938\u094d\u0924\u0947 \u0926\u0941\u0928\u093f\u092f\u093e", "\uc548\ub155\ud558\uc138\uc694 \u1112\u1161\u11ab\uae00", "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35\u0e0a\u0e32\u0e27\u0e42\u0e25\u0e01",
    "mixed\u4e2d\u6587mixed\u0440\u0443\u0441123abc\u00e9\u00e8", "def f(x):\n    if x > 0:\n\treturn x**2  # comment\n\n\n    return None\n",
    "<p class=\"a\">x &amp; y</p>", "https://example.org/a/b?c=d&e=f#g", "foo_bar __init__ camelCase SCREAMING_CASE",
    "!!! ??? ... --- *** === ### $$$ %%% ^^^ ~~~ ```", "(a)[b]{c}<d>\"e\"'f'", "a\u00a0b\u2003c\u3000d\u180ee\u200bf\u2028g\u0085h\u202fi",
    "\u0000 \u0001 \u001f \u007f \u0080", "tab\tsep\tvalues\n1\t2\t3\n", "trailing blanks    ", "    leading blanks", "line\r\nline\rline\n",
    " \u2581\u2581 meta \u2581space", "<0x0A> <0xE2>", "a" * 70, "ab" * 40, " " * 70, "=" * 65 + "\n" * 40, "supercalifragilisticexpialidocious" * 3,
    "\U0010ffff \ue000 \ufffd", "\u200d\u200c\u2060", "I\u0307 \u0130 \u0131 \u00df \u1e9e \u03a3\u03c3\u03c2",
]
SPECIAL = [
    "<|endoftext|>", "a<|endoftext|>b", " <|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n", "<s>x</s> <s> y", "<|im_start|><|im_start|>",
    "<|im_start", "<|im_end|> <|im_end|>", "\n<|endoftext|>\n\n",
]
TEXT = STRINGS + SPECIAL

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
HAN = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"


def split(*patterns):
    return [pre_tokenizers.Split(Regex(p), "isolated") for p in patterns]


def byte_level(use_regex):
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex)


def digits():
    return pre_tokenizers.Digits(individual_digits=True)


# The published pre-tokenizers by their GGUF names.
PRE = {
    "gpt2": [byte_level(True)],
    "llama-bpe": split(LLAMA3) + [byte_level(False)],
    "smollm": [digits(), byte_level(True)],
    "qwen2": split(LLAMA3.replace("{1,3}", "")) + [byte_level(False)],
    "deepseek-coder": split("[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", HAN) + [digits(), byte_level(False)],
}
NFC = {"qwen2"}


def write(path, data):
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        json.dump(data, file, ensure_ascii=True, separators=(",", ":"))
        file.write("\n")


def goldens(tokenizer):
    """Ids of every string: with special tokens and what encode() adds, and as plain text."""
    tokenizer.encode_special_tokens = False
    full = [tokenizer.encode(s).ids for s in TEXT]
    decoded = [tokenizer.decode(ids, skip_special_tokens=True) for ids in full]
    tokenizer.encode_special_tokens = True
    plain = [tokenizer.encode(s, add_special_tokens=False).ids for s in TEXT]
    tokenizer.encode_special_tokens = False
    return {"text": TEXT, "full": full, "plain": plain, "decoded": decoded}


def save(name, tokenizer):
    folder = OUT / name
    folder.mkdir(parents=True, exist_ok=True)
    document = json.loads(tokenizer.to_str())
    write(folder / "tokenizer.json", document)
    write(folder / "golden.json", goldens(tokenizer))


def train_byte_level(name, texts):
    tokenizer = Tokenizer(models.BPE(ignore_merges=name == "llama-bpe"))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(PRE[name])
    tokenizer.decoder = decoders.ByteLevel()
    if name in NFC:
        tokenizer.normalizer = normalizers.NFC()
    special = [AddedToken(t, special=True, normalized=False) for t in ("<|endoftext|>", "<|im_start|>", "<|im_end|>")]
    trainer = trainers.BpeTrainer(vocab_size=1000, special_tokens=special, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(texts, trainer)
    if name == "llama-bpe":
        tokenizer.post_processor = processors.TemplateProcessing(single="<|im_start|> $A",
                                                                 special_tokens=[("<|im_start|>", 1)])
    save(name, tokenizer)


def train_fallback(texts):
    """BPE with byte fallback and the added tokens' flags, spaces as U+2581: Llama 2's form, and one with many steps."""
    vocabulary = {"<unk>": 0, "<s>": 1, "</s>": 2}
    vocabulary.update({f"<0x{b:02X}>": b + 3 for b in range(256)})
    inner = Tokenizer(models.BPE())
    inner.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    inner.pre_tokenizer = pre_tokenizers.Split("\u2581", "merged_with_next")
    inner.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=900, show_progress=False, max_token_length=16,
                                                        limit_alphabet=150))
    trained = json.loads(inner.to_str())["model"]
    for token in sorted(trained["vocab"], key=trained["vocab"].get):
        vocabulary.setdefault(token, len(vocabulary))
    merges = [tuple(m) for m in trained["merges"]]

    def build(normalizer, pre_tokenizer, decoder, flags):
        tokenizer = Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
        tokenizer.normalizer = normalizer
        tokenizer.pre_tokenizer = pre_tokenizer
        tokenizer.decoder = decoder
        tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A </s>",
                                                                 special_tokens=[("<s>", 1), ("</s>", 2)])
        tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in ("<unk>", "<s>", "</s>")])
        tokenizer.add_tokens([AddedToken("<|im_start|>", special=True, normalized=False, **flags),
                              AddedToken("quick", single_word=True), AddedToken("fox jumps", normalized=True)])
        return tokenizer

    step = normalizers
    save("llama2", build(
        step.Sequence([step.Prepend("\u2581"), step.Replace(" ", "\u2581")]), None,
        decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(),
                           decoders.Strip(" ", 1, 0)]), {}))
    save("steps", build(
        step.Sequence([step.Strip(), step.Lowercase(), step.NFKD(), step.Replace(Regex(r"[\u0300-\u036f]+"), "")]),
        pre_tokenizers.Sequence([
            pre_tokenizers.Split(Regex(r"\p{N}+"), "contiguous"), pre_tokenizers.Split(",", "merged_with_previous"),
            pre_tokenizers.Split(Regex(r"[#$]"), "removed"), pre_tokenizers.Punctuation(),
            pre_tokenizers.Metaspace(prepend_scheme="first")]),
        decoders.Metaspace(prepend_scheme="first"), {"lstrip": True, "rstrip": True}))


def train_sentencepiece(texts):
    """A model like Llama's, and a unigram model with precompiled normalization rules."""
    rules = OUT / "rules.tsv"
    rules.write_text("41\t61\nFB01\t66 69\n300 301\t\n", encoding="utf-8")
    common = {"bos_id": 1, "eos_id": 2, "unk_id": 0, "num_threads": 1, "minloglevel": 2}
    kinds = {
        "sentencepiece": {"model_type": "bpe", "vocab_size": 700, "byte_fallback": True, "split_digits": True,
                          "normalization_rule_name": "identity", "remove_extra_whitespaces": False,
                          "user_defined_symbols": ["<|im_start|>"]},
        "unigram": {"model_type": "unigram", "vocab_size": 400, "normalization_rule_tsv": str(rules)},
    }
    sentences = [line for text in texts for line in text.split("\n") if line.strip() and "\0" not in line]
    for name, options in kinds.items():
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(sentences), model_writer=model, **common, **options)
        folder = OUT / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "tokenizer.model").write_bytes(model.getvalue())
        processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
        plain = [processor.encode(s) for s in TEXT]
        proto = sentencepiece_model_pb2.ModelProto()
        proto.ParseFromString(model.getvalue())
        pieces = [[p.piece, p.score, p.type] for p in proto.pieces]
        write(folder / "golden.json", {"text": TEXT, "plain": plain, "decoded": [processor.decode(i) for i in plain],
                                       "pieces": pieces if name == "sentencepiece" else []})
    rules.unlink()


def trim(name, pre, path):
    """The part of a real byte-level vocabulary that the strings can touch, and the whole one's answers."""
    fields = gguf.GGUFReader(path).fields
    tokens = fields["tokenizer.ggml.tokens"].contents()
    types = fields["tokenizer.ggml.token_type"].contents()
    merges = [tuple(m.split(" ")) for m in fields["tokenizer.ggml.merges"].contents()]
    ids = {token: i for i, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(ids, merges, ignore_merges=pre == "llama-bpe"))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(PRE[pre])
    tokenizer.decoder = decoders.ByteLevel()
    if pre in NFC:
        tokenizer.normalizer = normalizers.NFC()
    special = [t for t, kind in zip(tokens, types) if kind == 3 and not t.startswith("[PAD")]
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in special])

    rank = {pair: i for i, pair in enumerate(merges)}
    seen = set()
    for text in TEXT:
        normal = tokenizer.normalizer.normalize_str(text) if tokenizer.normalizer else text
        for cut in [normal] + [part for mark in special for part in normal.split(mark)]:
            for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(cut):
                symbols = list(word)
                while True:
                    pairs = [p for p in zip(symbols, symbols[1:]) if p in rank]
                    seen.update(pairs)
                    if not pairs:
                        break
                    best = min(pairs, key=rank.get)
                    at = next(i for i, p in enumerate(zip(symbols, symbols[1:])) if p == best)
                    symbols[at:at + 2] = ["".join(best)]
    kept = sorted(seen, key=rank.get)
    needed = set(pre_tokenizers.ByteLevel.alphabet()) | {"".join(p) for p in kept} | {t for p in kept for t in p}
    write(OUT / f"{name}.json", {
        "pre": pre, "vocabulary": len(tokens), "special": {t: ids[t] for t in special if t in "".join(TEXT)},
        "tokens": {t: ids[t] for t in sorted(needed & ids.keys(), key=ids.get)}, "merges": [" ".join(p) for p in kept],
        **goldens(tokenizer)})


CHATML = ("{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\n"
          "You are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n' }}{% endif %}{{'<|im_start|>' +"
          " message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}"
          "{{ '<|im_start|>assistant\n' }}{% endif %}")
PLAIN_CHATML = ("{{ bos_token }}{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] |"
                " trim + '<|im_end|>' + '\\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}"
                "{% endif %}")
LLAMA2 = ("{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set system_message ="
          " messages[0]['content'] %}{% else %}{% set loop_messages = messages %}{% set system_message = false %}{% endif %}"
          "{% for message in loop_messages %}{% if loop.index0 == 0 and system_message != false %}{% set content ="
          " '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + message['content'] %}{% else %}{% set content ="
          " message['content'] %}{% endif %}{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() +"
          " ' [/INST]' }}{% elif message['role'] == 'assistant' %}{{ ' '  + content.strip() + ' ' + eos_token }}{% endif %}"
          "{% endfor %}")
LLAMA3 = ("{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = '<|start_header_id|>' +"
          " message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}"
          "{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}{% if add_generation_prompt %}"
          "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}")
DATED = """{{- bos_token }}
{%- if not date_string is defined %}
    {%- set date_string = "26 Jul 2024" %}
{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{{- "Cutting Knowledge Date: December 2023\\n" }}
{{- "Today Date: " + date_string + "\\n\\n" }}
{{- system_message }}
{{- "<|eot_id|>" }}
{%- for message in messages %}
    {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
"""
ZEPHYR = """{% for message in messages %}
{% if message['role'] == 'user' %}
{{ '<|user|>\n' + message['content'] + eos_token }}
{% elif message['role'] == 'system' %}
{{ '<|system|>\n' + message['content'] + eos_token }}
{% elif message['role'] == 'assistant' %}
{{ '<|assistant|>\n'  + message['content'] + eos_token }}
{% endif %}
{% if loop.last and add_generation_prompt %}
{{ '<|assistant|>' }}
{% endif %}
{% endfor %}"""


def chats():
    """Conversations as the templates render them, in the environment that transformers runs them in."""
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    system, user = {"role": "system", "content": " Be brief.\n"}, {"role": "user", "content": "  Hello \n"}
    answer, more = {"role": "assistant", "content": " Hi there! "}, {"role": "user", "content": "Bye\n\nnow"}
    blank = {"role": "user", "content": " \n"}
    stated = LLAMA2.replace("set system_message = false", r"set system_message = 'Don\'t lie.\n'")
    cases = []
    for name, source in (("chatml", CHATML), ("chatml", PLAIN_CHATML), ("llama-2", LLAMA2), ("llama-2", stated), ("llama-3", LLAMA3),
                         ("llama-3", DATED), ("zephyr", ZEPHYR)):
        for messages in ([user], [system, user], [user, answer, more], [system, user, answer, more], [blank],
                         [system, blank]):
            for prompt in (True, False):
                text = environment.from_string(source).render(messages=messages, add_generation_prompt=prompt,
                                                              bos_token="<s>", eos_token="</s>")
                cases.append({"name": name, "template": source, "messages": messages, "prompt": prompt, "text": text})
    write(OUT / "chats.json", cases)


def deepseek_llm():
    """The list of letters is long: it is read from the table, so this row tests the encoder and not the list."""
    table = (OUT.parent.parent.parent / "core" / "model" / "tokenizer" / "pre_tokenizer_table.cc").read_text("utf-8")
    lists = []
    for name in ("kDeepSeekLetters", "kDeepSeekMarks"):
        start = table.index(f"string_view {name} =")
        lists.append("".join(re.findall(r'R"\((.*?)\)"', table[start:table.index(";", start)])))
    return split("[\r\n]", *lists, r"\s+$", HAN) + [digits(), byte_level(False)]


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--text", default="/usr/share/common-licenses", help="folder of texts to train on")
    arguments.add_argument("--gguf", action="append", default=[], metavar="NAME=PRE=FILE", help="a real vocabulary to cut")
    options = arguments.parse_args()
    texts = [p.read_text("utf-8") for p in sorted(pathlib.Path(options.text).iterdir()) if p.is_file()] + TEXT * 20
    for name in PRE:
        train_byte_level(name, texts)
    train_fallback(texts)
    train_sentencepiece(texts)
    chats()
    PRE["deepseek-llm"] = deepseek_llm()
    for real in options.gguf:
        trim(*real.split("="))


if __name__ == "__main__":
    main()
