"""What a tuned judge is worth: the paper's tables of classifiers by slice and of speakers, as data and as text."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from eeg2text_jax.judge.baselines import error_rates
from eeg2text_jax.judge.pairs import Pair, Parts, is_exact, normalize
from eeg2text_jax.judge.speakers import BARS, Utterances, agreements, by_speaker, intervals
from eeg2text_jax.judge.thresholds import auc, auc_interval, kappa

IMPAIRMENT = ("etiology", "severity")  # of a speaker, where the pairs say it
Scores = Callable[[Sequence[Pair]], np.ndarray]  # pairs -> s, [N]


def slices_of(pairs: Sequence[Pair]) -> dict[str, np.ndarray]:
    """Rows of the test part by what is known of them; of a kind of edit, its pairs and all that kept the meaning."""
    found = {"all": np.arange(len(pairs))}
    for field in ("speech_type", "severity"):
        names = sorted({getattr(pair, field) for pair in pairs} - {""})
        for name in names:
            found[name] = np.array([i for i, pair in enumerate(pairs) if getattr(pair, field) == name])
    for kind in sorted({pair.kind for pair in pairs} - {""}):
        found[f"kind {kind}"] = np.array([i for i, p in enumerate(pairs) if p.preserved or p.kind == kind])
    return found


def by_slice(classifiers: Mapping[str, np.ndarray], pairs: Sequence[Pair]) -> list[dict[str, Any]]:
    """AUC of every classifier on every slice, with its interval; null where a slice has one class only."""
    labels = np.array([pair.preserved for pair in pairs])
    sentences = [normalize(pair.reference) for pair in pairs]
    rows = []
    for name, places in slices_of(pairs).items():
        row: dict[str, Any] = {"slice": name, "n": len(places), "preserved": int(labels[places].sum()), "auc": {}}
        if not 0 < row["preserved"] < row["n"]:
            row["reason"] = "one class only"
        for classifier, scores in classifiers.items():
            value = auc(scores[places], labels[places])
            row["auc"][classifier] = {
                "value": value,
                "interval": auc_interval(scores[places], labels[places], [sentences[i] for i in places]),
            }
        rows.append(row)
    return rows


def speakers_table(
    pairs: Sequence[Pair], scores: Scores, threshold: float, *, exact: str = "preserved"
) -> dict[str, Any]:
    """The table of speakers: n, word accuracy, human ratings where there are any, LATTEScore, decisions, correlations.

    Args:
      pairs: with the exact ones; each has a speaker.
      scores: of a judge, asked for the erroneous pairs alone.
    """
    wrong = [i for i, pair in enumerate(pairs) if not is_exact(pair.reference, pair.hypothesis)]
    score = np.ones(len(pairs))
    if wrong:
        score[wrong] = scores([pairs[i] for i in wrong])
    kept = np.arange(len(pairs)) if exact != "exclude" else np.array(wrong, int)
    chosen = [pairs[i] for i in kept]
    words = np.array([max(len(normalize(pair.reference).split()), 1) for pair in chosen], float)
    found = Utterances(
        speaker=[pair.speaker for pair in chosen],
        sentence=[normalize(pair.reference) for pair in chosen],
        edits=error_rates(chosen).sum(1) * words,
        words=words,
        preserved=np.array([pair.preserved for pair in chosen]),
        score=score[kept],
        threshold=threshold,
    )
    lines, limits = by_speaker(found), intervals(found)
    about = {
        line.name: {
            field: next((getattr(p, field) for p in chosen if p.speaker == line.name and getattr(p, field)), "")
            for field in IMPAIRMENT
        }
        for line in lines
    }
    return {
        "bars": BARS,
        "speakers": [
            {**line._asdict(), **about[line.name], "latte_interval": limits[line.name], "decisions": line.decisions()}
            for line in lines
        ],
        "agreement": {name: of._asdict() for name, of in agreements(lines).items()},
    }


def raters(parts: Parts) -> dict[str, Any] | None:
    """Agreement beyond chance of those who rated the same pairs, on the labels as given and on two classes."""
    if not parts.rated_twice:
        return None
    given = [[pair.rated for pair in side] for side in zip(*parts.rated_twice, strict=True)]
    merged = [[str(pair.preserved) for pair in side] for side in zip(*parts.rated_twice, strict=True)]
    return {"pairs": len(parts.rated_twice), "kappa": kappa(*given), "kappa_preserved": kappa(*merged)}


def data_tables(pairs: Sequence[Pair]) -> dict[str, Any]:
    """Return the paper's Tables 1 and 3: speakers by severity of their impairment, and pairs by label as given.

    Each label has its number of pairs, its share in percent, and its first pair as an example. Speakers are counted
    where the pairs name both a speaker and a severity.
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
    """Return one sentence on the chosen prompt of the model `name`: AUC on test and the threshold."""
    arms = [arm["auc_test"] for arm in figures["arms"] if arm["auc_test"] is not None]
    spread = f" (of all {len(arms)} seeds {np.mean(arms):.3f} ± {np.std(arms, ddof=1):.3f})" if len(arms) > 1 else ""
    found = figures["threshold"]
    shots, question = figures.get("shots", 0), figures.get("auc_test_with_the_question")
    what, before = (f"{shots} examples", "without examples") if shots else ("prompt", "before tuning")
    asked = "" if question is None else f", with the question word in the prompt's place {question:.3f}"
    return (
        f"{name}, {what} of seed {figures['arms'][figures['chosen']]['seed']}: AUC on test "
        f"{_number(figures['auc_test'])}{spread}, {before} {_number(figures['auc_test_before_tuning'])}{asked}; "
        f"threshold {found['value']:.3f}, {found['how']} (precision {found['precision']:.2f}, recall "
        f"{found['recall']:.2f})."
    )


