"""Prediction sets made to mislead the audit: each with the verdicts that are true of it.

`python tests/audit/adversarial.py` prints every case with what was said of it, and the number of wrong answers.
"""

import dataclasses
import random
from collections import Counter

from rows import simulated_rows

from eeg2text_jax.auditing.audit import audit
from eeg2text_jax.auditing.result import AuditResult
from eeg2text_jax.auditing.verdict import Verdict
from eeg2text_jax.errors import UserError
from eeg2text_jax.predictions.file import Prediction

Rows = list[Prediction]
USES = {"uses EEG", "detectable but below the margin"}
NOTHING = {"underpowered", "equivalent to control", "control better"}
ALONE = {"no content found above its null"}
UNFIT = {"not judgeable"}
UNPROVEN = {"content of unproven origin"}
# What no structure betrays is judged as stated: word-by-word reading has the exact number of words, too.
STATED = {"uses EEG"}
REFUSED = {"refused"}


def edited(rows: Rows, text, share: float = 1.0, seed: int = 0) -> Rows:
    """Rows with `text(row, rng)` as prediction, in a share of them."""
    rng = random.Random(seed)
    return [dataclasses.replace(r, prediction=text(r, rng)) if rng.random() < share else r for r in rows]


def stated(rows: Rows, **fields) -> Rows:
    return [dataclasses.replace(r, **fields) for r in rows]


def words_of(rows: Rows) -> list[str]:
    return [word for r in rows for word in r.reference.split()]


