"""Metrics that need a text encoder or a judge: their settings are checked, and the requested ones made."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.instrument.auditing.table import BY_NAME, Endpoint, of_metric
from eeg2text_jax.instrument.metrics.metric import Metric
from eeg2text_jax.instrument.metrics.metric_names import ENCODED, ENDPOINTS, JUDGED

if TYPE_CHECKING:  # the import takes 30 ms, which `eeg2text score` need not wait for
    from eeg2text_jax.training.sections import Settings


class Makers:
    """A maker of metrics for references; each model is loaded once."""

    def __init__(self, makers: Sequence[Any]):
        self._makers = makers

    def __call__(self, references: Sequence[str]) -> list[Metric]:
        return [metric for make in self._makers for metric in make(references)]

    def notes(self) -> list[str]:
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
    spelled: str = "--{}",
) -> Makers | None:
    """Return `Makers` of those `metrics` that need a model; None, without importing JAX, if none does.

    `spelled` formats a setting's name in messages. Raises UserError if a metric lacks its `encoder` or `judge`, or a
    setting lacks its metric.
    """
    encoded, judged = ([name for name in metrics if name in family] for family in (ENCODED, JUDGED))
    if encoded and not encoder:
        raise UserError(f"{encoded[0]} needs {spelled.format('encoder')}=NAME, a checkpoint's folder, or minilm.")
    if judged and not judge:
        raise UserError(f"{judged[0]} needs {spelled.format('judge')}=DIR/judge, which `eeg2text judge` writes.")
    settings = {"encoder": encoder, "layer": layer, "idf": idf, "rescale": rescale}
    others = {"judge": judge, "truncate": truncate}
    for wanted, family, options in ((encoded, ENCODED, settings), (judged, JUDGED, others)):
        for name, value in options.items():
            if value is not False and value not in (None, "") and not wanted:  # layer 0 is a layer
                raise UserError(f"{spelled.format(name)} is for {' and '.join(family)}; ask for one, or leave it out.")
    if not encoded and not judged:
        return None
    makers: list[Any] = []
    if encoded:
        from eeg2text_jax.judge._meaning import MeaningMetrics

        makers.append(MeaningMetrics(list(dict.fromkeys(encoded)), encoder, layer=layer, idf=idf, rescale=rescale))
    if judged:
        from eeg2text_jax.judge._judge_folder import LatteScore, load_judged

        makers.append(LatteScore(*load_judged(judge), truncate))
    return Makers(makers)


def configured(config: "Settings") -> Makers | None:
    """Return the `makers_of` a configuration's metrics and endpoints."""
    of = config.metrics
    layer = None if of.layer < 0 else of.layer
    return makers_of(_wanted(config), of.encoder, of.judge, layer=layer, spelled="config.metrics.{}")


def _wanted(config: "Settings") -> list[str]:
    ends = (config.audit.endpoint, *config.audit.secondary)
    return [*config.metrics.names, *(ENDPOINTS[name].metric for name in ends)]


def check_configured(config: "Settings") -> None:
    """Raise UserError if a run needs an encoder or a judge that does not exist; load no weights."""
    from eeg2text_jax.judge._judge_folder import read_judge
    from eeg2text_jax.models.pretrained.folder import checkpoint_folder

    wanted = set(_wanted(config))
    for family, name, expected, read in (
        (ENCODED, "encoder", "a checkpoint or minilm", checkpoint_folder),
        (JUDGED, "judge", "which `eeg2text judge` writes", read_judge),
    ):
        if used := wanted & {*family}:
            if not (place := getattr(config.metrics, name)):
                raise UserError(f"{min(used)} needs config.metrics.{name}, {expected}.")
            read(place)


def endpoints(names: Sequence[str], makers: Makers | None) -> list[Endpoint]:
    """Return the endpoints (scores for an audit) of these names; `makers` has metrics that need a model."""
    made = {metric.name: metric for metric in makers([])} if makers else {}
    return [BY_NAME.get(name) or of_metric(ENDPOINTS[name], made[ENDPOINTS[name].metric]) for name in names]
