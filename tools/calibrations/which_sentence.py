"""Which sentence was read, on data whose truth is known: is the verdict right, every time?

    python tools/calibrations/which_sentence.py --out DIR [--seeds 20] [--kinds planted,null,lengths,length]

Every seed is a data set with a grid of its own: arms trained on EEG, noise and length alone; all seeds of a kind are
trained as arms of one program. In *planted* the words are in the "EEG": top-5 must be above 90 % and the verdict *uses
EEG*. Else nothing may be claimed: in *null* all sentences have one number of words, and top-5 must lie within the
interval of chance; in *lengths* they have their own; in *length* half of the words go with their number, so that top-5
is far above chance, also of the arm trained on length alone. Writes which_sentence.json and which_sentence.md; exit
status 1 where something was not so. About five minutes on two idle cores.
"""

import argparse
import dataclasses
import functools
import json
import sys
import tempfile
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax

from eeg2text_jax.data.batches import Samples, feature_scale, make_batch, training_batches
from eeg2text_jax.data.data_writer import DataWriter
from eeg2text_jax.data.datafile import DataFile, read_datafile
from eeg2text_jax.data.planted import SENTENCE_WORDS, SyntheticSpec, synthetic_samples
from eeg2text_jax.data.splits.methods import make_split
from eeg2text_jax.data.splits.split import Split
from eeg2text_jax.instrument.auditing.audit import audit
from eeg2text_jax.instrument.auditing.result import AuditResult
from eeg2text_jax.instrument.auditing.strata import length_strata
from eeg2text_jax.instrument.auditing.verdict import Verdict
from eeg2text_jax.instrument.metrics.score import chance_interval
from eeg2text_jax.instrument.predictions.file import sentence_key
from eeg2text_jax.instrument.predictions.rankings import Candidates, Ranking, rounded
from eeg2text_jax.instrument.predictions.selection import select_arms
from eeg2text_jax.models.functional import ContrastiveModel, Seq2SeqModel
from eeg2text_jax.models.spec import EEGSpec, Seq2SeqSpec, StackSpec
from eeg2text_jax.training.conditions._donors import donor_table
from eeg2text_jax.training.conditions.condition import ConditionContext, apply_condition, condition_key
from eeg2text_jax.training.grid_program import ContrastiveProgram
from eeg2text_jax.training.study import (
    Arm,
    StudyArrays,
    TextArrays,
    dropout_keys,
    hashed_tfidf,
    init_keys,
    standardized,
)

KINDS = ("planted", "null", "lengths", "length")
TRAINED = ("eeg", "noise", "length_only")
TESTED = ("eeg", "noise", "length_only", "shuffled")
SENTENCES, SUBJECTS, FEATURES, HASHED, WIDTH = 600, 2, 32, 256, 128
WORDS, BATCH, STEPS, RATE = SENTENCE_WORDS[1], 64, 150, 3e-3
RATIO = (0.75, 0.05, 0.2)
ONE_LENGTH = 10  # words of every sentence of "null"
OF_LENGTH, SHARE = 4, 0.5  # words that go with one length, and how many of a sentence's words they are
CLAIMS = (Verdict.USES_EEG, Verdict.BELOW_MARGIN, Verdict.CONTENT)


@dataclasses.dataclass(frozen=True)
class Known:
    data: DataFile
    split: Split
    samples: Samples
    vectors: np.ndarray  # [S, E]
    sentence: np.ndarray  # [N]


def make_known(kind: str, seed: int, folder: Path) -> Known:
    sentences = 2 * SENTENCES if kind == "null" else SENTENCES  # about 55 of 100 have as many words
    signal = 1.0 if kind == "planted" else 0.0
    spec = SyntheticSpec(signal, sentences, SUBJECTS, 2, FEATURES, 100, 1, "random", 0.0, seed)
    path = folder / f"{kind}_{seed}.h5"
    renamed: dict[str, str] = {}
    of_subject: dict[str, int] = {}
    with DataWriter(path, spec.features, kind) as writer:
        for sample in synthetic_samples(spec):
            text = sample.sentence
            if kind == "null":
                if len(text.split()) < ONE_LENGTH or of_subject.setdefault(sample.subject, 0) == SENTENCES:
                    continue
                of_subject[sample.subject] += 1
                text = " ".join(text.split()[:ONE_LENGTH])
                sample = dataclasses.replace(sample, features=sample.features[:ONE_LENGTH])
            if kind == "length":
                rng = np.random.default_rng([seed, len(renamed)])
                text = renamed.setdefault(text, with_words_of_its_length(text, rng))
            writer.add(dataclasses.replace(sample, sentence=text))
    data = read_datafile(path)
    split = make_split(data, method="unique_text", ratio=RATIO, seed=seed, path="")
    scaling = feature_scale(data, split.parts["train"], True)
    sentences = list(dict.fromkeys(sentence_key(str(text)) for text in data.sentence))
    place = {text: row for row, text in enumerate(sentences)}
    sentence = np.array([place[sentence_key(str(text))] for text in data.sentence], np.int32)
    train = np.isin(np.arange(len(sentences)), sentence[split.parts["train"]])
    samples = Samples(
        data=data,
        targets=[np.zeros(1, np.int32)] * len(data),
        mean=scaling.mean,
        scale=scaling.scale,
        max_words=WORDS,
        pad_token=1,
        donors=donor_table(data, list(split.parts.values()), seed).donor,
    )
    return Known(data, split, samples, standardized(hashed_tfidf(sentences, train, HASHED), train), sentence)


