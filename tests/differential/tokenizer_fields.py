"""The keys of a tokenizer's files that are varied, taken from those who define them: what the tokenizer classes of
transformers' decoders take and look up, the members of an added token, and what gguf-py's constants name."""

import inspect
import re

import transformers
from gguf.constants import Keys
from tokenizers import AddedToken
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

CLASSES = ["LlamaTokenizer", "CodeLlamaTokenizer", "GPT2Tokenizer", "GPTNeoXTokenizer", "Qwen2Tokenizer", "GemmaTokenizer",
           "CohereTokenizer"]  # fmt: skip
LOOK_UPS = [r"""kwargs\.(?:get|pop|setdefault)\(\s*"([a-z_]+)\"""", r"""kwargs\["([a-z_]+)"\]""",
            r""""([a-z_]+)" (?:not )?in (?:init_)?kwargs"""]  # fmt: skip
# A caller or the class itself hands these over, and no file says them.
NOT_IN_FILES = {"self", "args", "kwargs", "tokenizer_object", "gguf_file", "is_local", "local_files_only", "vocab", "merges",
                "vocab_file", "merges_file", "tokenizer_file", "max_length", "stride", "tokenizer"}  # fmt: skip


def config_keys():
    names = set(PreTrainedTokenizerBase.SPECIAL_TOKENS_ATTRIBUTES) | {"additional_special_tokens", "tokenizer_class"}
    base = PreTrainedTokenizerBase
    readers = [base.__init__, base._from_pretrained, base.from_pretrained, PreTrainedTokenizerFast.__init__,
               PreTrainedTokenizerFast.convert_to_native_format]  # fmt: skip
    for reader in readers:
        for pattern in LOOK_UPS:
            names.update(re.findall(pattern, inspect.getsource(reader)))
    for name in CLASSES:
        names.update(inspect.signature(getattr(transformers, name).__init__).parameters)
    return sorted(names - NOT_IN_FILES)


def gguf_keys():
    return sorted(v for k, v in vars(Keys.Tokenizer).items() if not k.startswith("_") and isinstance(v, str))


def everything():
    """Gives all of it, in the form that is committed."""
    return {
        "tokenizer_config": config_keys(),
        "added_token": sorted(m for m in dir(AddedToken) if not m.startswith("_")),
        "gguf_tokenizer": gguf_keys(),
    }
