"""`configs/default.py` with one field set to whatever it is given, as a configuration file that has a mistake."""

import functools
import json
from pathlib import Path

from ml_collections import ConfigDict

from eeg2text_jax.training.configuration import load_config

DEFAULT = str(Path(__file__).parents[1] / "configs/default.py")


def get_config(argument: str) -> ConfigDict:
    """`--config=tests/wrong_field.py:{"field": "optim.lr", "value": -1}`; lists become tuples."""
    given = json.loads(argument)
    plain = load_config(DEFAULT).to_dict()
    *sections, name = given["field"].split(".")
    functools.reduce(dict.__getitem__, sections, plain)[name] = as_tuple(given["value"])
    return ConfigDict(plain)


def as_tuple(value: object) -> object:
    return tuple(map(as_tuple, value)) if isinstance(value, list) else value