def with_words_of_its_length(text: str, rng: np.random.Generator) -> str:
    """The sentence with half of its words from a list that goes with its number of words."""
    words = text.split()
    own = [f"length{len(words)}{letter}" for letter in "abcd"[:OF_LENGTH]]
    return " ".join(own[rng.integers(OF_LENGTH)] if rng.random() < SHARE else word for word in words)


def make_model() -> ContrastiveModel:
    stack = StackSpec(layers=1, width=8, heads=1, head_dim=8, ffn=8, activation="relu")
    text = Seq2SeqSpec("bart", 8, stack, dataclasses.replace(stack, decoder=True), 1, 2, 0)
    return ContrastiveModel(Seq2SeqModel(text, EEGSpec(features=FEATURES, layers=0)), WIDTH, HASHED, 0.07, True)


def train(known: list[Known], arms: tuple[Arm, ...]) -> tuple[ContrastiveProgram, dict, StudyArrays]:
    """Parameters of all arms `[A, ...]`; seed i of the arms is trained on data set i."""
    rates = optax.linear_onecycle_schedule(STEPS, RATE)
    program = ContrastiveProgram(make_model(), arms, optax.adam(rates), 0.0, "vmap")
    first_row = np.cumsum([0, *(len(k.vectors) for k in known)])
    texts = TextArrays(
        jnp.asarray(np.concatenate([k.vectors for k in known])),
        *[jnp.asarray(np.concatenate([k.sentence + first for k, first in zip(known, first_row, strict=False)]))] * 2,
    )
    means = jnp.zeros((2, FEATURES), jnp.float32)  # of standardized words
    study = StudyArrays(dropout_keys(arms, 0, "threefry"), condition_key(0), means, texts=texts)
    streams = [
        iter(training_batches(k.samples, k.split.parts["train"], [(WORDS, 1)], BATCH, seed, STEPS, [seed]))
        for seed, k in enumerate(known)
    ]
    first_sample = np.cumsum([0, *(len(k.data) for k in known)])
    state = jax.jit(program.initial_state)(init_keys(arms, 0))
    step = jax.jit(program.train_step, donate_argnums=0)
    begun = time.monotonic()
    for number in range(1, STEPS + 1):
        batches = [next(stream) for stream in streams]
        for batch, first in zip(batches, first_sample, strict=False):
            batch["sample_id"] = batch["sample_id"] + np.int32(first)
            batch.pop("donor")
        state, metrics = step(state, {name: np.concatenate([b[name] for b in batches]) for name in batches[0]}, study)
        if number in (1, 10) or number % 100 == 0:
            loss = np.asarray(metrics["loss"]).reshape(len(known), -1).mean(0).round(2)
            print(f"step {number}: {time.monotonic() - begun:.0f} s, losses of {TRAINED}: {loss}", flush=True)
    return program, state.params, study


@functools.partial(jax.jit, static_argnames=("model", "condition"))
def embed(
    model: ContrastiveModel, params: dict, batch: dict, study: StudyArrays, seed: int, condition: str
) -> jax.Array:
    """Embeddings `[R, E]` of a batch under a condition."""
    key = jax.random.fold_in(study.condition, seed)
    context = ConditionContext.of(batch, study._replace(condition=key), jnp.zeros((), jnp.int32))
    fed = apply_condition(condition, batch["features"], batch["mask"], context)
    return model.embed(params, {"features": fed, "mask": batch["mask"]})


def rankings(known: Known, arms: list[tuple[Arm, dict]], model: ContrastiveModel, study: StudyArrays) -> list[Ranking]:
    rows = known.split.parts["test"]
    batch = make_batch(known.samples, rows, (WORDS, 1), len(rows))
    for name in ("labels", "weight"):
        batch.pop(name)
    found = candidates(known, rows)
    texts = known.vectors[[known.sentence[i] for i in first_readings(known, rows)]].astype(float)
    texts /= np.linalg.norm(texts, axis=1, keepdims=True)
    made = []
    for arm, params in arms:
        for condition in TESTED:
            if arm.condition not in ("eeg", condition):
                continue
            scores = rounded(np.asarray(embed(model, params, batch, study, arm.seed, condition), float) @ texts.T)
            made += [row_of(known, i, own, arm, condition, found) for i, own in zip(rows.tolist(), scores, strict=True)]
    return made


