"""Train a LATTEScore judge: pairs, frozen model, tuning, baselines, tables; a killed run resumes."""

import contextlib
import dataclasses
import functools
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from etils import epath
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.base.files import replacing, write_text
from eeg2text_jax.base.kinds import plain
from eeg2text_jax.base.stores.buckets import at_hand
from eeg2text_jax.base.stores.mirror import mirrored
from eeg2text_jax.instrument.workdir import (
    Workdir,
    add_fields,
    differences,
    is_read_only,
    lock_workdir,
    product,
    read_object,
    resolved,
    write_configuration,
)
from eeg2text_jax.judge import _edits, baselines, toy
from eeg2text_jax.judge._judge_folder import Judge, load_judged, write_judge
from eeg2text_jax.judge.baselines import Scores, Threshold, auc, auc_interval, table_lines, three_digits
from eeg2text_jax.judge.fields import LATER, PLACES, JudgeSettings
from eeg2text_jax.judge.frozen import Asker, Frozen, load_frozen
from eeg2text_jax.judge.pairs import (
    Meaning,
    Pair,
    Parts,
    data_tables,
    divide,
    normalize,
    pairs_digest,
    preserved_of,
    read_pairs,
    write_pairs,
)
from eeg2text_jax.judge.tune import Task, Tuned, prompt_with_examples, tune
from eeg2text_jax.judge.wording import choose_wording, read_labels


def by_slice(classifiers: Mapping[str, np.ndarray], pairs: Sequence[Pair]) -> list[dict[str, Any]]:
    """Return of each slice of the pairs its name, `n`, `preserved` (count), and each classifier's `auc`.

    Slices: all, each type of speech, each severity, each kind of edit with all pairs that keep the meaning. `auc` has
    "value" and "interval" (95 %), None for one class.
    """
    labels = preserved_of(pairs)
    sentences = np.array([normalize(pair.reference) for pair in pairs], object)
    slices = {"all": [True] * len(pairs)}
    for field in ("speech_type", "severity"):
        for name in sorted({getattr(pair, field) for pair in pairs} - {""}):
            slices[name] = [getattr(pair, field) == name for pair in pairs]
    for kind in sorted({pair.kind for pair in pairs} - {""}):
        slices[f"kind {kind}"] = [pair.preserved or pair.kind == kind for pair in pairs]
    rows = []
    for name, inside in slices.items():
        kept = labels[inside]
        row: dict[str, Any] = {"slice": name, "n": len(kept), "preserved": int(kept.sum()), "auc": {}}
        if not 0 < row["preserved"] < row["n"]:
            row["reason"] = "one class only"
        for classifier, scores in classifiers.items():
            interval = auc_interval(scores[inside], kept, sentences[inside])
            row["auc"][classifier] = {"value": auc(scores[inside], kept), "interval": interval}
        rows.append(row)
    return rows


def raters(parts: Parts) -> dict[str, Any] | None:
    """Return Cohen's kappa of labels as rated, and of preserved or not; None without second ratings."""
    if not parts.rated_twice:
        return None
    sides = list(zip(*parts.rated_twice, strict=True))
    as_rated = baselines.kappa(*([pair.rated for pair in side] for side in sides))
    merged = baselines.kappa(*([str(pair.preserved) for pair in side] for side in sides))
    return {"pairs": len(parts.rated_twice), "kappa": as_rated, "kappa_preserved": merged}


def hold_out(parts: Parts, tested: Sequence[Pair], where: str) -> Parts:
    """Return the parts without train and dev pairs whose normalized reference is in the second test file `where`.

    Raises UserError if train or dev then lacks a class, or that file has no pair with an error.
    """
    if all(pair.is_exact for pair in tested):
        raise UserError(
            f"{where}: every hypothesis equals its reference but for case and punctuation; give another file."
        )
    references, remaining = {normalize(pair.reference) for pair in tested}, dict[str, Any]()
    for name in ("train", "dev"):
        pairs = remaining[name] = [p for p in getattr(parts, name) if normalize(p.reference) not in references]
        if len({pair.preserved for pair in pairs}) < 2:
            raise UserError(
                f"{where}: the {name} part keeps only {len(pairs)} pairs, not of both classes (preserved and lost), "
                "without the references of this test file; give more pairs to tune on."
            )
    return dataclasses.replace(parts, **remaining)


