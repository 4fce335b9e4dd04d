"""The paper's contrast: the same model on the same input, with and without the true words before each word."""

from typing import Any, NamedTuple

import jax

from eeg2text_jax.decoding.generate import Generated, generate
from eeg2text_jax.decoding.spec import GenerationSpec
from eeg2text_jax.decoding.teacher_forced import TeacherForced, teacher_forced


class Contrast(NamedTuple):
    """Both decodings of one batch, under the names that the predictions file gives them."""

    free_running: Generated
    teacher_forced: TeacherForced


def contrast(
    model: Any,
    params: Any,
    inputs: dict[str, jax.Array],
    labels: jax.Array,
    spec: GenerationSpec,
    *,
    key: jax.Array | None = None,
) -> Contrast:
    """Decodes a batch both ways, as two programs: the one that runs freely is never given `labels`."""
    return Contrast(generate(model, params, inputs, spec, key=key), teacher_forced(model, params, inputs, labels))
