"""The field `story_time` of predictions and rankings."""

import math
from typing import Any

from eeg2text_jax.errors import UserError


def parse_span(value: Any, where: str) -> list[float]:
    """Return a span of seconds.

    Raises:
      UserError: the value is not a list of two increasing numbers.
    """
    numbers = isinstance(value, list) and [type(x) in (int, float) and math.isfinite(x) for x in value] == [True, True]
    if not numbers or value[0] >= value[1]:
        raise UserError(f"{where}: story_time is {value!r:.60}; expected two increasing numbers, seconds.")
    return [float(x) for x in value]
