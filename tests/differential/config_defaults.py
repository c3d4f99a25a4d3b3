"""Writes data/config_defaults.json: what the configuration classes of transformers take for the keys that a family file of
configs/models says may be left out of a config.json. Needs no torch. With --check it compares instead, and exits with 77 where
transformers is not installed."""

import json
import pathlib
import sys
import tomllib

ROOT = pathlib.Path(__file__).parents[2]
FILE = pathlib.Path(__file__).parent / "data" / "config_defaults.json"

# No family has a default for these. Heads are a multiple of every default of num_key_value_heads, and there are more
# layers than max_window_layers says.
NEEDED = dict(num_hidden_layers=30, hidden_size=1024, intermediate_size=72, num_attention_heads=64, vocab_size=260)


def keys_of(family):
    """The keys of config.json that a family file says may be left out."""
    for number in family["numbers"].values():
        if "huggingface" in number and "default" in number:
            yield from (number[name] for name in ("huggingface", "also") if name in number)
    yield from family.get("expected", {}).get("huggingface", {})


def layer_lists_of(family):
    """The keys of config.json that have a number for each layer."""
    for number in family.get("layer", {}).values():
        if isinstance(number, dict) and "huggingface" in number and "values" not in number:
            yield number["huggingface"]


def plain(value):
    return value if isinstance(value, (bool, int, float, str, list, type(None))) else str(value)


def sliding_layers(config):
    """1 for each layer with a window; none where the class does not list its layers."""
    return [int(kind == "sliding_attention") for kind in getattr(config, "layer_types", None) or []]


def defaults_of(cls, family):
    config = cls(**NEEDED)
    used = {"use_sliding_window": True} if hasattr(config, "use_sliding_window") else {}
    sliding = cls(**NEEDED, **used)
    said = cls(**NEEDED, **used, sliding_window=100) if hasattr(config, "sliding_window") else config
    # A window that is off reads as none.
    values = {key: getattr(sliding if key == "sliding_window" else config, key, "no such key") for key in keys_of(family)}
    return {
        "values": {key: plain(value) for key, value in sorted(values.items()) if value != "no such key"},
        "unknown": sorted(key for key, value in values.items() if value == "no such key"),
        "lists": {key: getattr(config, key) for key in layer_lists_of(family)},
        "rope": config.rope_parameters,
        "sliding_layers": sliding_layers(config),
        "sliding_layers_if_used": sliding_layers(sliding),
        "sliding_layers_if_said": sliding_layers(said),
    }


def everything():
    import transformers
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    models = {}
    for file in sorted((ROOT / "configs" / "models").glob("*.toml")):
        family = tomllib.loads(file.read_text())
        for model_type in family["model"]["claims"].get("huggingface", []):
            models[model_type] = {"family": file.stem} | defaults_of(CONFIG_MAPPING[model_type], family)
    return {"transformers": transformers.__version__, "needed": NEEDED, "models": models}


def main():
    try:
        found = everything()
    except ImportError as e:
        print(f"skipped: {e}")
        sys.exit(77)
    if "--check" not in sys.argv:
        FILE.write_text(json.dumps(found, indent=1) + "\n")
        return
    known = json.loads(FILE.read_text())
    for name in sorted(known["models"].keys() | found["models"].keys()):
        if known["models"].get(name) != found["models"].get(name):
            print(f"{name}: {known['models'].get(name)}\nis now {found['models'].get(name)}")
    if known["models"] != found["models"]:
        print("The defaults are to be written again with config_defaults.py.")
        sys.exit(1)


if __name__ == "__main__":
    main()