def second_results(
    config: JudgeSettings, before: Parts, parts: Parts, tested: Sequence[Pair], scores: Scores, threshold: float
) -> dict[str, Any]:
    """Return `second_test` of `results.json` for the pairs of that file; `before` are the parts before `hold_out`."""
    wrong = [pair for pair in tested if not pair.is_exact]
    labels, values = preserved_of(wrong), scores(wrong)
    spoken = [pair for pair in tested if pair.speaker]
    references, trained = ({normalize(pair.reference) for pair in side} for side in (tested, parts.train + parts.dev))
    return {
        "file": os.path.basename(config.test),
        "pairs": len(tested),
        "with_an_error": len(wrong),
        "references": len(references),
        "taken_out": {name: len(getattr(before, name)) - len(getattr(parts, name)) for name in ("train", "dev")},
        "references_in_training": len(references & trained),
        "auc": auc(values, labels),
        "auc_interval": auc_interval(values, labels, [normalize(pair.reference) for pair in wrong]),
        "speakers": baselines.speakers_table(spoken, scores, threshold, exact=config.exact) if spoken else None,
    }


def caption(name: str, figures: Mapping[str, Any]) -> str:
    """Return a sentence with AUC on test and threshold of the chosen prompt; `name` is the model's."""
    arms = [arm["auc_test"] for arm in figures["arms"] if arm["auc_test"] is not None]
    spread = f" (of all {len(arms)} seeds {np.mean(arms):.3f} ± {np.std(arms, ddof=1):.3f})" if len(arms) > 1 else ""
    limit = figures["threshold"]
    shots, question = figures.get("shots", 0), figures.get("auc_test_with_the_question")
    what, before = (f"{shots} examples", "without examples") if shots else ("prompt", "before tuning")
    asked = "" if question is None else f", with the question word in the prompt's place {question:.3f}"
    return (
        f"{name}, {what} of seed {figures['arms'][figures['chosen']]['seed']}: AUC on test "
        f"{three_digits(figures['auc_test'])}{spread}, {before} {three_digits(figures['auc_test_before_tuning'])}"
        f"{asked}; threshold {limit['value']:.3f}, {limit['how']} (precision {limit['precision']:.2f}, recall "
        f"{limit['recall']:.2f})."
    )


def to_markdown(results: Mapping[str, Any]) -> str:
    """Return the text of `results.md` from `results.json`."""
    names = list(results["slices"][0]["auc"])
    done = f"with {shots} examples of" if (shots := results.get("shots")) else "tuned on"
    lines = [f"# Judge {done} {results['source']}", "", results["caption"], "", "## AUC on the test part", ""]
    rows = []
    if sizes := results.get("parameters"):
        rows.append(["parameters", "", "", *(f"{sizes[name] / 1e6:,.1f} M" for name in names)])
    for row in results["slices"]:
        cells = [_auc_cell(**row["auc"][name]) for name in names]
        rows.append([row["slice"], str(row["n"]), str(row["preserved"]), *cells])
    lines += table_lines(["slice", "n", "preserved", *names], rows)
    if speakers := results.get("speakers"):
        lines += ["", "## Speakers", "", *baselines.speakers_markdown(speakers)]
    if raters_ := results.get("raters"):
        as_rated, merged = (three_digits(raters_[name]) for name in ("kappa", "kappa_preserved"))
        agreed = f"Agreement of two raters on {raters_['pairs']} pairs: kappa {as_rated} (labels as rated)"
        lines += ["", f"{agreed}, {merged} (preserved or not)."]
    lines += _data_markdown(results)
    if second := results.get("second_test"):
        taken = second["taken_out"]
        lines += [
            "",
            f"## {second['file']}",
            "",
            f"AUC {_auc_cell(second['auc'], second['auc_interval'])} on the {second['with_an_error']} pairs with an "
            f"error ({second['pairs']} pairs in all). Of this file's {second['references']} references, "
            f"{second['references_in_training']} are in training; {taken['train']} pairs of train and {taken['dev']} "
            "of dev share a reference with this file and were taken out.",
        ]
        if second["speakers"]:
            lines += ["", *baselines.speakers_markdown(second["speakers"])]
    return "\n".join(lines) + "\n"


