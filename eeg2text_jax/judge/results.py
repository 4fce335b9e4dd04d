"""The results of a judge: tables for `results.json` and `results.md`, results on a second test file, and curves."""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from eeg2text_jax.errors import UserError
from eeg2text_jax.files import replacing
from eeg2text_jax.judge.pairs import Pair, Parts, is_exact, normalize
from eeg2text_jax.judge.speakers import Scores, speakers_markdown, speakers_table, table_lines, three_digits
from eeg2text_jax.judge.thresholds import auc, auc_interval, curve, kappa


def slices_of(pairs: Sequence[Pair]) -> dict[str, np.ndarray]:
    """Return slice -> row numbers of its pairs; slices: all, each type of speech, each severity, each kind of edit.

    The slice of a kind of edit, which breaks the meaning, also has all pairs that keep the meaning.
    """
    found = {"all": np.arange(len(pairs))}
    for field in ("speech_type", "severity"):
        for name in sorted({getattr(pair, field) for pair in pairs} - {""}):
            found[name] = np.array([i for i, pair in enumerate(pairs) if getattr(pair, field) == name])
    for kind in sorted({pair.kind for pair in pairs} - {""}):
        found[f"kind {kind}"] = np.array([i for i, p in enumerate(pairs) if p.preserved or p.kind == kind])
    return found


def by_slice(classifiers: Mapping[str, np.ndarray], pairs: Sequence[Pair]) -> list[dict[str, Any]]:
    """Return a dict for each slice of the pairs: `slice`, `n`, `preserved` (count), and each classifier's AUC on it.

    `auc`: classifier -> {"value", "interval" (95 %)}, both None on a slice with one class only.
    """
    labels = np.array([pair.preserved for pair in pairs])
    sentences = [normalize(pair.reference) for pair in pairs]
    rows = []
    for name, places in slices_of(pairs).items():
        row: dict[str, Any] = {"slice": name, "n": len(places), "preserved": int(labels[places].sum()), "auc": {}}
        if not 0 < row["preserved"] < row["n"]:
            row["reason"] = "one class only"
        for classifier, scores in classifiers.items():
            about = scores[places], labels[places]
            interval = auc_interval(*about, [sentences[i] for i in places])
            row["auc"][classifier] = {"value": auc(*about), "interval": interval}
        rows.append(row)
    return rows


def raters(parts: Parts) -> dict[str, Any] | None:
    """Return Cohen's kappa of two raters, for labels as given and for preserved or not; None without second ratings."""
    if not parts.rated_twice:
        return None
    sides = list(zip(*parts.rated_twice, strict=True))
    given = kappa(*([pair.rated for pair in side] for side in sides))
    merged = kappa(*([str(pair.preserved) for pair in side] for side in sides))
    return {"pairs": len(parts.rated_twice), "kappa": given, "kappa_preserved": merged}


def hold_out(parts: Parts, tested: Sequence[Pair], where: str) -> Parts:
    """Return the parts without those train and dev pairs whose normalized reference is in a second test file.

    Raises UserError if train or dev then lacks a class, or the test file `where` has no pair with an error.
    """
    if all(is_exact(pair.reference, pair.hypothesis) for pair in tested):
        raise UserError(
            f"{where}: every hypothesis equals its reference but for case and punctuation; expected test pairs that "
            "differ in words; give another file."
        )
    references = {normalize(pair.reference) for pair in tested}
    kept = {
        name: [pair for pair in getattr(parts, name) if normalize(pair.reference) not in references]
        for name in ("train", "dev")
    }
    for name, pairs in kept.items():
        if len({pair.preserved for pair in pairs}) < 2:
            raise UserError(
                f"{where}: the {name} part keeps only {len(pairs)} pairs, not of both classes (preserved and lost), "
                "after the references of this test file are taken out; give more pairs to tune on."
            )
    return dataclasses.replace(parts, train=kept["train"], dev=kept["dev"])


def second_results(
    path: str, before: Parts, parts: Parts, tested: Sequence[Pair], scores: Scores, threshold: float, exact: str
) -> dict[str, Any]:
    """Return the results on a second test file, the entry `second_test` of `results.json`.

    Args:
      path: the second test file.
      tested: the pairs of that file.
      before: the parts before `hold_out`, to count the pairs that it took out.
      scores: the tuned judge; it is asked about pairs with an error only.
    """
    wrong = [pair for pair in tested if not is_exact(pair.reference, pair.hypothesis)]
    labels, values = np.array([pair.preserved for pair in wrong]), scores(wrong)
    spoken = [pair for pair in tested if pair.speaker]
    references, trained = ({normalize(pair.reference) for pair in side} for side in (tested, parts.train + parts.dev))
    return {
        "file": os.path.basename(path),
        "pairs": len(tested),
        "with_an_error": len(wrong),
        "references": len(references),
        "taken_out": {name: len(getattr(before, name)) - len(getattr(parts, name)) for name in ("train", "dev")},
        "references_in_training": len(references & trained),
        "auc": auc(values, labels),
        "auc_interval": auc_interval(values, labels, [normalize(pair.reference) for pair in wrong]),
        "speakers": speakers_table(spoken, scores, threshold, exact=exact) if spoken else None,
    }


