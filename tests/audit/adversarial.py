"""Prediction sets made to mislead the audit: each with the verdicts that are true of it.

`python tests/audit/adversarial.py` prints every case with what was said of it, and the number of wrong answers.
"""

import dataclasses
from collections import Counter

from rows import changed, edited, simulated_rows

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


def cases() -> dict[str, tuple[Rows, dict[str, Rows], dict, set[str]]]:
    """Name -> EEG's rows, controls, options of the audit, verdicts that are true."""
    sides = simulated_rows(7, sentences=48, subjects=3)
    nothing, noise = sides
    little = simulated_rows(7, sentences=48, subjects=3, information=0.09)[0]
    much = simulated_rows(7, sentences=48, subjects=3, information=0.3)[0]
    styled = simulated_rows(7, sentences=48, subjects=3, style_shift=0.5)[0]
    vocabulary = [word for r in nothing for word in r.reference.split()]
    frequent = [word for word, _ in Counter(vocabulary).most_common(30)]
    texts = sorted({r.reference for r in nothing})
    by_sentence = {r.sentence_id: r.prediction for r in nothing}
    by_length = {r.n_words: r.prediction for r in nothing}
    by_subject = {r.subject: r.prediction for r in nothing}

    def case(true, eeg, controls=(("noise", noise),), **options):
        return eeg, dict(controls), options, true

    def right(share):
        return lambda r, g: " ".join(w if g.random() < share else g.choice(vocabulary) for w in r.reference.split())

    def first(share):
        return lambda r, rng: " ".join(r.reference.split()[: max(1, int(len(r.reference.split()) * share))])

    def other(r, rng):
        return rng.choice([t for t in texts if t != r.reference])

    def reordered(r, rng):
        return " ".join(rng.sample(r.reference.split(), len(r.reference.split())))

    def of(references, rows):
        return [r for r in rows if r.reference in references]

    unknown, forced, planted = {"mode": "unknown"}, {"mode": "teacher_forced"}, {"proof": "the test planted all of it"}
    one_text, by_word = edited(nothing, lambda r, _: by_sentence[r.sentence_id], 0.985), edited(nothing, right(0.3))
    controls_by_word = {"noise": changed(edited(noise, right(0.3), seed=1), **unknown)}
    return {
        "honest, little": case(USES, little),
        "honest, much, with proof": case(USES, much, **planted),
        "much, stated by its modes alone": case(USES, much),
        "much, of unknown mode": case(UNPROVEN, changed(much, **unknown), {"noise": changed(noise, **unknown)}),
        "nothing": case(NOTHING, nothing),
        "nothing alone": case(ALONE, nothing, {}),
        "style of frequent words": case(NOTHING, styled),
        "style alone": case(ALONE, styled, {}),
        "one sentence for all": case(NOTHING, changed(nothing, prediction=texts[0])),
        "one sentence for all, alone": case(ALONE, changed(nothing, prediction=texts[0]), {}),
        "constant control": case(NOTHING, nothing, {"noise": changed(noise, prediction="he was born in")}),
        "constant on both sides": case(
            NOTHING, changed(nothing, prediction="he was"), {"noise": changed(noise, prediction="it is")}
        ),
        "frequent words at random": case(NOTHING, edited(nothing, lambda r, g: " ".join(g.choices(frequent, k=14)))),
        "test sentences at random": case(NOTHING | UNFIT, edited(nothing, lambda r, g: g.choice(texts))),
        "always a wrong test sentence": case(NOTHING, edited(nothing, other)),
        "one text a sentence": case(UNFIT, edited(nothing, lambda r, _: by_sentence[r.sentence_id])),
        "one text a sentence, nearly": case(UNFIT, one_text),
        "one text a sentence, right in part": case(UNFIT, edited(nothing, lambda r, _: first(0.2)(r, None))),
        "one text a length": case(NOTHING | UNFIT, edited(nothing, lambda r, _: by_length[r.n_words])),
        "one text a subject": case(NOTHING, edited(nothing, lambda r, _: by_subject[r.subject])),
        "teacher-forced, said": case(UNFIT, changed(by_word, **forced), {"noise": changed(noise, **forced)}),
        "teacher-forced against free": case(UNFIT, changed(by_word, **forced)),
        "word by word, stated to run free": case(STATED, by_word),
        "word by word on both sides": case(NOTHING, changed(by_word, **unknown), controls_by_word),
        "word by word alone, of unknown mode": case(UNPROVEN, changed(edited(nothing, right(0.35)), **unknown), {}),
        "unknown mode beside a known one": case(UNFIT, changed(nothing, **unknown)),
        "copies of targets": case(UNFIT, edited(nothing, lambda r, _: r.reference, 0.05)),
        "copies of targets alone": case(UNFIT, edited(nothing, lambda r, _: r.reference, 0.1), {}),
        "all targets copied, alone": case(UNFIT, edited(nothing, lambda r, _: r.reference), {}),
        "targets with a word appended, alone": case(UNFIT, edited(nothing, lambda r, _: f"{r.reference} x"), {}),
        "targets inside other words": case(UNFIT, edited(nothing, lambda r, _: f"so {r.reference} and", 0.1)),
        "targets in capitals": case(UNFIT, edited(nothing, lambda r, _: f"{r.reference.upper()}!", 0.1)),
        "targets reordered": case(UNFIT, edited(nothing, reordered)),
        "beginnings of targets": case(UNFIT, edited(nothing, first(0.5))),
        "sides exchanged": case({"control better"}, noise, {"noise": much}, **planted),
        "the same twice": case({"equivalent to control"}, nothing, {"noise": list(nothing)}),
        "empty control": case(UNFIT, little, {"noise": changed(noise, prediction="")}),
        "control of marks": case(UNFIT, little, {"noise": changed(noise, prediction="... </s> <pad>")}),
        "empty EEG alone": case(UNFIT, changed(nothing, prediction=" "), {}),
        "half of EEG empty": case(NOTHING, edited(nothing, lambda r, _: "", 0.5)),
        "twenty sentences": case(UNFIT, of(texts[:20], much), {"noise": of(texts[:20], noise)}, **planted),
        "three sentences": case(REFUSED, of(texts[:3], much), {"noise": of(texts[:3], noise)}),
        "remembered training sentences": case(
            UNFIT, edited(nothing, lambda r, g: g.choice(texts[:24])), training_text=texts[:24]
        ),
        "training sentences, none of the test": case(NOTHING, edited(nothing, other), training_text=["x y z"]),
        "one huge row": case(
            NOTHING | UNFIT, edited(nothing, lambda r, _: " ".join([r.reference] * 60), 0.005, seed=3)
        ),
        "predictions of the next sentence": case(
            NOTHING,
            [dataclasses.replace(a, prediction=b.prediction) for a, b in zip(much, much[3:] + much[:3], strict=True)],
        ),
        "rows of one side left out": case(REFUSED, nothing[20:]),
        "rows of one side left out, common": case(NOTHING, nothing[20:], common=True),
        "two controls, one beaten": case({"equivalent to control"}, little, {"noise": noise, "copy": list(little)}),
        "random letters": case(NOTHING, edited(nothing, lambda r, g: " ".join(f"{g.random():.9f}" for _ in range(14)))),
        "tasks unknown, nothing": case(NOTHING, changed(nothing, task=""), {"noise": changed(noise, task="")}),
        "tasks unknown, little": case(USES | NOTHING, changed(little, task=""), {"noise": changed(noise, task="")}),
        "subjects unknown": case(NOTHING, changed(nothing, subject=""), {"noise": changed(noise, subject="")}),
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