def _data_markdown(results: Mapping[str, Any]) -> list[str]:
    """Return the lines of those of the paper's Tables 1 to 3 that have entries."""
    lines = []
    if parts := results.get("counts"):
        share = [f"{100 * part['preserved'] / part['pairs']:.1f}%" for part in parts.values()]
        rows = [["examples", *(str(part["pairs"]) for part in parts.values())], ["meaning preserved", *share]]
        lines += ["", "## Parts", "", *table_lines(["split", *parts], rows)]
    if severities := results.get("speakers_by_severity"):
        lines += ["", "## Speakers by severity", ""]
        lines += table_lines(["severity", *severities], [["speakers", *map(str, severities.values())]])
    if len(labels := results.get("labels", {})) > 1:
        rows = []
        for name, of in labels.items():
            texts = [text.replace("|", "\\|") for text in of["example"]]
            rows.append([name, "yes" if of["preserved"] else "no", str(of["pairs"]), f"{of['percent']:.0f}", *texts])
        head = ["label", "meaning preserved", "pairs", "%", "ground truth", "transcript"]
        lines += ["", "## Pairs by label", "", *table_lines(head, rows)]
    return lines


def _auc_cell(value: float | None, interval: Sequence[float]) -> str:
    return "–" if value is None else f"{value:.3f} ({interval[0]:.2f} to {interval[1]:.2f})"


