"""A whole audit through the command, computed again with NumPy, sacrebleu, jiwer and rouge-score.

Two tasks, three readers who did not read all sentences, four controls (one with donors, one that asks a question of its
own), references that differ in their marks and case from file to file, and two endpoints.
"""

import contextlib
import hashlib
import html
import io
import json
import re
from collections import Counter

import jiwer
import numpy as np
import pytest
from rouge_score.rouge_scorer import RougeScorer
from rows import row
from sacrebleu.metrics import BLEU
from scipy.stats import norm, t

from eeg2text_jax.commands import cli
from eeg2text_jax.instrument.predictions.file import write_predictions

LENGTHS = {"NR": {5: 9, 7: 10, 8: 7}, "SR": {5: 8, 6: 4}}
WORDS = [f"w{'abcdefghij'[i % 10]}{i}" for i in range(60)]
RIGHT = {"eeg": 0.1, "noise": 0.02, "shuffled": 0.0, "time_reversed": 0.2, "zero": 0.05}
NAMES = [*RIGHT]


def plain(text):
    return re.sub(r"[^\w ]", "", text.lower()).split()


def made():
    """Condition -> rows; of a sentence every third or second reader is missing."""
    rng, texts = np.random.default_rng(5), []
    for task, sizes in LENGTHS.items():
        for length, count in sizes.items():
            texts += [(task, [f"own{len(texts) + k}", *rng.choice(WORDS, length - 1)]) for k in range(count)]
    rows = {name: [] for name in NAMES}
    for name, share in RIGHT.items():
        for s, (task, words) in enumerate(texts):
            same = [k for k, (other, _) in enumerate(texts) if other == task and k != s]
            for reader in [r for r, every in (("Ann", 1), ("Bob", 2), ("Cy", 3)) if s % every == 0]:
                donor = int(rng.choice(same))
                source = texts[donor][1] if name == "shuffled" else words
                taken = [str(rng.choice(source)) if rng.random() < max(share, 0.4 * (name == "shuffled"))
                         else str(rng.choice(WORDS)) for _ in range(int(rng.integers(3, 9)))]  # fmt: skip
                said = "" if name == "zero" and s % 9 == 0 else " ".join(taken)
                said = "zebras again" if name == "noise" and s % 8 == 0 else said
                said = " ".join(words[:5]) if name == "time_reversed" and s % 7 == 0 else said
                written = " ".join(words) if name == "noise" else f"{' '.join(words).capitalize()}."
                about = {"subject": reader, "task": task, "sentence_id": f"s{s}", "eval_condition": name}
                lent = {"donor": f"s{donor}"} if name == "shuffled" else {}
                rows[name].append(
                    row(f"{s}{reader}", reference=written, prediction=said, n_words=len(words), **about, **lent)
                )
    return rows


