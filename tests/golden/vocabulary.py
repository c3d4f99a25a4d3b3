"""The vocabulary of every tiny model: 260 tokens, byte-level BPE in GPT-2's alphabet.

0 <s>, 1 </s>, 2..257 the bytes 0..255, 258 "Ġt", 259 "he".
"""

SPECIALS = ["<s>", "</s>"]
MERGES = [("Ġ", "t"), ("h", "e")]
SENTENCE = "The other bird, on the theatre's roof in 1997: é"


def byte_alphabet():
    """The printable stand-in for each byte, as GPT-2 chose them."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    spare = iter(range(0x100, 0x200))
    return [chr(b) if b in printable else chr(next(spare)) for b in range(256)]


def tokens():
    return SPECIALS + byte_alphabet() + [a + b for a, b in MERGES]


def tokenizer():
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    made = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(tokens())}, merges=MERGES))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in SPECIALS])
    return made
