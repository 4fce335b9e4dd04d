"""Compares endpoints of the audit: errors, power, and margins that mean the same.

    python tools/calibrations/calibrate_endpoints.py --sets 20 --jobs 2 [--clones DIR] [--encoder minilm]

The endpoints are shared words weighted by rarity (`words`, the default), ROUGE-1 F, the same without function words,
and chrF; with --encoder also BERTScore F and similarity. One line an endpoint has:
- nulls: sets without content (null_zoo.py; no content of the genre alone) in which content is claimed; the worst kind;
- zoo: honest decoders (decoder_zoo.py) of quality 0.1 and 0.3 in which content is found;
- a point of words: the rise of the endpoint when as many words of the references are put into outputs as raise `words`
  by one point, and the minimum detectable effect in this unit; with --clones, in the outputs of a published file, too;
- with --clones (see field.py): published free-running sets in which content is claimed, of those that were fed a
  recording, of those fed noise, and of decoders that work (working_decoders.py). Sets on which endpoints differ follow.
20 sets take about ten minutes on one core without --encoder, the published ones five.
"""

import argparse
import dataclasses
import functools
import itertools
import multiprocessing
import random
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy import sparse

sys.path.insert(0, str(Path(__file__).parents[1]))  # tools/

import field
from decoder_zoo import HONEST, draw
from null_zoo import GENRES_ALONE, NULLS, draw_null
from working_decoders import LITTLE, SOURCES, Clones, exchanged, rows_of

from eeg2text_jax.instrument.auditing.align import align
from eeg2text_jax.instrument.auditing.audit import Audit, Options
from eeg2text_jax.instrument.auditing.strata import words
from eeg2text_jax.instrument.auditing.table import Endpoint, function_endpoint, shared_words
from eeg2text_jax.instrument.predictions.file import Prediction
from eeg2text_jax.judge.model_metrics import endpoints, makers_of
from eeg2text_testing.made_up_text import FUNCTION_WORDS

QUALITIES, PLANTED = (0.1, 0.3), (0.0, 0.05)  # of the zoo; shares of words put into outputs
PUBLISHED = ("fed a recording", "fed noise", "works")
T5 = "neuspeech-tsr-t5-eeg-eeg"  # the published file into which words are put
ORDERS, BETA = 6, 2  # of chrF


def content_words(predictions: Sequence[str], references: Sequence[str]) -> np.ndarray:
    """Return ROUGE-1 F without English function words."""
    return shared_words(lambda word: float(word not in FUNCTION_WORDS), harmonic=True)(predictions, references)


def chrf(predictions: Sequence[str], references: Sequence[str]) -> np.ndarray:
    """Return chrF: F score of character n-grams of the plain words, over the orders that both texts have."""
    sides = [["".join(words(text)) for text in texts] for texts in (predictions, references)]
    rates, orders = np.zeros((2, len(predictions), len(references))), 0
    for n in range(1, ORDERS + 1):
        columns: dict[tuple[str, int], int] = {}
        found = [[_places(text, n, columns) for text in side] for side in sides]
        ours, theirs = (_table(side, len(columns)) for side in found)
        shared = (ours @ theirs.T).toarray()
        sizes = ours.sum(1)[:, None], theirs.sum(1)[None]
        rates += [shared / np.maximum(size, 1) for size in sizes]
        orders = orders + (sizes[0] > 0) * (sizes[1] > 0)
    precision, recall = rates / np.maximum(orders, 1)
    return 100 * (1 + BETA**2) * precision * recall / np.maximum(BETA**2 * precision + recall, 1e-12)


def _places(text: str, n: int, columns: dict[tuple[str, int], int]) -> list[int]:
    """Return the columns of the n-grams of a text; the k-th occurrence of an n-gram has a column of its own."""
    counts = Counter(text[i : i + n] for i in range(len(text) - n + 1))
    return [columns.setdefault((gram, k), len(columns)) for gram, count in counts.items() for k in range(count)]


def _table(rows: Sequence[list[int]], width: int) -> sparse.csr_array:
    starts, places = np.cumsum([0, *map(len, rows)]), [place for row in rows for place in row]
    return sparse.csr_array((np.ones(len(places)), places, starts), shape=(len(rows), max(width, 1)))


@functools.cache
def compared(encoder: str) -> dict[str, Endpoint]:
    names = ("words", "rouge-1", *(("bertscore-f", "similarity") if encoder else ()))
    metrics = ("bertscore", "similarity") if encoder else ()
    named = dict(zip(names, endpoints(names, makers_of(metrics, encoder or None, None)), strict=True))
    return named | {name: function_endpoint(f"calibrate_endpoints:{name}") for name in ("content_words", "chrf")}


class Job(NamedTuple):
    """One set to judge by every endpoint. For a published set, `rows` has EEG's rows and the control's, if any."""

    part: str
    kind: str
    value: float
    seed: int
    rows: tuple[list[Prediction], dict[str, list[Prediction]]] | None = None


class Found(NamedTuple):
    claimed: bool
    effect: float
    mde: float


def rows_for(job: Job) -> tuple[list[Prediction], dict[str, list[Prediction]]]:
    if job.part == "zoo":
        made = draw(job.kind, job.value, job.seed)
        return made.eeg, made.controls
    if job.part == "null":
        made = draw_null(job.kind, job.seed)
        return made.eeg, made.controls
    if job.part != "planted":
        return job.rows
    made = draw_null("babble", job.seed)
    eeg, controls = job.rows or (made.eeg, made.controls)
    rng = random.Random(job.seed)

    def text(row: Prediction) -> str:
        own = row.reference.split()
        draws = [(rng.random(), rng.choice(own), word) for word in row.prediction.split()]
        return " ".join(right if chance < job.value else word for chance, right, word in draws)

    return [dataclasses.replace(row, prediction=text(row)) for row in eeg], controls