class ByOthers:
    """What the audit should say, from the rows; sentences in the order of their plain words."""

    def __init__(self, rows):
        self.rows = rows
        self.keys = sorted({" ".join(plain(r.reference)) for r in rows["eeg"]})
        self.of = {
            name: np.array([self.keys.index(" ".join(plain(r.reference))) for r in rows[name]]) for name in NAMES
        }
        kind = {k: (r.task, len(plain(r.reference))) for k, r in zip(self.of["eeg"], rows["eeg"], strict=True)}
        self.strata = [np.array([k for k in sorted(kind) if kind[k] == one]) for one in sorted(set(kind.values()))]
        self.ids = {r.sentence_id: k for k, r in zip(self.of["eeg"], rows["eeg"], strict=True)}
        among = Counter(word for key in self.keys for word in set(key.split()))
        self.weight = lambda word: np.log((len(self.keys) + 1) / (among[word] + 1))

    def words(self, said, true):
        ours, theirs = Counter(plain(said)), Counter(true.split())
        shared, a, b = (sum(self.weight(w) * n for w, n in c.items()) for c in (ours & theirs, ours, theirs))
        return 50 * shared / a + 50 * shared / b if a else 0.0

    def rouge(self, said, true):
        return 100 * RougeScorer(["rouge1"]).score(true, " ".join(plain(said)))["rouge1"].fmeasure

    def scores(self, name, score):
        """Of every row against every sentence of its stratum, NaN elsewhere; a donor's cell is the mean of the rest."""
        found = np.full((len(self.rows[name]), len(self.keys)), np.nan)
        for i, (r, s) in enumerate(zip(self.rows[name], self.of[name], strict=True)):
            (stratum,) = (members for members in self.strata if s in members)
            found[i, stratum] = [score(r.prediction, self.keys[k]) for k in stratum]
            donor = self.ids.get(r.donor, -1)
            if donor in stratum:
                found[i, donor] = np.mean([found[i, k] for k in stratum if k not in (s, donor)])
        return found

    def by_row(self, name, score):
        table = self.scores(name, score)
        own = table[np.arange(len(table)), self.of[name]]
        others = (np.nansum(table, 1) - own) / (np.isfinite(table).sum(1) - 1)
        return np.stack([own, others, own - others], 1)

    def contrast(self, names, score):
        """Effect, p of the normal limit, half of the 90 % interval, and scores and nulls of both sides."""
        tables = []
        for name in names:
            scores = self.scores(name, score)
            tables.append(np.stack([scores[self.of[name] == s].mean(0) for s in range(len(self.keys))]))
        d = tables[0] - (tables[1] if len(tables) > 1 else 0)
        content, variance, spread = np.zeros(len(d)), 0.0, np.zeros(len(d))
        for members in self.strata:
            block, n = d[np.ix_(members, members)], len(members)
            whole = n / (n - 1) * (block - block.mean(0) - block.mean(1)[:, None] + block.mean())
            content[members], spread[members] = np.diag(whole), n / (n - 1)
            variance += (whole**2).sum() / (n - 1)
        effect, size = content.mean(), len(content)
        se = np.sqrt((spread * (content - effect) ** 2).sum() / (size - 1) / size)
        self.centred = []  # of all strata, without the effect, and divided so that their products are covariances
        for members in self.strata:
            block, n = (d - effect * np.eye(size))[np.ix_(members, members)], len(members)
            whole = n / (n - 1) * (block - block.mean(0) - block.mean(1)[:, None] + block.mean())
            self.centred += (whole.ravel() / np.sqrt(n - 1) / size).tolist()
        own = [np.mean([m[s, s] for s in range(size)]) for m in tables]
        nulls = [np.mean([np.nanmean(np.delete(m[s], s)) for s in range(size)]) for m in tables]
        return effect, norm.sf(effect / (np.sqrt(variance) / size)), t.ppf(0.95, size - 1) * se, own, nulls

    def printed(self, name):
        """Scores as papers print them: of the raw texts, and of the three next sentences of the stratum."""
        said = [r.prediction for r in self.rows[name]]
        after = {}
        for members in self.strata:
            for place, s in enumerate(members.tolist()):
                after[s] = [members[(place + k) % len(members)] for k in (1, 2, 3)]
        shown = {s: min(r.reference for n in NAMES for r, k in zip(self.rows[n], self.of[n], strict=True) if k == s)
                 for s in range(len(self.keys))}  # fmt: skip
        null = [shown[after[s][k]] for k in range(3) for s in self.of[name].tolist()]
        return [self.corpus(said, [r.reference for r in self.rows[name]]), self.corpus(said * 3, null)]

    def corpus(self, said, true):
        bleu = [
            BLEU(max_ngram_order=n, smooth_method="none", tokenize="13a").corpus_score(said, [true]).score
            for n in (1, 4)
        ]
        scorer = RougeScorer(["rouge1", "rougeL"])
        pairs = [scorer.score(b, a) for a, b in zip(said, true, strict=True)]
        rouges = [100 * np.mean([pair[kind].fmeasure for pair in pairs]) for kind in ("rouge1", "rougeL")]
        return [*bleu, 100 * jiwer.wer(true, said), *rouges]


