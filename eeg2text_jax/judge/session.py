"""The judge as a page: pairs, frozen model, tune, choose, baselines, tables. What is done is passed over."""

import contextlib
import dataclasses
import functools
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from etils import epath

from eeg2text_jax.errors import UserError
from eeg2text_jax.files import write_text
from eeg2text_jax.judge import baselines, controlled, curves, templates, toy
from eeg2text_jax.judge.few_shot import prompt_with_examples
from eeg2text_jax.judge.fields import LATER, JudgeSettings
from eeg2text_jax.judge.frozen import Asker, Frozen, load_frozen
from eeg2text_jax.judge.judge_folder import Judge, load_judged, write_judge
from eeg2text_jax.judge.pairs import Meaning, Pair, Parts, divide, normalize, pairs_digest, read_pairs, write_pairs
from eeg2text_jax.judge.results import by_slice, caption, data_tables, raters, speakers_table, to_markdown
from eeg2text_jax.judge.second_test import Scores, hold_out, second_results
from eeg2text_jax.judge.thresholds import Threshold, auc, choose_threshold
from eeg2text_jax.judge.tune import Task, Tuned, tune
from eeg2text_jax.judge.wording import choose_wording
from eeg2text_jax.models.functional import Seq2SeqModel
from eeg2text_jax.stores.copying import at_hand
from eeg2text_jax.stores.mirror import mirrored
from eeg2text_jax.study.config_file import product, write_configuration
from eeg2text_jax.study.configuration import differences, to_json
from eeg2text_jax.study.workdir import Workdir, lock_workdir

TOY, JUDGE = "toy", "LATTEScore's judge"
SPOKEN = 60  # utterances of each made-up speaker
SOURCES = {"edits": "controlled edits", "templates": "template pairs"}  # what `pairs` names beside files


def judge(config: JudgeSettings, root: str, labels: Meaning = "") -> dict[str, Any]:
    """Tunes a judge in the folder `root` and writes `judge/`, `results.json`, `results.md` and `curves.png` there.

    Returns:
      The content of `results.json`.

    Raises:
      UserError: the pairs, the checkpoint or the folder are not usable.
    """
    with begun(config, root) as workdir:
        pairs, source = labelled_pairs(config, labels, workdir)
        where = config.pairs if source == "human labels" else source
        whole = divide(pairs, config.split.ratio, config.split.seed, where)
        tested = read_pairs(config.test, labels) if config.test else []
        parts = hold_out(whole, tested, config.test) if config.test else whole
        frozen = frozen_model(config, workdir)
        wording = toy.toy_wording() if config.checkpoint == TOY else choose_wording(config.wording, frozen.tokenizer)
        answers = frozen.labels(config.labels, wording)
        task = Task(frozen, wording, answers, parts, pairs_digest([*pairs, *tested]))
        print(announce(config, task, source))
        tuned = prompt_with_examples(config, task) if config.shots else tune(config, task, workdir.root)
        results = finish(config, task, tuned, source, workdir, (whole, tested))
        print(to_markdown(results))
        print(f"everything is in {root}: judge, results.md, results.json, curves.png")
        return results


def labelled_pairs(config: JudgeSettings, labels: Meaning, workdir: Workdir) -> tuple[list[Pair], str]:
    """The pairs and where their labels come from; pairs that are made here are written to `pairs.tsv`."""
    if config.pairs not in SOURCES:
        return read_pairs(config.pairs, labels), "human labels"
    if config.pairs == "templates":
        made = templates.toy_pairs(config.toy.pairs, config.toy.seed)
    else:
        options = config.edits
        made = controlled.make_pairs(
            sentences_of(config), per_sentence=options.per_sentence, preserved=options.preserved, seed=options.seed
        )
    write_text(workdir.root / "pairs.tsv", write_pairs(made))
    return made, SOURCES[config.pairs]


def sentences_of(config: JudgeSettings) -> list[str]:
    """What controlled edits are made of."""
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
def begun(config: JudgeSettings, root: str) -> Iterator[Workdir]:
    """Opens the folder for this configuration; no other process may be at work in it.

    Raises:
      UserError: it was begun with another configuration.
    """
    if config.compilation_cache and not jax.config.jax_compilation_cache_dir:
        jax.config.update("jax_compilation_cache_dir", str(epath.Path(config.compilation_cache).expanduser()))
    with mirrored(root) as local, lock_workdir(local):
        workdir = Workdir(epath.Path(local))
        if workdir.config.exists():
            _check_same(config, workdir)
        write_configuration(workdir, dataclasses.asdict(config))
        yield workdir


def _check_same(config: JudgeSettings, workdir: Workdir) -> None:
    try:
        before = json.loads(workdir.config.read_bytes())
    except ValueError as error:
        raise UserError(f"{workdir.config}: is not JSON; take another --workdir.") from error
    if "prompt" not in before:
        raise UserError(f"{workdir.root}: holds a run of another command; take another --workdir.")
    found = [
        line
        for line in differences(json.loads(to_json(dataclasses.asdict(config))), before)
        if line.partition(" ")[0] not in LATER
    ]
    if found and product(workdir, "training"):
        raise UserError(
            f"{workdir.root} belongs to another configuration (its config.json): {', '.join(found[:3])}; take another "
            f"--workdir or these values. What may change here: {', '.join(LATER)}."
        )


