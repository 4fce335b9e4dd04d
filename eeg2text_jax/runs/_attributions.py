"""Attribute a model's own free-running text to EEG channels: input times the gradient of the text's log-likelihood."""

import collections
import functools
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from etils import epath
from jax.sharding import Mesh
from matplotlib.axes import Axes
from matplotlib.patches import Circle
from scipy.interpolate import RBFInterpolator

from eeg2text_jax.base.files import write_text
from eeg2text_jax.data.datafile import Place, electrodes_of
from eeg2text_jax.data.raw.find import SENSORS
from eeg2text_jax.decoding.generate import Inputs, program_of_arms
from eeg2text_jax.instrument.predictions.file import Prediction
from eeg2text_jax.models.functional import Seq2SeqModel
from eeg2text_jax.runs.cells import over_slices, padded_labels, place_params, summed_nll
from eeg2text_jax.training.metrics_log import Picture
from eeg2text_jax.training.study import Study


class ChannelShares:
    """Share of each channel in the attribution, by training condition; of waves, of each second and channel.

    The last second has what comes after it. Nothing can be added if `places` is empty: without positions of electrodes,
    or without the evaluation condition `eeg`.
    """

    def __init__(self, study: Study):
        self.places: list[Place] = electrodes_of(study.data) if "eeg" in study.config.grid.eval_conditions else []
        self._types = study.data.types if self.places else ()
        self._rate = study.data.sfreq if self.places else 0.0
        self._seconds = 1
        if self._rate:
            self._seconds = math.ceil(max(words for words, _ in study.config.batch.buckets) / self._rate)
        self._of_arms: dict[str, list[np.ndarray]] = collections.defaultdict(list)  # shares [seconds, channels]

    def add(self, study: Study, params: Any, mesh: Mesh, texts: Sequence[Sequence[str]]) -> None:
        """Add the shares of a wave's arms, which decoded `texts [A][N]` from the EEG of the test part."""
        rows, n_arms = study.split.parts["test"], len(study.arms)
        labels = padded_labels(study, [text for arm_texts in texts for text in arm_texts])
        together = study.config.decode.tensor_parallel
        program = attribution_program(study.model, mesh, together, self._rate, self._seconds)
        params = place_params(study, params, mesh)

        def run(fed: Inputs, shared: Inputs, _: Inputs) -> jax.Array:
            return program(params, fed, shared)

        labels = labels.reshape(n_arms, len(rows), -1)
        sizes = over_slices(study, rows, "eeg", mesh, run, "attribute texts to channels", labels)
        for arm, arm_sizes in zip(study.arms, sizes, strict=True):
            # --> [N, seconds, bands, channels] from [N, F = bands * channels] or [N, seconds, channels]
            parts = arm_sizes.reshape(len(rows), self._seconds, -1, len(self.places))
            share = mean_share(parts.sum(axis=2, dtype=np.float64).reshape(len(rows), -1), study.data.subject[rows])
            self._of_arms[arm.condition].append(share.reshape(self._seconds, -1))

    def write(self, out: epath.Path) -> None:
        """Write channels' positions (types, unless all are EEG) and mean shares over arms as JSON."""
        means = {name: np.mean(arm_shares, axis=0) for name, arm_shares in self._of_arms.items()}
        content: dict[str, Any] = {"electrodes": self.places}
        if set(self._types) - {"eeg"}:
            content["types"] = self._types
        content["shares"] = {name: mean.reshape(-1, mean.shape[-1]).sum(0).round(6) for name, mean in means.items()}
        if self._rate:
            content["seconds"] = {name: mean.round(6) for name, mean in means.items()}
        write_text(out, json.dumps(content, default=np.ndarray.tolist) + "\n")


def own_texts(study: Study, rows: Iterable[Prediction]) -> list[list[str]]:
    """Return each arm's best free-running texts from EEG, `[A][N]`, in the order of `rows`."""
    texts: dict[tuple[str, int], list[str]] = {(arm.condition, arm.seed): [] for arm in study.arms}
    for row in rows:
        if row.mode == "free_running" and row.eval_condition == "eeg" and not row.hypothesis:
            texts[row.train_condition, row.seed].append(row.prediction)
    return list(texts.values())


def mean_share(sizes: np.ndarray, subjects: np.ndarray) -> np.ndarray:
    """Return each channel's share of `sizes [N, channels]`, the mean over subjects, whose shares sum to 1."""
    of_subject = [sizes[subjects == name].mean(axis=0) for name in np.unique(subjects.astype(str))]
    return np.mean([means / max(means.sum(), np.finfo(float).tiny) for means in of_subject], axis=0)


@functools.lru_cache(maxsize=16)
def attribution_program(
    model: Seq2SeqModel, mesh: Mesh, tensor_parallel: bool = False, rate: float = 0.0, seconds: int = 1
) -> Callable[..., jax.Array]:
    """Return the jitted function `(params, fed, shared) -> |gradient * input|`, summed over words, `[A, B, F]`.

    `fed` has `features [A, B, W, F]` and texts `labels [A, B, T]`. With `rate` samples a second, sums are over each of
    `seconds`, `[A, B, seconds, F]`.
    """

    def attribute(params: Any, fed: Inputs, shared: Inputs) -> jax.Array:
        def loss(features: jax.Array) -> jax.Array:
            hidden, mask = model.encode(params, {"features": features, **shared})
            return jnp.sum(summed_nll(model, params, hidden, mask, fed["labels"]))

        product = jax.grad(loss)(fed["features"]) * fed["features"]
        sizes = jnp.where(shared["mask"][..., None], jnp.abs(product), 0.0)
        if not rate:
            return jnp.sum(sizes, axis=1)
        second = np.minimum(np.arange(sizes.shape[1]) / rate, seconds - 1).astype(int)
        return jax.ops.segment_sum(sizes.swapaxes(0, 1), second, seconds).swapaxes(0, 1)

    return program_of_arms(attribute, mesh, tensor_parallel)


