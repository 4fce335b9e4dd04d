"""Train a LATTEScore judge end to end: pairs, frozen model, tuning, baselines, tables; a killed run resumes."""

import contextlib
import dataclasses
import functools
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from etils import epath

from eeg2text_jax.errors import UserError
from eeg2text_jax.files import write_text
from eeg2text_jax.judge import baselines, controlled, results, templates, toy
from eeg2text_jax.judge.few_shot import prompt_with_examples
from eeg2text_jax.judge.fields import LATER, PLACES, JudgeSettings
from eeg2text_jax.judge.frozen import Asker, Frozen, load_frozen
from eeg2text_jax.judge.judge_folder import Judge, load_judged, write_judge
from eeg2text_jax.judge.pairs import Meaning, Pair, Parts, divide, normalize, pairs_digest, read_pairs, write_pairs
from eeg2text_jax.judge.speakers import Scores, speakers_table
from eeg2text_jax.judge.thresholds import Threshold, auc, choose_threshold
from eeg2text_jax.judge.tune import Task, Tuned, tune
from eeg2text_jax.judge.wording import choose_wording
from eeg2text_jax.models.functional import Seq2SeqModel
from eeg2text_jax.stores.copying import at_hand
from eeg2text_jax.stores.mirror import mirrored
from eeg2text_jax.study.config_file import product, write_configuration
from eeg2text_jax.study.configuration import differences, to_json
from eeg2text_jax.study.places import resolved
from eeg2text_jax.study.workdir import Workdir, is_read_only, lock_workdir, read_object

TOY, JUDGE = "toy", "LATTEScore's judge"
SOURCES = {"edits": "controlled edits", "templates": "template pairs"}  # `config.pairs` -> origin of labels


def judge(config: JudgeSettings, root: str, labels: Meaning = "") -> dict[str, Any]:
    """Tune a judge in the workdir `root` and write `judge/`, `results.json`, `results.md` and `curves.png` there.

    Args:
      labels: what the labels 0 and 1 of a file of pairs mean, see `read_pairs`.

    Returns:
      The content of `results.json`.

    Raises:
      UserError: the pairs, the checkpoint or the folder are not usable.
    """
    with open_workdir(config, root) as workdir:
        done = workdir.root / "results.json"
        if is_read_only(workdir.root) and done.exists():
            content = json.loads(done.read_text())
            print(results.to_markdown(content))
            print(f"{root}: is read-only, so nothing was written.")
            return content
        pairs, source = labelled_pairs(config, labels, workdir)
        where = config.pairs if source == "human labels" else source
        whole = divide(pairs, config.split.ratio, config.split.seed, where)
        tested = read_pairs(config.test, labels) if config.test else []
        parts = results.hold_out(whole, tested, config.test) if config.test else whole
        frozen = frozen_model(config, workdir)
        wording = toy.toy_wording() if config.checkpoint == TOY else choose_wording(config.wording, frozen.tokenizer)
        answers = frozen.labels(config.labels, wording)
        task = Task(frozen, wording, answers, parts, pairs_digest([*pairs, *tested]))
        print(announce(config, task, source))
        tuned = prompt_with_examples(config, task) if config.shots else tune(config, task, workdir.root)
        content = finish(config, task, tuned, source, workdir, (whole, tested))
        print(results.to_markdown(content))
        print(f"everything is in {root}: judge, results.md, results.json, curves.png")
        return content


def labelled_pairs(config: JudgeSettings, labels: Meaning, workdir: Workdir) -> tuple[list[Pair], str]:
    """Read the pairs, or make them and write them to `pairs.tsv`; also return the origin of their labels."""
    if config.pairs not in SOURCES:
        return read_pairs(config.pairs, labels), "human labels"
    if config.pairs == "templates":
        made = templates.toy_pairs(config.toy.pairs, config.toy.seed)
    else:
        edits = config.edits
        made = controlled.make_pairs(
            sentences_of(config), per_sentence=edits.per_sentence, preserved=edits.preserved, seed=edits.seed
        )
    write_text(workdir.root / "pairs.tsv", write_pairs(made))
    return made, SOURCES[config.pairs]


