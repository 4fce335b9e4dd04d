"""Parse the ARGUMENT in `--config=FILE.py:ARGUMENT`, which has the form `name=value,name=value`."""

from collections.abc import Sequence
from types import SimpleNamespace

from eeg2text_jax.base.errors import UserError, did_you_mean


def parse(argument: str, file: str, **defaults: str | Sequence[str]) -> SimpleNamespace:
    """Return the values by name.

    Args:
      argument: e.g. `backbone=t5,tasks=sr-nr-tsr`; may be empty.
      file: the configuration file, for messages.
      defaults: name -> default value, or the allowed values with the default first.

    Raises:
      UserError: an unknown name, or a value that is not allowed.
    """
    values = {name: given if isinstance(given, str) else given[0] for name, given in defaults.items()}
    for part in filter(None, argument.split(",")):
        name, _, value = part.partition("=")
        if name not in defaults:
            raise UserError(f"{file}:{argument}: there is no argument {name!r}; {did_you_mean(name, defaults)}")
        allowed = defaults[name]
        if not isinstance(allowed, str) and value not in allowed:
            raise UserError(f"{file}:{argument}: {name} is {value!r}; it must be one of {', '.join(allowed)}.")
        values[name] = value
    return SimpleNamespace(**values)