def write_curves(path: str | os.PathLike[str], classifiers: Mapping[str, np.ndarray], labels: np.ndarray) -> None:
    """Write a PNG with the precision-recall and ROC curves of each classifier's scores `[N]`."""
    figure = Figure(figsize=(9, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    for name, scores in classifiers.items():
        points, area = baselines.curve(scores, labels), auc(scores, labels) or 0
        left.step([0.0, *points.recall], [1.0, *points.precision], where="post", label=name)
        right.plot([0.0, *points.false_positive_rate], [0.0, *points.recall], label=f"{name}, AUC {area:.3f}")
    right.plot([0, 1], [0, 1], color="0.7", linewidth=0.8, linestyle=":")
    for axes, title, x, y in (
        (left, "Precision and recall", "recall", "precision"),
        (right, "ROC", "false-positive rate", "true-positive rate"),
    ):
        axes.set(xlabel=x, ylabel=y, xlim=(0, 1), ylim=(0, 1.02), title=title)
        axes.legend(fontsize="small")
    with replacing(path) as partial:
        figure.savefig(partial, format="png", dpi=120, metadata={"Software": None})


TOY, JUDGE = "toy", "LATTEScore's judge"
SOURCES = {"edits": "controlled edits", "templates": "template pairs"}  # `config.pairs` -> origin of labels


def judge(config: JudgeSettings, root: str, labels: Meaning = "") -> dict[str, Any]:
    """Tune a judge in the workdir `root`; write `judge/`, `results.json`, which is returned, and more.

    `labels` is `meaning` of `read_pairs`. Raises UserError if an input is not usable.
    """
    with open_workdir(config, root) as workdir:
        done = workdir.root / "results.json"
        if is_read_only(workdir.root) and done.exists():
            content = json.loads(done.read_text())
            print(to_markdown(content))
            print(f"{root}: is read-only, so nothing was written.")
            return content
        pairs, source = labelled_pairs(config, labels, workdir)
        where = config.pairs if source == "human labels" else source
        whole = divide(pairs, config.split.ratio, config.split.seed, where)
        tested = read_pairs(config.test, labels) if config.test else []
        parts = hold_out(whole, tested, config.test) if config.test else whole
        frozen = frozen_model(config, workdir)
        wording = toy.toy_wording() if config.checkpoint == TOY else choose_wording(config.wording, frozen.tokenizer)
        answers = read_labels(config.labels, frozen.tokenizer, wording if frozen.alone else None)
        task = Task(frozen, wording, answers, parts, pairs_digest([*pairs, *tested]))
        counts = ", ".join(f"{name} {c['pairs']} ({c['preserved']} preserved)" for name, c in parts.counts().items())
        arms = f"{len(config.seeds) * len(config.optim.lr)} prompts of {config.prompt.length} vectors"
        if config.shots:
            arms = f"{len(config.seeds)} draws of {config.shots} examples, nothing tuned,"
        left_out = f"{parts.exact} pairs without an error left out. Wording: {wording.name}."
        print(f"{frozen.name}: {arms} on {source}: {counts}; {left_out}")
        tuned = prompt_with_examples(config, task) if config.shots else tune(config, task, workdir.root)
        content = finish(config, task, tuned, source, workdir, (whole, tested))
        print(to_markdown(content))
        print(f"everything is in {root}: judge, results.md, results.json, curves.png")
        return content


def labelled_pairs(config: JudgeSettings, labels: Meaning, workdir: Workdir) -> tuple[list[Pair], str]:
    """Read the pairs, or make them and write `pairs.tsv`; also return the origin of the labels."""
    if config.pairs not in SOURCES:
        return read_pairs(config.pairs, labels), "human labels"
    if config.pairs == "templates":
        made = toy.toy_pairs(config.toy.pairs, config.toy.seed)
    else:
        of = config.edits
        made = _edits.make_pairs(
            sentences_of(config), per_sentence=of.per_sentence, preserved=of.preserved, seed=of.seed
        )
    write_text(workdir.root / "pairs.tsv", write_pairs(made))
    return made, SOURCES[config.pairs]


def sentences_of(config: JudgeSettings) -> list[str]:
    """Return the sentences for controlled edits: the lines of `config.sentences`, else template sentences."""
    if not config.sentences:
        return list(toy.sentences(1000))
    try:
        text = Path(at_hand(config.sentences)).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"{config.sentences}: cannot be read as UTF-8 text, a sentence a line; check the path."
        ) from error
    return [line for line in text.splitlines() if line.strip()]


# Fields that version 0.2 lacked, and the values that say what it did.
ADDED = {"bertscore_encoder": "", "parallel.fsdp": False, "shots": 0, "test": ""}


@contextlib.contextmanager
def open_workdir(config: JudgeSettings, root: str) -> Iterator[Workdir]:
    """Lock the workdir and write the configuration; UserError if a prompt was tuned there with another."""
    if config.compilation_cache and not jax.config.jax_compilation_cache_dir:
        jax.config.update("jax_compilation_cache_dir", str(epath.Path(config.compilation_cache).expanduser()))
    with mirrored(root) as local, lock_workdir(local):
        workdir = Workdir(epath.Path(local))
        if workdir.config.exists():
            _check_same(config, workdir)
        write_configuration(workdir, plain(dataclasses.asdict(config)), PLACES)
        yield workdir


def _check_same(config: JudgeSettings, workdir: Workdir) -> None:
    before = resolved(read_object(workdir.config, "take another --workdir"), workdir.root, PLACES)
    if "prompt" not in before:
        raise UserError(f"{workdir.root}: holds a run of another command; take another --workdir.")
    add_fields(before, ADDED)
    changed = differences(plain(dataclasses.asdict(config)), before, PLACES)
    lines = [line for line in changed if line.partition(" ")[0] not in LATER]
    if lines and product(workdir, "training"):
        raise UserError(
            f"{workdir.root} belongs to another configuration (its config.json): {', '.join(lines[:3])}; take another "
            f"--workdir, or the values marked 'there'. What may change here: {', '.join(LATER)}."
        )


def frozen_model(config: JudgeSettings, workdir: Workdir) -> Frozen:
    """Load the checkpoint's model; the toy, a small T5, is trained unless the workdir has it."""
    place = config.checkpoint
    if place == TOY:
        place = str(workdir.root / TOY)
        if Path(place).exists():
            toy.check_toy(place)
        else:
            toy.make_toy(config.toy, place)
    frozen = load_frozen(place, config.dtype, config.param_dtype, config.parallel.fsdp)
    return frozen._replace(model=dataclasses.replace(frozen.model, remat=config.model.remat, keep=config.model.keep))


def finish(
    config: JudgeSettings, task: Task, tuned: Tuned, source: str, workdir: Workdir, second: tuple[Parts, list[Pair]]
) -> dict[str, Any]:
    """Choose the threshold on dev, test the prompt beside the baselines, write the judge and all results.

    `second` has the parts before `hold_out`, and the second test file's pairs. Returns the content of `results.json`.
    """
    parts, best_arm = task.parts, tuned.chosen
    best, prompt = tuned.task(task, best_arm), tuned.prompts[best_arm]
    scores = functools.partial(_scores, best, prompt)
    dev, test = scores(parts.dev), scores(parts.test)
    on_dev, on_test = preserved_of(parts.dev), preserved_of(parts.test)
    threshold = baselines.choose_threshold(dev, on_dev, config.threshold.precision)
    encoders = config.bertscore_encoder or config.encoder, config.encoder
    fitted = baselines.baseline_scores(encoders, task.frozen.folder, parts)
    classifiers = {JUDGE: test, **{name: values for name, (values, _) in fitted.items()}}

    def auc_test(asked: Task, prompt: np.ndarray) -> float | None:
        return auc(_scores(asked, prompt, parts.test), on_test)

    figures = {
        "auc_dev": auc(dev, on_dev),
        "auc_test": auc(test, on_test),
        "auc_test_before_tuning": auc_test(task, tuned.first[best_arm]),
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
        "chosen": best_arm,
        "shots": config.shots,
        "counts": parts.counts(),
        "threshold": threshold._asdict(),
    }
    if config.checkpoint == TOY:
        asking = task._replace(wording=toy.toy_wording(toy.MEANING))
        figures["auc_test_with_the_question"] = auc_test(asking, tuned.first[0][:0])
    folder, name = workdir.root / "judge", task.frozen.name
    write_judge(_judge(config, best, prompt, threshold, source, figures, folder), folder)
    before, tested = second
    content = {
        "format": 1,
        "source": source,
        "caption": caption(name, figures),
        "signature": load_judged(folder)[0].signature(name),
        **figures,
        "slices": by_slice(classifiers, parts.test),
        "parameters": {JUDGE: baselines.count(task.frozen.params)} | {name: size for name, (_, size) in fitted.items()},
        "speakers": speakers(config, parts, scores, threshold.value, source),
        "raters": raters(parts),
        **data_tables([*before.train, *before.dev, *before.test]),
    }
    if tested:
        content["second_test"] = second_results(config, before, parts, tested, scores, threshold.value)
    write_text(workdir.root / "results.json", json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    write_text(workdir.root / "results.md", to_markdown(content))
    write_curves(workdir.root / "curves.png", classifiers, on_test)
    return content


def _scores(task: Task, prompt: np.ndarray, pairs: Sequence[Pair]) -> np.ndarray:
    asker = Asker(task.frozen, prompt, task.wording, task.labels, truncate=True)
    return asker.scores([pair.texts for pair in pairs])


def _judge(
    config: JudgeSettings,
    task: Task,
    prompt: np.ndarray,
    threshold: Threshold,
    source: str,
    about: dict[str, Any],
    folder: epath.Path,
) -> Judge:
    """Return the judge for `folder`; its checkpoint is a Hub name, or a path relative to that folder."""
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
        about=about,
        fsdp=config.parallel.fsdp,
    )


def speakers(
    config: JudgeSettings, parts: Parts, scores: Scores, threshold: float, source: str
) -> dict[str, Any] | None:
    """Return the `speakers_table` of test pairs that name a speaker; for edits, of synthetic ones; None without."""
    pairs = [pair for pair in (*parts.test, *parts.exact_test) if pair.speaker]
    if source == SOURCES["edits"] and config.edits.speakers:
        tested = {normalize(pair.reference) for pair in parts.test}
        sentences = [text for text in sentences_of(config) if normalize(text) in tested]
        pairs = _edits.make_speakers(
            sentences, speakers=config.edits.speakers, utterances=60, seed=config.edits.seed + 1
        )
    return baselines.speakers_table(pairs, scores, threshold, exact=config.exact) if pairs else None