def sentences_of(config: JudgeSettings) -> list[str]:
    """Return the sentences for controlled edits: the lines of the file `config.sentences`, or template sentences."""
    if not config.sentences:
        return list(templates.sentences(1000))
    try:
        text = Path(at_hand(config.sentences)).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"{config.sentences}: cannot be read as UTF-8 text, a sentence a line; check the path."
        ) from error
    return [line for line in text.splitlines() if line.strip()]


@contextlib.contextmanager
def open_workdir(config: JudgeSettings, root: str) -> Iterator[Workdir]:
    """Lock the workdir, write this configuration there, and use its compilation cache.

    Raises UserError if another process works there, or the folder has a prompt tuned with another configuration.
    """
    if config.compilation_cache and not jax.config.jax_compilation_cache_dir:
        jax.config.update("jax_compilation_cache_dir", str(epath.Path(config.compilation_cache).expanduser()))
    with mirrored(root) as local, lock_workdir(local):
        workdir = Workdir(epath.Path(local))
        if workdir.config.exists():
            _check_same(config, workdir)
        write_configuration(workdir, dataclasses.asdict(config), PLACES)
        yield workdir


def _check_same(config: JudgeSettings, workdir: Workdir) -> None:
    """Raise UserError if the workdir has a run of another command, or a prompt tuned with another configuration."""
    before = resolved(read_object(workdir.config, "take another --workdir"), workdir.root, PLACES)
    if "prompt" not in before:
        raise UserError(f"{workdir.root}: holds a run of another command; take another --workdir.")
    changed = differences(json.loads(to_json(dataclasses.asdict(config))), before, PLACES)
    found = [line for line in changed if line.partition(" ")[0] not in LATER]
    if found and product(workdir, "training"):
        raise UserError(
            f"{workdir.root} belongs to another configuration (its config.json): {', '.join(found[:3])}; take another "
            f"--workdir, or the values marked 'there'. What may change here: {', '.join(LATER)}."
        )


def frozen_model(config: JudgeSettings, workdir: Workdir) -> Frozen:
    """Load the checkpoint's model; the toy, a small T5, is trained first, unless the workdir has it."""
    place = config.checkpoint
    if place == TOY:
        place = str(workdir.root / TOY)
        if Path(place).exists():
            toy.check_toy(place)
        else:
            toy.make_toy(config.toy, place)
    frozen = load_frozen(place, config.dtype, config.param_dtype, config.parallel.fsdp)
    old = frozen.model
    model = Seq2SeqModel(old.spec, None, old.dtype, remat=config.model.remat, keep=config.model.keep)
    return frozen._replace(model=model)


def announce(config: JudgeSettings, task: Task, source: str) -> str:
    """Return a sentence with the model, the number of prompts to tune, the pairs of each part, and the wording."""
    counts = ", ".join(f"{name} {c['pairs']} ({c['preserved']} preserved)" for name, c in task.parts.counts().items())
    arms = f"{len(config.seeds) * len(config.optim.lr)} prompts of {config.prompt.length} vectors"
    if config.shots:
        arms = f"{len(config.seeds)} draws of {config.shots} examples, nothing tuned,"
    return (
        f"{task.frozen.name}: {arms} on {source}: {counts}; "
        f"{task.parts.exact} pairs without an error left out. Wording: {task.wording.name}."
    )


