"""Few-shot prompting instead of a tuned prompt: answered train pairs precede each pair as examples."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from eeg2text_jax.errors import UserError
from eeg2text_jax.judge.fields import JudgeSettings
from eeg2text_jax.judge.frozen import Asker
from eeg2text_jax.judge.pairs import Pair
from eeg2text_jax.judge.thresholds import accuracy, auc
from eeg2text_jax.judge.tune import Task, Tuned
from eeg2text_jax.judge.wording import Wording


def with_examples(wording: Wording, pairs: Sequence[Pair], words: Sequence[str], shots: int, seed: int) -> Wording:
    """Return the wording with answered pairs before it as examples, drawn at random; half preserve the meaning.

    Args:
      words: the two answers, yes first.
      shots: number of examples; if it is odd, the extra example preserves the meaning.

    Raises:
      UserError: there are too few pairs of a class.
    """
    rng = np.random.default_rng([seed, 2])
    order, wanted = rng.permutation(len(pairs)), {True: (shots + 1) // 2, False: shots // 2}
    drawn: list[Pair] = []
    for preserved, count in wanted.items():
        found = [pairs[i] for i in order if pairs[i].preserved == preserved][:count]
        if len(found) < count:
            raise UserError(
                f"shots is {shots}, which takes {count} train pairs that {'keep' if preserved else 'lose'} the "
                f"meaning, but there are only {len(found)}; lower shots, or give more such pairs."
            )
        drawn += found
    lines = [
        wording.answered(pair.reference, pair.hypothesis, words[0 if pair.preserved else 1])
        for pair in (drawn[i] for i in rng.permutation(len(drawn)))
    ]
    return dataclasses.replace(wording, before="\n".join([*lines, ""]))


def prompt_with_examples(config: JudgeSettings, task: Task) -> Tuned:
    """Evaluate the model on the dev part with the examples of each seed and no soft prompt.

    Returns:
      One arm for each seed: the wording with that seed's examples, an empty prompt, and accuracy and AUC on dev.

    Raises:
      UserError: there are too few train pairs, or a pair together with the examples is too long.
    """
    pairs, parts = [(pair.reference, pair.hypothesis) for pair in task.parts.dev], task.parts
    yes, width = np.array([pair.preserved for pair in parts.dev]), task.frozen.model.spec.d_model
    arms = [(seed, 0.0) for seed in config.seeds]
    prompts, wordings, best = np.zeros((len(arms), 0, width), np.float32), [], []
    for prompt, seed in zip(prompts, config.seeds, strict=True):
        wording = with_examples(task.wording, parts.train, task.labels.words, config.shots, seed)
        scores = Asker(task.frozen, prompt, wording, task.labels, config.truncate).scores(pairs, "dev pair")
        wordings.append(wording)
        best.append((accuracy(scores, yes), auc(scores, yes)))
    return Tuned(arms, prompts, prompts, np.array(best, np.float32), np.zeros(len(arms), int), tuple(wordings))
