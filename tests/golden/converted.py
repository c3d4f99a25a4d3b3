"""What llama.cpp's converter makes of the families' checkpoints, as data/converted.json: the metadata, and of each tensor the
first 16 digits of the SHA-256 of its values in F32, then the shape. Divisors of a rope are computed, so they stand in full.

    python converted.py LLAMA_CPP    # the folder of llama.cpp's source, as vendor/llama.cpp of PyPI's llama-cpp-python

The vocabulary is left out, since the converter knows tokenizers by their hash. A config.json says what the architecture in GGUF
can say: `EDITS` has what is changed of a checkpoint's for that. `refused` has the converter's words where it takes no such model.
"""

import hashlib
import json
import logging
import os
import pathlib
import shutil
import sys
import tempfile

import numpy as np

import common
from common import DATA

# Without these the checkpoints say what GGUF's architecture has no key for.
EDITS = {
    "tiny-mistral": {"sliding_window": None},
    "tiny-starcoder2": {"sliding_window": None},
    "tiny-gemma2": {"query_pre_attn_scalar": 20},
    "tiny-gemma3": {"query_pre_attn_scalar": 20},
    "tiny-smollm3": {"no_rope_layer_interval": 4, "no_rope_layers": [1, 1, 1, 0]},
}
# The converter's file of these, in BF16 and with a vocabulary, is kept, too.
FILES = ["tiny-gpt-oss"]
LEFT_OUT = ("general.", "tokenizer.", "GGUF.")  # names, licences, how the file was made


def checkpoints():
    """The Llamas and the families; quantized ones are no input of the converter, and the made-up one has no architecture."""
    import families

    llamas = ["tiny-gqa-untied", "tiny-mha-tied", "tiny-llama3-scaling", "tiny-linear-scaling", "tiny-odd"]
    return llamas + [name for name in families.CHECKPOINTS if name not in [*families.MADE, families.MXFP4]]


def edited(name, to):
    shutil.copytree(DATA / name, to)
    config = json.loads((to / "config.json").read_text())
    config.update(EDITS.get(name, {}))
    (to / "config.json").write_text(json.dumps(config))


def convert(conversion, gguf, folder, file, whole=False):
    """whole: as a file that can be run, in BF16 and with a vocabulary."""
    hparams = conversion.ModelBase.load_hparams(folder, False)
    kind = conversion.get_model_class(hparams["architectures"][0])
    model = kind(folder, gguf.LlamaFileType.MOSTLY_BF16 if whole else gguf.LlamaFileType.ALL_F32, file)
    model.set_vocab = lambda: add_vocabulary(model.gguf_writer, gguf) if whole else None
    model.write()


def add_vocabulary(writer, gguf):
    import vocabulary

    tokens, specials = vocabulary.tokens(), len(vocabulary.SPECIALS)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([gguf.TokenType.CONTROL] * specials + [gguf.TokenType.NORMAL] * (len(tokens) - specials))
    writer.add_token_merges([f"{a} {b}" for a, b in vocabulary.MERGES])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    writer.add_add_bos_token(False)


def values(tensor, gguf):
    return gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype("<f4")


def described(file, gguf):
    reader = gguf.GGUFReader(file)
    keys = {k: f.contents() for k, f in reader.fields.items() if not k.startswith(LEFT_OUT)}
    keys["general.architecture"] = reader.fields["general.architecture"].contents()
    tensors = {}
    for t in reader.tensors:
        data = np.ascontiguousarray(values(t, gguf))
        hashed = [hashlib.sha256(data.tobytes()).hexdigest()[:16], *(int(d) for d in reversed(t.shape))]
        tensors[t.name] = data.tolist() if t.name.startswith("rope_") else hashed
    return {"metadata": dict(sorted(keys.items())), "tensors": dict(sorted(tensors.items()))}


def make(name, conversion, gguf):
    with tempfile.TemporaryDirectory() as scratch:
        folder, file = pathlib.Path(scratch) / name, pathlib.Path(scratch) / "model.gguf"
        edited(name, folder)
        entry = {"edits": EDITS.get(name, {})}
        try:
            convert(conversion, gguf, folder, file)
        except (ValueError, NotImplementedError, KeyError) as error:
            return {**entry, "refused": f"{type(error).__name__}: {error}"}
        return {**entry, **described(file, gguf)}


def main():
    llama_cpp = pathlib.Path(sys.argv[1])
    sys.path[:0] = [str(llama_cpp), str(llama_cpp / "gguf-py")]
    os.chdir(llama_cpp)
    import conversion
    import gguf

    logging.disable(logging.CRITICAL)
    made = {name: make(name, conversion, gguf) for name in checkpoints()}
    for name, entry in made.items():
        print(name, entry.get("refused", f"{len(entry.get('tensors', {}))} tensors"))
    common.write_json(DATA / "converted.json", made)
    for name in FILES:
        convert(conversion, gguf, DATA / name, DATA / name / f"{name}.gguf", whole=True)


if __name__ == "__main__":
    main()
