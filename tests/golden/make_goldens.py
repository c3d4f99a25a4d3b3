"""Makes tests/golden/data. See README.md in this folder for what it needs and what comes out."""

import argparse

import torch
import transformers

import checkpoints
import embeddings
import epsilon
import families
import gguf_blocks
import gguf_models
import published
import smollm2


def main():
    parts = {
        "checkpoints": checkpoints.make_all,
        "families": families.make_all,
        "published": published.make_all,
        "embeddings": embeddings.make_all,
        "epsilon": epsilon.make_all,
        "gguf": gguf_models.make_all,
        "blocks": gguf_blocks.make_all,
        "smollm2": smollm2.make_all,
    }
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[[], *parts], help="default: all")
    chosen = parser.parse_args().parts or list(parts)

    torch.set_num_threads(1)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    for part in chosen:
        parts[part]()


if __name__ == "__main__":
    main()
