"""Metrics that need a model, for the commands that compute them: each flag checked, only what is asked for loaded."""

from collections.abc import Sequence
from typing import Any

from eeg2text_jax.errors import UserError
from eeg2text_jax.metrics.score import ENCODED, JUDGED
from eeg2text_jax.metrics.statistics import Metric


class Makers:
    """Makes metrics that need a model for the references of some rows; each model is loaded once."""

    def __init__(self, makers: Sequence[Any]):
        self._makers = makers

    def __call__(self, references: Sequence[str]) -> list[Metric]:
        return [metric for make in self._makers for metric in make(references)]

    def notes(self) -> list[str]:
        """What a reader of the scores must know."""
        return [note for make in self._makers for note in make.notes()]


def makers_of(
    metrics: Sequence[str],
    encoder: str | None,
    judge: str | None,
    *,
    layer: int | None = None,
    idf: bool = False,
    rescale: str | None = None,
    truncate: bool = False,
) -> Makers | None:
    """What makes those of `metrics` that need a model; JAX and weights are loaded for these alone. None: none does.

    Raises:
      UserError: one of them without its model, or a setting without one that it is for.
    """
    encoded, judged = ([name for name in metrics if name in known] for known in (ENCODED, JUDGED))
    if encoded and not encoder:
        raise UserError(f"{encoded[0]} needs --encoder=NAME, a checkpoint's folder, or minilm.")
    if judged and not judge:
        raise UserError(f"{judged[0]} needs --judge=DIR/judge, which `eeg2text judge` writes.")
    settings = {"encoder": encoder, "layer": layer, "idf": idf, "rescale": rescale}
    for wanted, known, given in (
        (encoded, ENCODED, settings),
        (judged, JUDGED, {"judge": judge, "truncate": truncate}),
    ):
        for name, value in given.items():
            if value not in (None, False, "") and not wanted:
                raise UserError(f"--{name} is for {' and '.join(known)}; ask for it, too, or leave the flag out.")
    makers: list[Any] = []
    if encoded:
        from eeg2text_jax.metrics.meaning import MeaningMetrics

        makers.append(MeaningMetrics(list(dict.fromkeys(encoded)), encoder, layer=layer, idf=idf, rescale=rescale))
    if judged:
        from eeg2text_jax.judge.lattescore import JudgeMetrics

        makers.append(JudgeMetrics(judge, truncate))
    return Makers(makers) if makers else None
