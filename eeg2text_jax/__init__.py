"""Train, decode and judge EEG-to-text models in JAX.

Public names are imported on first use, so that scoring a file does not wait for JAX. `data.write` makes a data file.
"""

from etils import epy

from eeg2text_jax.base.packages import __version__ as __version__

with epy.lazy_api_imports(globals()):
    from eeg2text_jax.data.datafile import read_datafile
    from eeg2text_jax.data.splits.methods import make_split
    from eeg2text_jax.decoding.generate import generate
    from eeg2text_jax.decoding.settings import GenerationSpec
    from eeg2text_jax.decoding.teacher_forced import teacher_forced
    from eeg2text_jax.instrument.auditing.audit import audit
    from eeg2text_jax.instrument.metrics.score import score_predictions as score
    from eeg2text_jax.instrument.predictions.selection import read_any
    from eeg2text_jax.models.functional import Seq2SeqModel
    from eeg2text_jax.models.pretrained.load import load_pretrained
    from eeg2text_jax.runs.exported import load_export
    from eeg2text_jax.runs.notebook import fit, load
    from eeg2text_jax.runs.python_data import prepare
    from eeg2text_jax.runs.repeats import repeats

__all__ = [
    "GenerationSpec",
    "Seq2SeqModel",
    "audit",
    "fit",
    "generate",
    "load",
    "load_export",
    "load_pretrained",
    "make_split",
    "prepare",
    "read_any",
    "read_datafile",
    "repeats",
    "score",
    "teacher_forced",
]


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__", "data"])