def cases() -> dict[str, tuple[Rows, dict[str, Rows], dict, set[str]]]:
    """Name -> EEG's rows, controls, options of the audit, verdicts that are true."""
    sides = simulated_rows(7, sentences=48, subjects=3)
    nothing, noise = sides
    little = simulated_rows(7, sentences=48, subjects=3, information=0.09)[0]
    much = simulated_rows(7, sentences=48, subjects=3, information=0.3)[0]
    styled = simulated_rows(7, sentences=48, subjects=3, style_shift=0.5)[0]
    vocabulary = words_of(nothing)
    frequent = [word for word, _ in Counter(vocabulary).most_common(30)]
    texts = sorted({r.reference for r in nothing})
    by_sentence = {r.sentence_id: r.prediction for r in nothing}
    by_length = {r.n_words: r.prediction for r in nothing}
    by_subject = {r.subject: r.prediction for r in nothing}
    few = set(texts[:20])
    pair = {"noise": noise}

    def right(share):
        return lambda r, rng: " ".join(
            w if rng.random() < share else rng.choice(vocabulary) for w in r.reference.split()
        )

    def first(share):
        return lambda r, rng: " ".join(r.reference.split()[: max(1, int(len(r.reference.split()) * share))])

    def other(r, rng):
        return rng.choice([t for t in texts if t != r.reference])

    def reordered(r, rng):
        return " ".join(rng.sample(r.reference.split(), len(r.reference.split())))

    unknown, forced = {"mode": "unknown"}, {"mode": "teacher_forced"}
    return {
        "honest, little": (little, pair, {}, USES),
        "honest, much, with proof": (much, pair, {"proof": "the test planted all of it"}, USES),
        "much, stated by its modes alone": (much, pair, {}, USES),
        "much, of unknown mode": (stated(much, **unknown), {"noise": stated(noise, **unknown)}, {}, UNPROVEN),
        "nothing": (nothing, pair, {}, NOTHING),
        "nothing alone": (nothing, {}, {}, ALONE),
        "style of frequent words": (styled, pair, {}, NOTHING),
        "style alone": (styled, {}, {}, ALONE),
        "one sentence for all": (edited(nothing, lambda r, _: texts[0]), pair, {}, NOTHING),
        "one sentence for all, alone": (edited(nothing, lambda r, _: texts[0]), {}, {}, ALONE),
        "constant control": (nothing, {"noise": edited(noise, lambda r, _: "he was born in")}, {}, NOTHING),
        "constant on both sides": (
            edited(nothing, lambda r, _: "he was"),
            {"noise": edited(noise, lambda r, _: "it is")},
            {},
            NOTHING,
        ),
        "frequent words at random": (
            edited(nothing, lambda r, g: " ".join(g.choices(frequent, k=14))),
            pair,
            {},
            NOTHING,
        ),
        "test sentences at random": (edited(nothing, lambda r, g: g.choice(texts)), pair, {}, NOTHING | UNFIT),
        "always a wrong test sentence": (edited(nothing, other), pair, {}, NOTHING),
        "one text a sentence": (edited(nothing, lambda r, _: by_sentence[r.sentence_id]), pair, {}, UNFIT),
        "one text a sentence, nearly": (
            edited(nothing, lambda r, _: by_sentence[r.sentence_id], 0.985),
            pair,
            {},
            UNFIT,
        ),
        "one text a sentence, right in part": (edited(nothing, lambda r, _: first(0.2)(r, None)), pair, {}, UNFIT),
        "one text a length": (edited(nothing, lambda r, _: by_length[r.n_words]), pair, {}, NOTHING | UNFIT),
        "one text a subject": (edited(nothing, lambda r, _: by_subject[r.subject]), pair, {}, NOTHING),
        "teacher-forced, said": (
            stated(edited(nothing, right(0.3)), **forced),
            {"noise": stated(noise, **forced)},
            {},
            UNFIT,
        ),
        "teacher-forced against free": (stated(edited(nothing, right(0.3)), **forced), pair, {}, UNFIT),
        "word by word, stated to run free": (edited(nothing, right(0.3)), pair, {}, STATED),
        "word by word on both sides": (
            stated(edited(nothing, right(0.3)), **unknown),
            {"noise": stated(edited(noise, right(0.3), seed=1), **unknown)},
            {},
            NOTHING,
        ),
        "word by word alone, of unknown mode": (stated(edited(nothing, right(0.35)), **unknown), {}, {}, UNPROVEN),
        "unknown mode beside a known one": (stated(nothing, **unknown), pair, {}, UNFIT),
        "copies of targets": (edited(nothing, lambda r, _: r.reference, 0.05), pair, {}, UNFIT),
        "copies of targets alone": (edited(nothing, lambda r, _: r.reference, 0.1), {}, {}, UNFIT),
        "all targets copied, alone": (edited(nothing, lambda r, _: r.reference), {}, {}, UNFIT),
        "targets with a word appended, alone": (edited(nothing, lambda r, _: f"{r.reference} x"), {}, {}, UNFIT),
        "targets inside other words": (edited(nothing, lambda r, _: f"so {r.reference} and", 0.1), pair, {}, UNFIT),
        "targets in capitals": (edited(nothing, lambda r, _: f"{r.reference.upper()}!", 0.1), pair, {}, UNFIT),
        "targets reordered": (edited(nothing, reordered), pair, {}, UNFIT),
        "beginnings of targets": (edited(nothing, first(0.5)), pair, {}, UNFIT),
        "sides exchanged": (noise, {"noise": much}, {"proof": "the test planted all of it"}, {"control better"}),
        "the same twice": (nothing, {"noise": list(nothing)}, {}, {"equivalent to control"}),
        "empty control": (little, {"noise": edited(noise, lambda r, _: "")}, {}, UNFIT),
        "control of marks": (little, {"noise": edited(noise, lambda r, _: "... </s> <pad>")}, {}, UNFIT),
        "empty EEG alone": (edited(nothing, lambda r, _: " "), {}, {}, UNFIT),
        "half of EEG empty": (edited(nothing, lambda r, _: "", 0.5), pair, {}, NOTHING),
        "twenty sentences": (
            [r for r in much if r.reference in few],
            {"noise": [r for r in noise if r.reference in few]},
            {"proof": "the test planted all of it"},
            UNFIT,
        ),
        "three sentences": (
            [r for r in much if r.reference in texts[:3]],
            {"noise": [r for r in noise if r.reference in texts[:3]]},
            {},
            REFUSED,
        ),
        "remembered training sentences": (
            edited(nothing, lambda r, g: g.choice(texts[:24])),
            pair,
            {"training_text": texts[:24]},
            UNFIT,
        ),
        "training sentences, none of the test": (edited(nothing, other), pair, {"training_text": ["x y z"]}, NOTHING),
        "one huge row": (
            edited(nothing, lambda r, _: " ".join([r.reference] * 60), 0.005, seed=3),
            pair,
            {},
            NOTHING | UNFIT,
        ),
        "predictions of the next sentence": (
            [dataclasses.replace(a, prediction=b.prediction) for a, b in zip(much, much[3:] + much[:3], strict=True)],
            pair,
            {},
            NOTHING,
        ),
        "rows of one side left out": (nothing[20:], pair, {}, REFUSED),
        "rows of one side left out, common": (nothing[20:], pair, {"common": True}, NOTHING),
        "two controls, one beaten": (little, {"noise": noise, "copy": list(little)}, {}, {"equivalent to control"}),
        "random letters": (
            edited(nothing, lambda r, g: " ".join(f"{g.random():.9f}" for _ in range(14))),
            pair,
            {},
            NOTHING,
        ),
        "tasks unknown, nothing": (stated(nothing, task=""), {"noise": stated(noise, task="")}, {}, NOTHING),
        "tasks unknown, little": (stated(little, task=""), {"noise": stated(noise, task="")}, {}, USES | NOTHING),
        "subjects unknown": (stated(nothing, subject=""), {"noise": stated(noise, subject="")}, {}, NOTHING),
    }


def answer(eeg: Rows, controls: dict[str, Rows], options: dict, resamples: int = 200) -> tuple[str, AuditResult | None]:
    """The verdict, or `refused`."""
    try:
        result = audit(eeg, controls, resamples=resamples, **options)
    except UserError:
        return "refused", None
    return Verdict(result.verdict).value, result


if __name__ == "__main__":
    wrong = 0
    for name, (eeg, controls, options, true) in cases().items():
        said, result = answer(eeg, controls, options, resamples=1000)
        wrong += said not in true
        codes = sorted({flag.code for flag in result.flags if flag.level != "note"}) if result else []
        print(f"{'      ' if said in true else 'WRONG '}{name:40} {said:32} {', '.join(codes)}")
    print(f"{wrong} wrong of {len(cases())}")