def to_markdown(results: Mapping[str, Any]) -> str:
    """The tables as text."""
    names = list(results["slices"][0]["auc"])
    done = f"with {shots} examples of" if (shots := results.get("shots")) else "tuned on"
    lines = [f"# Judge {done} {results['source']}", "", results["caption"], "", "## AUC on the test part", ""]
    lines += [_row(["slice", "n", "preserved", *names]), _row(["---"] * (3 + len(names)))]
    if sizes := results.get("parameters"):
        lines.append(_row(["parameters", "", "", *(_millions(sizes[name]) for name in names)]))
    for row in results["slices"]:
        cells = [_auc_cell(row["auc"][name]) for name in names]
        lines.append(_row([row["slice"], str(row["n"]), str(row["preserved"]), *cells]))
    if speakers := results.get("speakers"):
        lines += ["", "## Speakers", "", *speakers_markdown(speakers)]
    if raters_ := results.get("raters"):
        lines += [
            "",
            f"Raters agreed on {raters_['pairs']} pairs with kappa {_number(raters_['kappa'])} (as rated) and "
            f"{_number(raters_['kappa_preserved'])} (preserved or not).",
        ]
    lines += _data_markdown(results)
    if second := results.get("second_test"):
        found = _auc_cell({"value": second["auc"], "interval": second["auc_interval"]})
        lines += [
            "",
            f"## {second['file']}",
            "",
            f"AUC {found} on {second['with_an_error']} pairs with an error of {second['pairs']}. Of its "
            f"{second['references']} references {second['references_in_training']} are in training; "
            f"{second['taken_out']['train']} pairs of train and {second['taken_out']['dev']} of dev share a "
            "reference with it and were taken out.",
        ]
        if second["speakers"]:
            lines += ["", *speakers_markdown(second["speakers"])]
    return "\n".join(lines) + "\n"


def _data_markdown(results: Mapping[str, Any]) -> list[str]:
    """Return the lines of Tables 1 and 3; a table without entries is left out."""
    lines = []
    if severities := results.get("speakers_by_severity"):
        lines += [
            "",
            "## Speakers by severity",
            "",
            _row(["severity", *severities]),
            _row(["---"] * (1 + len(severities))),
        ]
        lines.append(_row(["speakers", *map(str, severities.values())]))
    if len(labels := results.get("labels", {})) > 1:
        head = ["label", "meaning preserved", "pairs", "%", "ground truth", "transcript"]
        lines += ["", "## Pairs by label", "", _row(head), _row(["---"] * len(head))]
        for name, of in labels.items():
            texts = [text.replace("|", "\\|") for text in of["example"]]
            lines.append(
                _row([name, "yes" if of["preserved"] else "no", str(of["pairs"]), f"{of['percent']:.0f}", *texts])
            )
    return lines


def speakers_markdown(table: Mapping[str, Any]) -> list[str]:
    """Return lines of the table of speakers, by word accuracy; a figure that would accept the model has a star."""
    bars, shown = table["bars"], [name for name in IMPAIRMENT if any(line.get(name) for line in table["speakers"])]
    head = ["speaker", *shown, "n", "WordACC", "human %", "LATTEScore", "95 %"]
    lines = [_row(head), _row(["---"] * len(head))]
    for line in sorted(table["speakers"], key=lambda line: line["word_accuracy"]):
        figures = [
            "–" if line[name] is None else f"{line[name]:.1f}{'*' if line[name] >= bars[name] else ''}"
            for name in ("word_accuracy", "human", "latte")
        ]
        low, high = line["latte_interval"]
        lines.append(
            _row([line["name"], *(line[name] for name in shown), str(line["n"]), *figures, f"{low:.1f} to {high:.1f}"])
        )
    lines += ["", f"*: accepted (WordACC from {bars['word_accuracy']:g}, meaning preserved from {bars['human']:g})."]
    for name, title in (("latte", "LATTEScore"), ("word_accuracy", "WordACC")):
        if of := table["agreement"].get(name):
            lines.append(
                f"{title} and human ratings: Pearson {_number(of['pearson'])}, Spearman {_number(of['spearman'])}, "
                f"mean gap {of['mean_gap']:.1f} points, {of['same_decisions']} of {of['speakers']} decisions alike."
            )
    return lines


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _millions(parameters: int) -> str:
    return f"{parameters / 1e6:,.1f} M"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _auc_cell(found: Mapping[str, Any]) -> str:
    if found["value"] is None:
        return "–"
    low, high = found["interval"]
    return f"{found['value']:.3f} ({low:.2f} to {high:.2f})"