@pytest.fixture(scope="module")
def audited(tmp_path_factory):
    """The JSON, the cells of the report's sections, its head as text, the printed text; and what others compute."""
    folder, rows = tmp_path_factory.mktemp("audited"), made()
    for name in NAMES:
        write_predictions(folder / f"{name}.jsonl", {}, rows[name][::-1])
    controls = [f"--control={folder / f'{name}.jsonl'}" for name in NAMES[1:]]
    outputs = [f"--json={folder / 'a.json'}", f"--html={folder / 'a.html'}", "--endpoint=words,rouge-1", "-v"]
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert cli.main(["audit", f"--eeg={folder / 'eeg.jsonl'}", *controls, *outputs]) == 0
    page = (folder / "a.html").read_text("utf8")
    parts = dict(re.findall(r"<summary>(.*?)</summary>(.*?)</details>", page, re.DOTALL))
    sections = {
        title: [
            [html.unescape(c) for c in re.findall("<td[^>]*>(.*?)</td>", line)]
            for line in re.findall("<tr>(.*?)</tr>", part)
        ]
        for title, part in parts.items()
    }
    text = {title: html.unescape(re.sub("<[^>]*>", " ", part)) for title, part in parts.items()}
    head = " ".join(html.unescape(re.sub("<[^>]*>", " ", page.partition("<details")[0])).split())
    by = ByOthers(rows)
    by.files = [
        [path.name, str(len(rows[path.stem])), hashlib.sha256(path.read_bytes()).hexdigest()]
        for path in (folder / f"{name}.jsonl" for name in NAMES)
    ]
    return json.loads((folder / "a.json").read_text()), sections, text, head, out.getvalue(), by


def test_effects_scores_and_nulls(audited):
    found, by = audited[0], audited[-1]
    assert found["n_sentences"] == len(by.keys) == 38
    assert (found["n_rows"], found["n_subjects"], found["n_strata"]) == (len(by.rows["eeg"]), 3, 5)
    singles = [(c["content"], [c["name"]]) for c in found["conditions"]]
    pairs = [(c["contrast"], ["eeg", c["control"]]) for c in found["comparisons"]]
    assert [names[-1] for _, names in (*singles, *pairs)] == [*NAMES, *NAMES[1:]]
    further = [(s["contrast"], ["eeg", s["contrast"]["control"]]) for s in found["secondary"]]
    assert [names[1] for _, names in further] == ["noise", "shuffled", "zero"]
    for score, contrasts in ((by.words, [*singles, *pairs]), (by.rouge, further)):
        for one, names in contrasts:
            effect, p, reach, own, nulls = by.contrast(names, score)
            assert (one["effect"], *one["scores"], *one["nulls"]) == pytest.approx((effect, *own, *nulls))
            assert one["p"] == pytest.approx(p, abs=0.02)
            assert one["interval_90"] == pytest.approx((effect - reach, effect + reach), abs=0.02 * reach)
            low, high = one["interval"]
            assert (high - low) / 2 == pytest.approx(reach * t.ppf(0.975, 37) / t.ppf(0.95, 37), rel=0.02)
    easiest = min(("noise", "shuffled", "zero"), key=lambda name: by.contrast(["eeg", name], by.words)[0])
    assert found["deciding"] == easiest == "zero", "not the first of them"


def test_the_detectable_effect_is_found_in_nine_of_ten_studies(audited):
    """By all deciding controls and by EEG alone together: normal effects, of which those of one right word grow."""
    found, by = audited[0], audited[-1]
    centred = []
    for names in (["eeg", "noise"], ["eeg", "shuffled"], ["eeg", "zero"], ["eeg"]):
        by.contrast(names, by.words)
        centred.append(by.centred)
    different = [
        len({r.prediction for r, s in zip(by.rows["eeg"], by.of["eeg"], strict=True) if s == k}) for k in range(38)
    ]
    growth = np.mean([100 / len(key.split()) / n for key, n in zip(by.keys, different, strict=True)]) / 38
    covariance = np.array(centred) @ np.array(centred).T + growth * found["mde"]
    drawn = np.random.default_rng(1).multivariate_normal(np.full(4, found["mde"]), covariance, size=40_000)
    assert (drawn > norm.ppf(0.95) * np.sqrt(np.diag(covariance))).all(1).mean() == pytest.approx(0.9, abs=0.006)


