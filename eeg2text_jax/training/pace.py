"""How fast training goes: samples, tokens, model FLOPs and waiting for input, since the last line of the log."""

import time
from typing import NamedTuple

from jax.sharding import Mesh

from eeg2text_jax.data.batches import Batch
from eeg2text_jax.models.flops import training_flops
from eeg2text_jax.models.functional import Seq2SeqModel
from eeg2text_jax.parallel.chips import chip_of_device


class BatchWork(NamedTuple):
    """What one batch is to each arm; all seeds have batches of one shape."""

    samples: int  # real rows
    tokens: int  # real target tokens of these
    words: int  # EEG positions of a row, padding among them
    positions: int  # target positions of a row, padding among them
    rows: int  # all, those that only fill the batch among them

    @classmethod
    def of(cls, batch: Batch, pad_token: int) -> "BatchWork":
        """Of a training batch `[S, B, ...]`; the numbers of samples and tokens are those of the first seed."""
        weight = batch["weight"][0]
        real = (batch["labels"][0] != pad_token) & (weight > 0)[:, None]
        _, rows, words, _ = batch["features"].shape
        return cls(int(weight.sum()), int(real.sum()), words, real.shape[1], rows)


class Pace:
    """Rates of a training, measured from one line of the log to the next.

    Args:
      model: whose FLOPs are counted.
      n_arms: how many of it every batch trains.
      mesh: the devices; the share of their peak (MFU) is told where `parallel.chips` knows it.
    """

    def __init__(self, model: Seq2SeqModel, n_arms: int, mesh: Mesh):
        chip = chip_of_device(mesh.devices.flat[0].device_kind)
        self._model, self._n_arms = model, n_arms
        self._peak = chip.flops * mesh.size if chip else None
        self.restart()

    def restart(self) -> None:
        """Begins to measure anew."""
        self._start, self._waited = time.monotonic(), 0.0
        self._samples = self._tokens = self._flops = 0.0

    def waited(self, seconds: float) -> None:
        """The devices had nothing to do while the next batch was made."""
        self._waited += seconds

    def done(self, work: BatchWork) -> None:
        """A step is over."""
        self._samples += work.samples
        self._tokens += work.tokens
        self._flops += self._n_arms * training_flops(self._model, work.rows, work.words, work.positions)

    def rates(self) -> dict[str, float]:
        """`samples_per_s`, `tokens_per_s`, both of one arm, `input_wait`, a share of the time, and `mfu` if known.

        `mfu` holds all arms' matrix products, positions at padding included, against the devices' bfloat16 peak.
        """
        seconds = time.monotonic() - self._start
        found = {
            "samples_per_s": self._samples / seconds,
            "tokens_per_s": self._tokens / seconds,
            "input_wait": self._waited / seconds,
        }
        return found if self._peak is None else found | {"mfu": self._flops / seconds / self._peak}