def judged(given: tuple[Job, str]) -> tuple[Job, dict[str, Found]]:
    job, encoder = given
    eeg, controls = rows_for(job)
    aligned, found = align({"eeg": eeg, **controls}, common=True), {}
    for name, endpoint in compared(encoder).items():
        audit = Audit(aligned, Options(endpoint=endpoint))
        own, pairs = audit.contrasts()
        claimed = own[0].above and all(pair.above for pair in pairs)
        effect = float(np.mean([contrast.effect for contrast in pairs or own[:1]]))
        found[name] = Found(claimed, effect, audit.mde(pairs or own[:1], own[0]))
    return job._replace(rows=None), found


def published(clones: Path) -> Iterator[Job]:
    flags = argparse.Namespace(clones=clones)
    manifest = field.read_manifest(field.HERE / "field_manifest.tsv")
    with tempfile.TemporaryDirectory() as folder:
        read = {one.set: field.read_set(one, Path(folder), flags) for one in manifest}

    def free(name: str, of: str) -> list[Prediction]:
        return read[name].modes.get("free_running") or (
            field.stated(read[name].modes.get("unknown", [])) if of == "free-running" else []
        )

    for one in manifest:
        if rows := free(one.set, one.mode):
            controls = {name: free(name, one.mode) for name in one.controls}
            noise = one.eval_condition == "noise" or one.train_condition == "noise"
            part = PUBLISHED[noise]
            given = rows, {name: of for name, of in controls.items() if of}
            yield Job(part, one.set, 0.0, 0, given)
            if one.set == T5:
                yield from (Job("planted", T5, share, 0, given) for share in PLANTED)
    for kind, source in SOURCES.items():
        for path, pairs in source(Clones(clones)):
            control = {"shuffled": rows_of(exchanged(pairs), condition="shuffled")}
            if path not in LITTLE:
                yield Job("works", f"{kind}: {Path(path).name}", 0.0, 0, (rows_of(pairs), control))


def jobs_of(flags: argparse.Namespace) -> Iterator[Job]:
    seeds = range(flags.sets)
    kinds = [kind for kind in NULLS if kind not in GENRES_ALONE]
    jobs = [Job("null", kind, 0.0, seed) for kind, seed in itertools.product(kinds, seeds)]
    jobs += [Job("zoo", *of) for of in itertools.product(HONEST, QUALITIES, seeds)]
    jobs += [Job("planted", "babble", *of) for of in itertools.product(PLANTED, seeds)]
    jobs += published(flags.clones) if flags.clones else ()
    yield from (job for job in jobs if flags.part in ("", job.part))


def rise(found: dict[Job, dict[str, Found]], kind: str, name: str) -> tuple[float, float]:
    """Return the mean rise of an endpoint with the words put in, and its mean minimum detectable effect."""
    jobs = {value: [job for job in found if job[:3] == ("planted", kind, value)] for value in PLANTED}
    low, high = (np.mean([found[job][name].effect for job in jobs[value]]) for value in PLANTED)
    return float(high - low), float(np.mean([found[job][name].mde for job in jobs[PLANTED[0]]]))


def line(found: dict[Job, dict[str, Found]], name: str) -> dict[str, str]:
    def share(part: str, value: float = 0.0) -> str:
        hits = [of[name].claimed for job, of in found.items() if (job.part, job.value) == (part, value)]
        return f"{sum(hits)} of {len(hits)}"

    parts = {job.part for job in found}
    cells = {"endpoint": name}
    if "null" in parts:
        worst = Counter(job.kind for job, of in found.items() if job.part == "null" and of[name].claimed)
        most = worst.most_common(1)
        cells["nulls claimed; worst kind"] = f"{share('null')}; {' '.join(map(str, most[0])) if most else 'none'}"
    if "zoo" in parts:
        cells |= {f"zoo {quality} found": share("zoo", quality) for quality in QUALITIES}
    for kind in dict.fromkeys(job.kind for job in found if job.part == "planted"):
        (own, mde), (points, _) = rise(found, kind, name), rise(found, kind, "words")
        cells |= {f"a point of words, {kind}": f"{own / points:.2f}", f"MDE in it, {kind}": f"{mde * points / own:.2f}"}
    return cells | {part: share(part) for part in PUBLISHED if part in parts}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--clones", type=Path, metavar="DIR", help="clones of the published sets, as for field.py")
    parser.add_argument("--encoder", default="")
    parser.add_argument("--part", default="", choices=("null", "zoo", "planted"), help="only this part")
    flags = parser.parse_args()
    found: dict[Job, dict[str, Found]] = {}
    with multiprocessing.get_context("spawn").Pool(flags.jobs) as pool:
        for job, of in pool.imap(judged, ((job, flags.encoder) for job in jobs_of(flags))):
            found[job] = of
            if job.seed == 0:
                print(job.part, job.kind, job.value, {n: round(f.effect, 2) for n, f in of.items()}, file=sys.stderr)
    rows = [line(found, name) for name in compared(flags.encoder)]
    for cells in (rows[0], ["---"] * len(rows[0]), *(row.values() for row in rows)):
        print(f"| {' | '.join(cells)} |")
    differ = defaultdict(list)
    for job, of in found.items():
        if job.part in PUBLISHED and len({one.claimed for one in of.values()}) > 1:
            differ[job.kind] = [f"{name} {one.effect:+.2f}{'*' * one.claimed}" for name, one in of.items()]
    for kind, effects in differ.items():
        print(f"{kind}: {', '.join(effects)} (*: claimed)")


if __name__ == "__main__":
    main()