POINTS = 120  # interpolated points along each side of the picture
NAMED = 20  # most channels with names; more would overlap
EDGE = 1.15  # radius to which values are drawn; 1 is the plane through the ears and the bridge of the nose


def map_figure(
    places: Sequence[Place],
    shares: Mapping[str, Sequence[float]],
    types: Sequence[str] = (),
    seconds: Mapping[str, Sequence[Sequence[float]]] | None = None,
) -> Picture:
    """Plot a head for each training condition in `shares`, and type: the share of each place in percent.

    Sensors at one place are added. The last row has the shares of waves by channel and second, `seconds`.
    """
    kinds = list(dict.fromkeys(types)) or ["eeg"]
    n_rows = len(kinds) + bool(seconds)
    figure = Picture(figsize=(2.1 * len(shares) + 0.6, 2.6 * n_rows), layout="constrained")
    rows, maps = figure.subplots(n_rows, len(shares), squeeze=False), []
    if seconds:
        _in_time(figure, rows[-1], [place[0] for place in places], [seconds[name] for name in shares])
    for kind, row in zip(kinds, rows, strict=False):
        ours = [i for i in range(len(places)) if not types or types[i] == kind]
        where = list(dict.fromkeys(places[i][1:] for i in ours))
        at = [where.index(places[i][1:]) for i in ours]
        labels = [places[ours[at.index(place)]][0] for place in range(len(where))]
        of = f", {SENSORS[kind].name}" if kinds != ["eeg"] else ""
        for axes, (name, channel_shares) in zip(row, shares.items(), strict=True):
            values = 100 * np.bincount(at, np.asarray(channel_shares)[ours])
            maps.append((axes, f"arm trained on {name}{of}", flattened(np.array(where)), labels, values))
    most = max(values.max() for *_, values in maps)
    for axes, title, flat, labels, values in maps:
        image = _head(axes, flat, values, most)
        if len(places) <= NAMED:
            for label, (x, y) in zip(labels, flat, strict=True):
                axes.annotate(label, (x, y), (0, 4), textcoords="offset points", ha="center", fontsize=8)
        axes.set_title(title, fontsize=9)
    figure.colorbar(image, ax=rows[: len(kinds)].ravel().tolist(), shrink=0.7, label="% of the sum over channels")
    return figure


def _in_time(figure: Picture, row: np.ndarray, names: Sequence[str], seconds: Sequence[Any]) -> None:
    most = 100 * max(np.max(of_arm) for of_arm in seconds)
    for axes, of_arm in zip(row, seconds, strict=True):
        extent = (0, len(of_arm), len(names) - 0.5, -0.5)
        image = axes.imshow(100 * np.asarray(of_arm).T, vmin=0.0, vmax=most, aspect="auto", extent=extent)
        axes.set_xlabel("second of the sentence", fontsize=8)
        axes.set_yticks(range(len(names)), names) if len(names) <= NAMED else axes.set_ylabel("channel", fontsize=8)
        axes.tick_params(labelsize=7)
    figure.colorbar(image, ax=row.tolist(), shrink=0.7, label="% of the sum")


def flattened(places: np.ndarray) -> np.ndarray:
    """Return the azimuthal equidistant projection `[channels, 2]` of positions; the top is (0, 0)."""
    right, front, up = places.T
    out = np.arctan2(np.hypot(right, front), up) / (np.pi / 2)
    return np.stack([out * np.sin(np.arctan2(right, front)), out * np.cos(np.arctan2(right, front))], axis=1)


def _head(axes: Axes, flat: np.ndarray, values: np.ndarray, most: float):
    line = np.linspace(-EDGE, EDGE, POINTS)
    grid = np.stack(np.meshgrid(line, line), axis=-1).reshape(-1, 2)
    drawn = RBFInterpolator(flat, values, kernel="linear", degree=0, smoothing=1e-9)(grid).reshape(POINTS, POINTS)
    style: dict[str, Any] = {"vmin": 0.0, "vmax": most, "cmap": "viridis"}
    image = axes.imshow(drawn, origin="lower", extent=(-EDGE, EDGE, -EDGE, EDGE), interpolation="bilinear", **style)
    image.set_clip_path(Circle((0, 0), EDGE, transform=axes.transData))
    turn = np.linspace(0, 2 * np.pi, 200)
    axes.plot(EDGE * np.sin(turn), EDGE * np.cos(turn), color="black", lw=1)
    axes.plot((-0.12, 0, 0.12), (EDGE, EDGE + 0.14, EDGE), color="black", lw=1)  # the nose
    axes.plot(*flat.T, "o", ms=3, color="black", markerfacecolor="white")
    axes.set_aspect("equal")
    axes.axis("off")
    return image


def read_map(path: epath.Path) -> tuple[Any, ...]:
    """Return the arguments of `map_figure` that `ChannelShares` wrote."""
    content = json.loads(path.read_text())
    places = [tuple(place) for place in content["electrodes"]]
    return places, content["shares"], content.get("types", []), content.get("seconds")
