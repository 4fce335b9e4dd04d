"""Train, decode and judge EEG-to-text models in JAX.

Public names, each imported when first asked for, so that scoring a file does not wait for JAX: `load_pretrained`,
`load_export`, `Seq2SeqModel`, `GenerationSpec`, `generate`, `teacher_forced`, `score`, `audit`.
"""

import importlib
from typing import TYPE_CHECKING, Any

from eeg2text_jax.versions import __version__ as __version__

if TYPE_CHECKING:
    from eeg2text_jax.auditing.audit import audit
    from eeg2text_jax.decoding.exported import load_export
    from eeg2text_jax.decoding.generate import generate
    from eeg2text_jax.decoding.teacher_forced import teacher_forced
    from eeg2text_jax.metrics.score import score_predictions as score
    from eeg2text_jax.models.functional import Seq2SeqModel
    from eeg2text_jax.pretrained.load import load_pretrained
    from eeg2text_jax.search.settings import GenerationSpec

__all__ = [
    "GenerationSpec",
    "Seq2SeqModel",
    "audit",
    "generate",
    "load_export",
    "load_pretrained",
    "score",
    "teacher_forced",
]

_PLACES = {
    "GenerationSpec": ("eeg2text_jax.search.settings", "GenerationSpec"),
    "Seq2SeqModel": ("eeg2text_jax.models.functional", "Seq2SeqModel"),
    "audit": ("eeg2text_jax.auditing.audit", "audit"),
    "load_export": ("eeg2text_jax.decoding.exported", "load_export"),
    "generate": ("eeg2text_jax.decoding.generate", "generate"),
    "load_pretrained": ("eeg2text_jax.pretrained.load", "load_pretrained"),
    "score": ("eeg2text_jax.metrics.score", "score_predictions"),
    "teacher_forced": ("eeg2text_jax.decoding.teacher_forced", "teacher_forced"),
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _PLACES[name]
    return getattr(importlib.import_module(module), attribute)