def test_scores_as_papers_print_them(audited):
    found, sections, *_, printed, by = audited
    labels = ["BLEU-1", "BLEU-4", "WER", "ROUGE-1 F", "ROUGE-L F"]
    assert [r["label"] for r in found["reported"]] == labels
    for k, name in enumerate(NAMES):
        scores, nulls = by.printed(name)
        assert [r["scores"][k] for r in found["reported"]] == pytest.approx(scores)
        assert [r["nulls"][k] for r in found["reported"]] == pytest.approx(nulls)
        for place, (label, score, null) in enumerate(zip(labels, scores, nulls, strict=True)):
            (line,) = (line for line in sections["Scores as papers print them"] if line[:1] == [label])
            assert line[1 + k] == f"{score:.2f} ({null:.2f})"
            assert f"{score:.2f} ({null:.2f})" in printed
            assert place < 5


def test_what_outputs_look_like(audited):
    found, sections, *_, printed, by = audited
    lines = [line for line in sections["Each condition: scores, and what the outputs look like"] if line]
    for k, name in enumerate(NAMES):
        texts = [" ".join(plain(r.prediction)) for r in by.rows[name]]
        top, count = min(Counter(texts).items(), key=lambda one: (-one[1], one[0]))
        words = np.mean([len(text.split()) for text in texts])
        look = found["conditions"][k]["look"]
        empty = texts.count("")
        assert look == {"rows": len(texts), "distinct": len(set(texts)), "empty": empty, "top_text": top, "top": count,
                        "mean_words": pytest.approx(words)}  # fmt: skip
        effect, _, _, own, nulls = by.contrast([name], by.words)
        p = found["conditions"][k]["content"]["p"]
        shown = [name, str(len(texts)), f"{own[0]:.2f}", f"{nulls[0]:.2f}", f"{effect:+.2f}"]
        shown += [cell(p), str(len(set(texts)))]
        assert lines[k] == shown
        assert re.search(r"\s+".join(map(re.escape, shown)), printed)
        often = f"{count} times: {top[:70]}" if count > 1 else "each once"
        assert lines[5 + k] == [name, f"{len(set(texts))} of {len(texts)}", often, f"{words:.1f}", str(empty)]


def test_every_row_and_every_reader(audited):
    _, sections, *_, by = audited
    main, expected, contents = audited[0]["deciding"], [], {}
    for place, name in enumerate(NAMES):
        for r, s, (own, others, content) in zip(by.rows[name], by.of[name], by.by_row(name, by.words), strict=True):
            contents.setdefault(r.subject, {}).setdefault(name, []).append(content)
            shown = min(
                x.reference for x in (*by.rows["eeg"], *by.rows["noise"]) if " ".join(plain(x.reference)) == by.keys[s]
            )
            figures = (f"{own:.1f}", f"{others:.1f}", f"{round(content, 1) + 0.0:+.1f}")
            expected.append(((shown, place, r.subject), [shown, r.prediction or "(empty)", name, r.subject, *figures]))
    assert [line for line in sections["Every row"] if line] == [
        line for _, line in sorted(expected, key=lambda x: x[0])
    ]
    readers = [line for line in sections["What the content is about, and who carries it"] if line]
    assert readers == [
        [reader, str(len(of["eeg"])), f"{np.mean(of['eeg']):+.2f}", f"{np.mean(of[main]):+.2f}"]
        for reader, of in sorted(contents.items())
    ]


def cell(p):
    return f"{p:.3f}" if p >= 0.001 else "< 0.001"


