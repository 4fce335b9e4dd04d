"""Few-shot prompting: answered examples of the train part stand before each pair, and nothing is tuned."""

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
    """Return the wording with answered pairs before it, drawn at random: half of them preserve the meaning.

    Args:
      words: the answers, the one for yes first.
      shots: number of examples; of an odd number one more preserves the meaning.

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
    """Ask about the dev part under the examples of each seed, without a soft prompt.

    Returns:
      As after tuning: an arm for each seed, with its wording, empty prompts, and what it reaches on dev.

    Raises:
      UserError: there are too few train pairs, or pairs are too long beside the examples.
    """
    pairs, parts = [(pair.reference, pair.hypothesis) for pair in task.parts.dev], task.parts
    yes, width = np.array([pair.preserved for pair in parts.dev]), task.frozen.model.spec.d_model
    nothing, wordings, best = np.zeros((0, width), np.float32), [], []
    for seed in config.seeds:
        wording = with_examples(task.wording, parts.train, task.labels.words, config.shots, seed)
        scores = Asker(task.frozen, nothing, wording, task.labels, config.truncate).scores(pairs, "dev pair")
        wordings.append(wording)
        best.append((accuracy(scores, yes), auc(scores, yes)))
    arms = [(seed, 0.0) for seed in config.seeds]
    empty = np.stack([nothing] * len(arms))
    return Tuned(arms, empty, empty, np.array(best, np.float32), np.zeros(len(arms), int), tuple(wordings))