def first_readings(known: Known, rows: np.ndarray) -> list[int]:
    first: dict[int, int] = {}
    for i in rows.tolist():
        first.setdefault(int(known.sentence[i]), i)
    return list(first.values())


def candidates(known: Known, rows: np.ndarray) -> Candidates:
    data, first = known.data, first_readings(known, rows)
    tasks, words = [str(data.task[i]) for i in first], [int(data.n_words[i]) for i in first]
    ids = [f"{data.task[i]}:{data.sentence_index[i]}" for i in first]
    texts, strata = [str(data.sentence[i]) for i in first], length_strata(tasks, words)
    return Candidates("test", texts, ids, tasks, np.array(words, float), strata)


def row_of(known: Known, i: int, scores: np.ndarray, arm: Arm, condition: str, found: Candidates) -> Ranking:
    data = known.data
    return Ranking(
        known.split.names[i], str(data.subject[i]), str(data.task[i]), f"{data.task[i]}:{data.sentence_index[i]}",
        int(data.n_words[i]), arm.condition, condition, 0, "contrastive", str(data.sentence[i]),
        found.references[int(np.argmax(scores))], scores=scores, candidates=found,
    )  # fmt: skip


def figures(audit: AuditResult) -> dict:
    """What is looked at of one seed; the interval of chance is such that all seeds are within in 95 of 100 studies."""
    by_name = {c.name: c.figures.top5 for c in audit.conditions}
    return {
        "verdict": audit.verdict.value,
        "claimed": audit.verdict.base in CLAIMS,
        "top5": by_name,
        "top1": audit.conditions[0].figures.top1,
        "chance": audit.chance,
        "interval": audit.chance_interval,
        "by_length": audit.by_length.top5,
        "effect": {c.control: c.contrast.effect for c in audit.comparisons},
        "p": {c.control: c.contrast.p for c in audit.comparisons},
    }


def is_right(kind: str, found: dict, seeds: int, sentences: int) -> bool:
    eeg, alone = found["top5"]["eeg"], found["top5"]["the arm trained on length_only"]
    low, high = (100 * share for share in chance_interval(found["chance"] / 100, sentences, 1 - 0.05 / seeds))
    if kind == "planted":
        return found["verdict"] == "uses EEG" and eeg > 90
    if kind == "null":
        return not found["claimed"] and low <= eeg <= high
    if kind == "lengths":
        return not found["claimed"]
    return not found["claimed"] and eeg > high and alone > high


def table(result: dict) -> str:
    lines = ["| data | right | verdicts | top-5 with EEG | arm trained on noise | on length alone | chance |"]
    lines.append("|---|---|---|---|---|---|---|")
    for kind, seeds in result.items():
        said: dict[str, int] = {}
        for one in seeds:
            said[one["verdict"]] = said.get(one["verdict"], 0) + 1
        verdicts = ", ".join(f"{n} *{name}*" for name, n in sorted(said.items()))
        spans = [
            f"{np.mean(v):.1f} ({min(v):.1f} to {max(v):.1f})"
            for name in ("eeg", "the arm trained on noise", "the arm trained on length_only")
            for v in [[one["top5"][name] for one in seeds]]
        ]
        right = f"{sum(one['right'] for one in seeds)} of {len(seeds)}"
        lines.append(f"| {kind} | {right} | {verdicts} | {' | '.join(spans)} | {seeds[0]['chance']:.1f} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--kinds", default=",".join(KINDS))
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    arms = tuple(Arm(condition, seed) for seed in range(args.seeds) for condition in TRAINED)
    result: dict[str, list[dict]] = {}
    for kind in args.kinds.split(","):
        with tempfile.TemporaryDirectory() as folder:
            known = [make_known(kind, seed, Path(folder)) for seed in range(args.seeds)]
            program, params, study = train(known, arms)
        result[kind] = []
        for seed, one in enumerate(known):
            places = [a for a, arm in enumerate(arms) if arm.seed == seed]
            own = [(arms[a], jax.tree.map(lambda leaf, a=a: leaf[a], params)) for a in places]
            conditions = select_arms(rankings(one, own, program.model, study))
            judged = audit(conditions.pop("eeg"), conditions)
            found = figures(judged)
            found["right"] = is_right(kind, found, args.seeds, judged.n_sentences)
            result[kind].append(found)
            print(f"{kind} {seed}: {found['verdict']}, {'right' if found['right'] else 'WRONG'}, {found['top5']}")
        print(table(result), flush=True)
        (args.out / "which_sentence.json").write_text(json.dumps(result, indent=1), encoding="utf8")
        (args.out / "which_sentence.md").write_text(table(result) + "\n", encoding="utf8")
    return 0 if all(one["right"] for seeds in result.values() for one in seeds) else 1


if __name__ == "__main__":
    sys.exit(main())