def test_the_head_and_the_tables_of_comparisons(audited):
    found, sections, text, head, printed, by = audited
    main = next(c["contrast"] for c in found["comparisons"] if c["control"] == found["deciding"])
    effect = by.contrast(["eeg", found["deciding"]], by.words)[0]
    low, high = main["interval_90"]
    shown = f"{effect:+.2f} points (90 % CI {low:+.2f} to {high:+.2f}; p "
    for where in (head, printed):
        assert shown in where
    assert f"{effect:+.2f} content difference in points of 100, 90 % interval {low:+.2f} to {high:+.2f}" in head
    assert f"{found['mde']:.2f} smallest detectable effect" in head
    assert f"{cell(main['p'])} p: share of random pairings of outputs and sentences that give at least this" in head
    assert f"38 sentences ({found['n_rows']} rows in each condition, 3 readers)" in head
    each = [c["mde"] for c in (*(c["contrast"] for c in found["comparisons"][:2]), found["conditions"][0]["content"])]
    assert found["mde"] > max(each), "all of them together are harder than each"
    values = [by.contrast([name], by.words)[0] for name in ("eeg", found["deciding"])]
    assert f"the content: {values[0]:+.2f} with EEG and {values[1]:+.2f} with {found['deciding']}." in head
    p = {c["control"]: c["contrast"]["p"] for c in found["comparisons"] if not c["question"]}
    p |= {(s["contrast"]["control"], s["label"]): s["contrast"]["p"] for s in found["secondary"]}
    order = sorted(p, key=p.get)
    adjusted = np.minimum(1, np.maximum.accumulate([p[k] * (len(p) - i) for i, k in enumerate(order)]))
    holm = dict(zip(order, adjusted, strict=True))
    assert found["adjusted_p"] == pytest.approx(holm[found["deciding"]])
    further = [line for line in sections["Further endpoints, which do not decide"] if line]
    for line, s in zip(further, found["secondary"], strict=True):
        effect, _, reach, *_ = by.contrast(["eeg", s["contrast"]["control"]], by.rouge)
        low, high = map(float, line[3].split(" to "))
        assert line[:3] == ["ROUGE-1 F", s["contrast"]["control"], f"{effect:+.2f}"]
        assert (high - low) / 2 == pytest.approx(reach, rel=0.02)
        assert line[4:] == [cell(s["contrast"]["p"]), cell(holm[s["contrast"]["control"], "ROUGE-1 F"])]
        assert s["adjusted"] == pytest.approx(holm[s["contrast"]["control"], "ROUGE-1 F"])
    against = [line for line in sections["Against each control"] if line]
    for line, c in zip(against, found["comparisons"], strict=True):
        effect, _, reach, *_ = by.contrast(["eeg", c["control"]], by.words)
        low, high = map(float, line[2].split(" to "))
        assert line[:2] == [c["control"], f"{effect:+.2f}"]
        assert (high - low) / 2 == pytest.approx(reach, rel=0.02)
        less = c["verdict"] == "control better"
        assert line[3] == (f"{cell(c['contrast']['p_less'])} (less)" if less else cell(c["contrast"]["p"]))
        assert ("does not decide" in line[4]) == (c["control"] == "time_reversed")
        assert re.search(r"\s+".join(map(re.escape, line)), printed)
    said = " ".join(text["Against each control"].split())
    assert f"Every control has to be beaten; {found['deciding']} decides." in said
    assert f"Deciding comparison, p = {cell(found['adjusted_p'])} by Holm's method over all that decide." in said
    assert f"Without a control, eeg against other sentences: {values[0]:+.2f} points" in said
    question = by.contrast(["eeg", "time_reversed"], by.words)[0]
    for where in (said, printed):
        assert f"does the order of the recording matter? {question:+.2f} points" in where
    assert f"minimum detectable effect: {found['mde']:.2f}; margin 1." in printed
    assert "A difference of less than 1 counts as none" in text["Method and terms"]
    assert [line for line in sections["What was judged"] if line] == by.files