def frozen_model(config: JudgeSettings, workdir: Workdir) -> Frozen:
    """The checkpoint's model; the toy is trained first, unless it has been."""
    place = config.checkpoint
    if place == TOY:
        place = str(workdir.root / TOY)
        if not (workdir.root / TOY).exists():
            toy.make_toy(config.toy, place)
    frozen = load_frozen(place, config.dtype, config.param_dtype, config.parallel.fsdp)
    old = frozen.model
    model = Seq2SeqModel(old.spec, None, old.dtype, remat=config.model.remat, keep=config.model.keep)
    return frozen._replace(model=model)


def announce(config: JudgeSettings, task: Task, source: str) -> str:
    """What is tuned on what."""
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
    """Chooses prompt and threshold on dev, writes the judge, and tests it beside the baselines.

    `second`: the parts before the references of `config.test` were taken out, and the pairs of `config.test`.
    """
    parts, chosen = task.parts, tuned.chosen
    asked = functools.partial(_ask, tuned.task(task, chosen), tuned.prompts[chosen])
    dev, test = asked(parts.dev), asked(parts.test)
    labels = {name: np.array([pair.preserved for pair in getattr(parts, name)]) for name in ("dev", "test")}
    threshold = choose_threshold(dev, labels["dev"], config.threshold.precision)
    encoders = config.bertscore_encoder or config.encoder, config.encoder
    found = baselines.baseline_scores(encoders, task.frozen.folder, parts)
    classifiers = {JUDGE: test, **{name: scores for name, (scores, _) in found.items()}}
    every = [
        auc(_ask(tuned.task(task, arm), prompt, parts.test), labels["test"]) for arm, prompt in enumerate(tuned.prompts)
    ]
    before = auc(_ask(task, tuned.first[chosen], parts.test), labels["test"])
    figures = {
        "auc_dev": auc(dev, labels["dev"]),
        "auc_test": auc(test, labels["test"]),
        "auc_test_before_tuning": before,
        "arms": [
            {
                "seed": seed,
                "lr": rate,
                "dev_accuracy": float(a),
                "dev_auc": float(b),
                "step": int(step),
                "auc_test": one,
            }
            for (seed, rate), (a, b), step, one in zip(tuned.arms, tuned.best, tuned.steps, every, strict=True)
        ],
        "chosen": chosen,
        "shots": config.shots,
        "counts": parts.counts(),
        "threshold": threshold._asdict(),
    }
    if config.checkpoint == TOY:
        figures["auc_test_with_the_question"] = _with_question(task, tuned)
    made = _judge(config, tuned.task(task, chosen), tuned.prompts[chosen], threshold, source, figures, workdir)
    write_judge(made, workdir.root / "judge")
    results = {
        "format": 1,
        "source": source,
        "caption": caption(task.frozen.name, figures),
        "signature": load_judged(workdir.root / "judge")[0].signature(task.frozen.name),
        **figures,
        "slices": by_slice(classifiers, parts.test),
        "parameters": {JUDGE: baselines.count(task.frozen.params), **{name: size for name, (_, size) in found.items()}},
        "speakers": speakers(config, task, asked, threshold, source),
        "raters": raters(parts),
        **data_tables([*second[0].train, *second[0].dev, *second[0].test]),
    }
    if second[1]:
        results["second_test"] = second_results(
            config.test, second[0], parts, second[1], asked, threshold.value, config.exact
        )
    write_text(workdir.root / "results.json", json.dumps(results, indent=1, ensure_ascii=False) + "\n")
    write_text(workdir.root / "results.md", to_markdown(results))
    curves.write_curves(workdir.root / "curves.png", classifiers, labels["test"])
    return results


def _ask(task: Task, prompt: np.ndarray, pairs: Sequence[Pair]) -> np.ndarray:
    asker = Asker(task.frozen, prompt, task.wording, task.labels, truncate=True)
    return asker.scores([(pair.reference, pair.hypothesis) for pair in pairs])


def _with_question(task: Task, tuned: Tuned) -> float | None:
    """AUC of the toy where the question word stands in the place of the prompt."""
    frozen = task.frozen
    asked = Asker(frozen, tuned.first[0][:0], toy.toy_wording(templates.MEANING), task.labels)
    scores = asked.scores([(pair.reference, pair.hypothesis) for pair in task.parts.test])
    return auc(scores, np.array([pair.preserved for pair in task.parts.test]))


def _judge(
    config: JudgeSettings,
    task: Task,
    prompt: np.ndarray,
    threshold: Threshold,
    source: str,
    figures: Mapping[str, Any],
    workdir: Workdir,
) -> Judge:
    frozen = task.frozen
    place = config.checkpoint
    if place == TOY:
        place = f"../{TOY}"
    elif Path(place).expanduser().is_dir():
        place = str(Path(place).expanduser().resolve())
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
        about=dict(figures),
        fsdp=config.parallel.fsdp,
    )


def speakers(
    config: JudgeSettings, task: Task, scores: Scores, threshold: Threshold, source: str
) -> dict[str, Any] | None:
    """The table of speakers of the test part, made-up ones where the pairs are controlled edits; None without any."""
    pairs = [*task.parts.test, *task.parts.exact_test]
    if source == SOURCES["edits"] and config.edits.speakers:
        tested = {normalize(pair.reference) for pair in task.parts.test}
        sentences = [text for text in sentences_of(config) if normalize(text) in tested]
        pairs = controlled.make_speakers(
            sentences, speakers=config.edits.speakers, utterances=SPOKEN, seed=config.edits.seed + 1
        )
    pairs = [pair for pair in pairs if pair.speaker]
    if not pairs:
        return None
    return speakers_table(pairs, scores, threshold.value, exact=config.exact)
