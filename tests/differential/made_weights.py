"""Weights that follow from a tensor's name and the place of each value in it, so that Python and C++ make the same.

The C++ twin is made_weights.h beside this file. Every value is a fraction with 24 bits, so both hold the same float32.
"""

import numpy as np

MIX = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


def seed_of(name):
    """Returns the 64-bit FNV-1a hash of the name."""
    seed = 0xCBF29CE484222325
    for byte in name.encode():
        seed = (seed ^ byte) * 0x100000001B3 % 2**64
    return seed


def uniform(name, count):
    """Returns `count` float32 in [-1, 1): splitmix64 of the seed and the place, its upper 24 bits."""
    with np.errstate(over="ignore"):
        z = np.uint64(seed_of(name)) + np.arange(1, count + 1, dtype=np.uint64) * MIX[0]
        z = (z ^ (z >> np.uint64(30))) * MIX[1]
        z = (z ^ (z >> np.uint64(27))) * MIX[2]
        z = z ^ (z >> np.uint64(31))
    return ((z >> np.uint64(40)).astype(np.float32) - np.float32(2**23)) / np.float32(2**23)


def tensor(name, shape):
    """Makes matrices large enough that attention is peaked, and norms around 1, so that each of them shows in the logits."""
    values = uniform(name, int(np.prod(shape))).reshape(shape)
    if "norm" in name:
        return 1 + values / 4
    return values if "embed" in name else values / 2