def finish(
    config: JudgeSettings, task: Task, tuned: Tuned, source: str, workdir: Workdir, second: tuple[Parts, list[Pair]]
) -> dict[str, Any]:
    """Choose the prompt and its threshold on dev, test it beside the baselines, and write the judge and all results.

    Args:
      source: origin of the labels.
      second: the parts before `hold_out`, and the pairs of the second test file, `config.test`.

    Returns:
      The content of `results.json`.
    """
    parts, chosen = task.parts, tuned.chosen
    best = tuned.task(task, chosen)
    scores = functools.partial(_scores, best, tuned.prompts[chosen])
    dev, test = scores(parts.dev), scores(parts.test)
    labels = {name: np.array([pair.preserved for pair in getattr(parts, name)]) for name in ("dev", "test")}
    threshold = choose_threshold(dev, labels["dev"], config.threshold.precision)
    encoders = config.bertscore_encoder or config.encoder, config.encoder
    found = baselines.baseline_scores(encoders, task.frozen.folder, parts)
    classifiers = {JUDGE: test, **{name: values for name, (values, _) in found.items()}}

    def auc_test(asked: Task, prompt: np.ndarray) -> float | None:
        return auc(_scores(asked, prompt, parts.test), labels["test"])

    figures = {
        "auc_dev": auc(dev, labels["dev"]),
        "auc_test": auc(test, labels["test"]),
        "auc_test_before_tuning": auc_test(task, tuned.first[chosen]),
        "arms": [
            {
                "seed": seed,
                "lr": rate,
                "dev_accuracy": float(tuned.best[arm, 0]),
                "dev_auc": float(tuned.best[arm, 1]),
                "step": int(tuned.steps[arm]),
                "auc_test": auc_test(tuned.task(task, arm), tuned.prompts[arm]),
            }
            for arm, (seed, rate) in enumerate(tuned.arms)
        ],
        "chosen": chosen,
        "shots": config.shots,
        "counts": parts.counts(),
        "threshold": threshold._asdict(),
    }
    if config.checkpoint == TOY:
        asking = task._replace(wording=toy.toy_wording(templates.MEANING))
        figures["auc_test_with_the_question"] = auc_test(asking, tuned.first[0][:0])
    folder = workdir.root / "judge"
    write_judge(_judge(config, best, tuned.prompts[chosen], threshold, source, figures, folder), folder)
    content = {
        "format": 1,
        "source": source,
        "caption": results.caption(task.frozen.name, figures),
        "signature": load_judged(folder)[0].signature(task.frozen.name),
        **figures,
        "slices": results.by_slice(classifiers, parts.test),
        "parameters": {JUDGE: baselines.count(task.frozen.params), **{name: size for name, (_, size) in found.items()}},
        "speakers": speakers(config, parts, scores, threshold.value, source),
        "raters": results.raters(parts),
        **results.data_tables([*second[0].train, *second[0].dev, *second[0].test]),
    }
    if second[1]:
        content["second_test"] = results.second_results(
            config.test, second[0], parts, second[1], scores, threshold.value, config.exact
        )
    write_text(workdir.root / "results.json", json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    write_text(workdir.root / "results.md", results.to_markdown(content))
    results.write_curves(workdir.root / "curves.png", classifiers, labels["test"])
    return content


def _scores(task: Task, prompt: np.ndarray, pairs: Sequence[Pair]) -> np.ndarray:
    """Return the score of every pair under a prompt, float `[N]`; pairs that are too long are cut."""
    asker = Asker(task.frozen, prompt, task.wording, task.labels, truncate=True)
    return asker.scores([(pair.reference, pair.hypothesis) for pair in pairs])


def _judge(
    config: JudgeSettings,
    task: Task,
    prompt: np.ndarray,
    threshold: Threshold,
    source: str,
    figures: dict[str, Any],
    folder: epath.Path,
) -> Judge:
    """Return the judge to write for `folder`; its checkpoint is a Hub name, or a path relative to that folder."""
    frozen, place = task.frozen, config.checkpoint
    if place == TOY:
        place = f"../{TOY}"
    elif Path(place).expanduser().is_dir():
        place = os.path.relpath(Path(place).expanduser().resolve(), folder.resolve())
    return Judge(
        checkpoint=place,
        weights=frozen.digest,
        tokenizer=frozen.tokenizer_digest,
        dtype=config.dtype,
        param_dtype=config.param_dtype,
        wording=task.wording,
        labels=task.labels,
        prompt=prompt,
        threshold=threshold.value,
        threshold_how=threshold.how,
        exact=config.exact,
        source=source,
        data=task.digest,
        about=figures,
        fsdp=config.parallel.fsdp,
    )


def speakers(
    config: JudgeSettings, parts: Parts, scores: Scores, threshold: float, source: str
) -> dict[str, Any] | None:
    """Return the table of `speakers_table`; None if no test pair names its speaker.

    A judge tuned on controlled edits is tested on synthetic speakers instead, if `edits.speakers` is not 0.
    """
    pairs = [pair for pair in (*parts.test, *parts.exact_test) if pair.speaker]
    if source == SOURCES["edits"] and config.edits.speakers:
        tested = {normalize(pair.reference) for pair in parts.test}
        sentences = [text for text in sentences_of(config) if normalize(text) in tested]
        pairs = controlled.make_speakers(
            sentences, speakers=config.edits.speakers, utterances=60, seed=config.edits.seed + 1
        )
    return speakers_table(pairs, scores, threshold, exact=config.exact) if pairs else None
