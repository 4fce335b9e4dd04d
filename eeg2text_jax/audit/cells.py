"""Takes the cells of one predictions file apart."""

from collections import defaultdict
from collections.abc import Iterable

from eeg2text_jax.errors import UserError
from eeg2text_jax.predictions import Prediction


def select_cells(rows: Iterable[Prediction], arm: str | None = None) -> dict[str, list[Prediction]]:
    """Conditions of one trained model in a file of several cells: evaluated with EEG first, then each control.

    `arm` is the training condition; None takes `eeg`, or the only one there is. Rows of other arms are left out: how
    a model trained on something else scores does not tell whether this one uses its EEG.

    Raises:
      UserError: the arm is not in the file, or was not evaluated with EEG.
    """
    rows = list(rows)
    arms = list(dict.fromkeys(row.train_condition for row in rows))
    if arm is None:
        arm = "eeg" if "eeg" in arms else arms[0] if len(arms) == 1 else None
    if arm not in arms:
        raise UserError(f"no arm trained on {arm or 'eeg'!r}; the file holds {', '.join(map(repr, arms))}; pass --arm.")
    cells: dict[str, list[Prediction]] = defaultdict(list)
    for row in rows:
        if row.train_condition == arm:
            cells[row.eval_condition].append(row)
    if "eeg" not in cells and len(cells) > 1:
        raise UserError(f"the arm {arm!r} was not evaluated with eeg; its conditions are {', '.join(cells)}.")
    first = "eeg" if "eeg" in cells else next(iter(cells))
    return {first: cells.pop(first), **cells}
