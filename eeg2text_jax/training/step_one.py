"""Step one of the authors' two-step training: the language model is held but for what its new input touches first.

Step two is the study's own training. It begins with each arm's best parameters of step one and a new optimizer.
"""

import dataclasses

from eeg2text_jax.study import Study
from eeg2text_jax.workdir import Workdir


def step_one(study: Study) -> Study | None:
    """The study of step one, in a folder of its own for checkpoints and curves; None where there is no such step."""
    if not study.config.step_one.steps:
        return None
    config = study.config.copy_and_resolve_references()
    config.train.steps, config.optim.lr, config.optim.free = config.step_one.steps, config.step_one.lr, "first"
    config.step_one.steps = 0  # nothing goes before it
    return dataclasses.replace(study, config=config, workdir=Workdir(study.workdir.root / "step_one"))
