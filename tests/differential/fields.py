"""The fields of a config.json that are varied, taken from transformers itself: what its configuration classes declare,
what its code looks up on a configuration, what its groups of rope hold, and what other families' classes declare."""

import dataclasses
import inspect
import pathlib
import re

import transformers
from transformers import GenerationConfig, LlamaConfig, MistralConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS, RopeParameters

FAMILIES = {"llama": LlamaConfig, "mistral": MistralConfig}

# These sources decide what a Llama or a Mistral computes, and how its config.json is read.
SOURCES = [
    "configuration_utils.py",
    "modeling_rope_utils.py",
    "masking_utils.py",
    "cache_utils.py",
    "integrations/heterogeneity/configuration_utils.py",
    "models/llama/configuration_llama.py",
    "models/llama/modeling_llama.py",
    "models/mistral/configuration_mistral.py",
    "models/mistral/modeling_mistral.py",
]
LOOK_UPS = [
    r"config\.([a-z_][a-z0-9_]*)\b(?!\()",
    r"""[gs]etattr\((?:self|self\.config|config|text_config|self\.text_config), "([a-z_][a-z0-9_]*)\"""",
    r"""kwargs\.(?:get|pop)\("([a-z_][a-z0-9_]*)\"""",
    r"""config_dict(?:\.get\(|\.pop\(|\[)"([a-z_][a-z0-9_]*)\"""",
]


def declared(cls):
    """Gives name -> annotation, of the class and of those that it inherits from."""
    return {f.name: inspect.formatannotation(f.type).replace("typing.", "") for f in dataclasses.fields(cls)}


def looked_up():
    folder = pathlib.Path(transformers.__file__).parent
    names = set()
    for source in SOURCES:
        text = (folder / source).read_text()
        for pattern in LOOK_UPS:
            names.update(re.findall(pattern, text))
    return sorted(name for name in names if not callable(getattr(LlamaConfig, name, None)))


def generation():
    return sorted(GenerationConfig._get_default_generation_params())


def rope_keys():
    return sorted(RopeParameters.__annotations__)


def rope_types():
    return ["default", *sorted(ROPE_INIT_FUNCTIONS)]


def foreign(known):
    """Gives name -> annotation of what other classes with a decoder declare, beyond the known names."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    names = {}
    for family in sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES):
        cls = getattr(transformers, CONFIG_MAPPING_NAMES.get(family, ""), None)
        if cls is None or not dataclasses.is_dataclass(cls):
            continue
        for name, annotation in declared(cls).items():
            if name not in known:
                names.setdefault(name, annotation)
    return dict(sorted(names.items()))


def everything():
    """Gives all of it, in the form that is committed."""
    families = {family: declared(cls) for family, cls in FAMILIES.items()}
    known = {name for fields in families.values() for name in fields} | set(looked_up()) | set(generation())
    return {
        "declared": families,
        "looked_up": looked_up(),
        "generation": generation(),
        "rope_keys": rope_keys(),
        "rope_types": rope_types(),
        "foreign": foreign(known),
    }