def data_tables(pairs: Sequence[Pair]) -> dict[str, Any]:
    """Return the paper's Tables 1 and 3: speakers by severity of their impairment, and pairs by label as given.

    Each label has its number of pairs, its share in percent, and its first pair as an example. Speakers are counted
    if the pairs name both a speaker and a severity.
    """
    spoken: dict[str, set[str]] = {}
    labels: dict[str, list[Pair]] = {}
    for pair in pairs:
        if pair.speaker and pair.severity:
            spoken.setdefault(pair.severity, set()).add(pair.speaker)
        labels.setdefault(pair.rated, []).append(pair)
    order = sorted(spoken, key=lambda name: (["mild", "moderate", "severe", name.lower()].index(name.lower()), name))
    return {
        "speakers_by_severity": {name: len(spoken[name]) for name in order},
        "labels": {
            name: {
                "pairs": len(labels[name]),
                "percent": 100 * len(labels[name]) / len(pairs),
                "preserved": labels[name][0].preserved,
                "example": [labels[name][0].reference, labels[name][0].hypothesis],
            }
            for name in sorted(filter(None, labels))
        },
    }


def caption(name: str, figures: Mapping[str, Any]) -> str:
    """Return a sentence with the AUC on test and the threshold of the best prompt on dev; `name` is the model's."""
    arms = [arm["auc_test"] for arm in figures["arms"] if arm["auc_test"] is not None]
    spread = f" (of all {len(arms)} seeds {np.mean(arms):.3f} ± {np.std(arms, ddof=1):.3f})" if len(arms) > 1 else ""
    found = figures["threshold"]
    shots, question = figures.get("shots", 0), figures.get("auc_test_with_the_question")
    what, before = (f"{shots} examples", "without examples") if shots else ("prompt", "before tuning")
    asked = "" if question is None else f", with the question word in the prompt's place {question:.3f}"
    return (
        f"{name}, {what} of seed {figures['arms'][figures['chosen']]['seed']}: AUC on test "
        f"{three_digits(figures['auc_test'])}{spread}, {before} {three_digits(figures['auc_test_before_tuning'])}"
        f"{asked}; threshold {found['value']:.3f}, {found['how']} (precision {found['precision']:.2f}, recall "
        f"{found['recall']:.2f})."
    )


def to_markdown(results: Mapping[str, Any]) -> str:
    """Return the text of `results.md` from the content of `results.json`."""
    names = list(results["slices"][0]["auc"])
    done = f"with {shots} examples of" if (shots := results.get("shots")) else "tuned on"
    lines = [f"# Judge {done} {results['source']}", "", results["caption"], "", "## AUC on the test part", ""]
    rows = []
    if sizes := results.get("parameters"):
        rows.append(["parameters", "", "", *(f"{sizes[name] / 1e6:,.1f} M" for name in names)])
    for row in results["slices"]:
        cells = [_auc_cell(row["auc"][name]) for name in names]
        rows.append([row["slice"], str(row["n"]), str(row["preserved"]), *cells])
    lines += table_lines(["slice", "n", "preserved", *names], rows)
    if speakers := results.get("speakers"):
        lines += ["", "## Speakers", "", *speakers_markdown(speakers)]
    if raters_ := results.get("raters"):
        given, merged = (three_digits(raters_[name]) for name in ("kappa", "kappa_preserved"))
        agreed = f"Agreement of two raters on {raters_['pairs']} pairs: kappa {given} (labels as rated)"
        lines += ["", f"{agreed}, {merged} (preserved or not)."]
    lines += _data_markdown(results)
    if second := results.get("second_test"):
        found = _auc_cell({"value": second["auc"], "interval": second["auc_interval"]})
        lines += [
            "",
            f"## {second['file']}",
            "",
            f"AUC {found} on the {second['with_an_error']} pairs with an error ({second['pairs']} pairs in all). Of "
            f"this file's {second['references']} references, {second['references_in_training']} are in training; "
            f"{second['taken_out']['train']} pairs of train and {second['taken_out']['dev']} of dev share a "
            "reference with this file and were taken out.",
        ]
        if second["speakers"]:
            lines += ["", *speakers_markdown(second["speakers"])]
    return "\n".join(lines) + "\n"


def _data_markdown(results: Mapping[str, Any]) -> list[str]:
    """Return the lines of the paper's Tables 1 to 3; a table without entries is left out."""
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


def _auc_cell(found: Mapping[str, Any]) -> str:
    """Format an AUC with its interval; a dash if it is undefined."""
    if found["value"] is None:
        return "–"
    low, high = found["interval"]
    return f"{found['value']:.3f} ({low:.2f} to {high:.2f})"


def write_curves(path: str | os.PathLike[str], classifiers: Mapping[str, np.ndarray], labels: np.ndarray) -> None:
    """Write a PNG with the precision-recall and the ROC curve of each classifier's scores `[N]`."""
    figure = Figure(figsize=(9, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    for name, scores in classifiers.items():
        found, area = curve(scores, labels), auc(scores, labels) or 0
        left.step([0.0, *found.recall], [1.0, *found.precision], where="post", label=name)
        right.plot([0.0, *found.false_positive_rate], [0.0, *found.recall], label=f"{name}, AUC {area:.3f}")
    right.plot([0, 1], [0, 1], color="0.7", linewidth=0.8, linestyle=":")
    left.set(xlabel="recall", ylabel="precision", xlim=(0, 1), ylim=(0, 1.02), title="Precision and recall")
    right.set(xlabel="false-positive rate", ylabel="true-positive rate", xlim=(0, 1), ylim=(0, 1.02), title="ROC")
    left.legend(fontsize="small")
    right.legend(fontsize="small")
    with replacing(path) as partial:
        figure.savefig(partial, format="png", dpi=120, metadata={"Software": None})
