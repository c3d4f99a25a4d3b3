"""Random blocks of every GGUF quantization that Tenon reads, with the values that gguf-py gives them, and the blocks that
gguf-py makes of these values."""

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type

from common import DATA, write_json

BLOCKS = 4

# Byte offsets of the half-precision scales in a block; every other byte may be anything.
SCALE_OFFSETS = {
    Type.Q4_0: [0],
    Type.Q4_1: [0, 2],
    Type.Q5_0: [0],
    Type.Q5_1: [0, 2],
    Type.Q8_0: [0],
    Type.Q2_K: [80, 82],
    Type.Q3_K: [108],
    Type.Q4_K: [0, 2],
    Type.Q5_K: [0, 2],
    Type.Q6_K: [208],
    Type.IQ4_NL: [0],
    Type.IQ4_XS: [0],
    Type.TQ1_0: [52],
    Type.TQ2_0: [64],
    Type.MXFP4: [],  # its scale is a power of two
}

# In this order, all values as each.
ENCODED = [Type.Q8_0, Type.Q4_0, Type.Q4_1, Type.Q5_0, Type.Q5_1]


def random_blocks(kind, rng):
    """(BLOCKS, bytes a block). The last block has subnormal scales, the one before it all ones but for its scales."""
    _, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = rng.integers(0, 256, (BLOCKS, size), dtype=np.uint8)
    blocks[-2] = 0xFF
    for offset in SCALE_OFFSETS[kind]:
        scales = rng.uniform(-0.1, 0.1, BLOCKS)
        scales[-1] = 3e-5 * rng.uniform(0.1, 1)
        blocks[:, offset : offset + 2] = scales.astype("<f2").view(np.uint8).reshape(BLOCKS, 2)
    if kind == Type.MXFP4:
        blocks[:, 0] = [120, 125, 123, 112]
    return blocks


def make_all():
    rng = np.random.default_rng(5)
    entries, stored, values = [], b"", np.empty(0, np.float32)
    for kind in SCALE_OFFSETS:
        blocks = random_blocks(kind, rng)
        read = gguf.dequantize(blocks, kind).reshape(-1)
        weights, size = gguf.GGML_QUANT_SIZES[kind]
        entries.append(
            {
                "type": kind.name,
                "ggml_type": int(kind),
                "block_bytes": size,
                "block_values": weights,
                "blocks": BLOCKS,
                "first_byte": len(stored),
                "first_value": len(values),
            }
        )
        stored += blocks.tobytes()
        values = np.concatenate([values, read])
    (DATA / "gguf_blocks.bin").write_bytes(stored)
    values.astype("<f4").tofile(DATA / "gguf_blocks.f32")
    write_json(DATA / "gguf_blocks.json", entries)
    made = [gguf.quantize(values.astype(np.float32), kind).tobytes() for kind in ENCODED]
    (DATA / "gguf_encoded.bin").write_bytes(b"".join(made))
