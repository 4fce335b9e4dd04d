"""Repeats before any model: the table against a plain computation, what is found, what is not, what is refused."""

import dataclasses
import itertools
from statistics import NormalDist

import numpy as np
import pytest

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.commands.data import check
from eeg2text_jax.data import write
from eeg2text_jax.data.clock import Clock
from eeg2text_jax.data.datafile import DataFile, read_datafile
from eeg2text_jax.instrument.auditing import verdict
from eeg2text_jax.runs.repeats import (
    FALLS,
    FAR,
    NEAR,
    OVER,
    WITHIN,
    compare,
    gathered,
    recorded,
    repeat_lines,
    repeats,
    repeats_figure,
    resampled,
)

F = 12


def recordings(words=0.0, drift=0.0, period=80.0, same=True, subjects=2, sessions=2, texts=120, seed=0, missing=0):
    """Samples of sentences of 4 to 8 positions, read again in each session, with patterns or drift of the place.

    Of more than two subjects, each two have `texts` of their own; the last session of each lacks some of them.
    """
    rng = np.random.default_rng(seed)
    pattern, turns, phase = rng.normal(size=(texts, F)), rng.uniform(0.5, 1, F), rng.uniform(0, 6, F)
    length = rng.integers(4, 9, texts)
    for subject, session in itertools.product(range(subjects), range(sessions)):
        place = np.arange(texts) if same else rng.permutation(texts)
        for k in range(texts):
            slow = drift * np.cos(2 * np.pi * place[k] * turns / period + phase)
            features = words * pattern[k] + slow + 2 * rng.normal(size=(length[k], F))
            if session == sessions - 1 and k < missing * (1 + subject):
                continue
            text = f"text number {k + texts * (subject // 2)}"
            text = text.upper().replace(" ", "  ") if session else text  # equal but for case and spaces
            yield {"features": features.astype(np.float32), "sentence": text, "subject": f"S{subject}",
                   "recording": f"S{subject} ses-{session}", "order": int(place[k])}  # fmt: skip


def data_of(tmp_path, **options):
    path = tmp_path / "again.h5"
    write(str(path), list(recordings(**options)), features_are="numbers")
    return read_datafile(path)


def line(words: np.ndarray, width: int) -> np.ndarray:
    at = np.linspace(0, len(words) - 1, width)
    return np.stack([np.interp(at, np.arange(len(words)), words[:, f]) for f in range(F)], axis=1).ravel()


def plain(data: DataFile, scope: str, positions: int) -> tuple[float, float, dict[str, float], np.ndarray]:
    """Same sentence, its stratum's others, content without each recording, and content by number; by loops."""
    names, sentence = sorted(set(data.clock.recording)), [" ".join(text.split()).casefold() for text in data.sentence]
    vectors, lengths = {name: {} for name in names}, dict(zip(sentence, data.n_words.tolist(), strict=True))
    width = int(min(positions, np.median(data.n_words)))
    for name in names:
        rows = [i for i in range(len(data)) if data.clock.recording[i] == name]
        rows.sort(key=lambda i: data.clock.order[i])
        x = np.array([line(data.words(i), width) for i in rows])
        x -= x.mean(0)
        kinds = sorted({int(data.n_words[i]) for i in rows})
        dummies = np.array([[float(data.n_words[i] == kind) for kind in kinds] for i in rows])
        pairs = [(i, j) for i in range(len(x)) for j in range(i + 1, min(i + 4, len(x)))]
        steps, changes = (np.array([column[j] - column[i] for i, j in pairs]) for column in (dummies, x))
        x -= dummies @ np.linalg.lstsq(steps, changes, rcond=None)[0]
        vectors[name] |= {sentence[i]: row for i, row in zip(rows, x / x.std(0), strict=True)}
    subject, cells, by_pair, carried, weight = dict(zip(data.clock.recording, data.subject, strict=True)), {}, {}, 0, 0
    for a, b in itertools.combinations(names, 2):
        both = vectors[a].keys() & vectors[b].keys()
        if (subject[a] == subject[b]) != (scope == WITHIN) or not both:
            continue
        table = np.corrcoef([*vectors[a].values()], [*vectors[b].values()])[: len(vectors[a]), len(vectors[a]) :]
        table = dict(zip(itertools.product(vectors[a], vectors[b]), table.ravel(), strict=True))
        for (s, t), value in table.items():
            if lengths[s] == lengths[t]:
                cells.setdefault((s, t), []).append(value)
        for length in {lengths[text] for text in both}:
            alike = sorted(text for text in both if lengths[text] == length)
            for s in alike:
                by_pair.setdefault((a, b), []).append(table[s, s] - np.mean([table[s, t] for t in alike if t != s]))
            one, other = (np.array([vectors[name][text] for text in alike]) for name in (a, b))
            carried = carried + 100 * len(alike) * np.sum((one - one.mean(0)) * other, axis=0) / (len(alike) - 1)
            weight += len(alike)
    shared = sorted(s for s, t in cells if s == t)
    own = [np.mean(cells[text, text]) for text in shared]
    others = [np.mean([np.mean(cells[s, t]) for t in shared if s != t and (s, t) in cells]) for s in shared]
    without = {name: [c for pair, found in by_pair.items() if name not in pair for c in found] for name in names}
    without = {name: 100 * float(np.mean(found)) for name, found in without.items() if found}
    return 100 * float(np.mean(own)), 100 * float(np.mean(others)), without, carried / weight


@pytest.mark.parametrize(
    ("options", "positions"), [({}, 8), ({"subjects": 4, "missing": 1}, 3)], ids=["whole", "apart"]
)
def test_the_table_is_that_of_a_plain_computation(tmp_path, options, positions):
    data = data_of(tmp_path, words=0.5, same=False, texts=60, **options)
    found_in = repeats(data, positions=positions)
    assert [found.scope for found in found_in] == [WITHIN, OVER]
    for found in found_in:
        own, others, without, carried = plain(data, found.scope, positions)
        assert found.contrast.scores[0] == pytest.approx(own, abs=1e-3)
        assert found.contrast.nulls[0] == pytest.approx(others, abs=1e-3)
        assert found.features == pytest.approx(carried, abs=1e-2)
        assert found.without == pytest.approx(without, abs=1e-3)
        assert list(found.without.values()) == sorted(found.without.values())
        assert not found.beside
        assert found.pairs == {WITHIN: 2, OVER: 4}[found.scope] * (options.get("subjects", 2) // 2)
        assert found.top[5][2] == pytest.approx(5 / 60, rel=0.15), "chance is among those that the same subjects read"


def test_distances_and_ranks_are_those_of_a_plain_computation(tmp_path, monkeypatch):
    """Of recordings in one order, two groups of subjects, and sentences that some recordings lack."""
    groups, order = recorded(data_of(tmp_path, words=1.0, drift=1.0, subjects=4, missing=6, texts=70), 2)
    found, at, ranks, spreads, sizes = compare(groups, OVER, order), {}, [], [], []
    for group in groups:
        has = [np.flatnonzero(there) for there in group.present]
        apart = [(a, b) for a, b in itertools.product(range(4), repeat=2) if group.subject[a] != group.subject[b]]
        cells = {}
        for a, b in apart:
            if a < b:
                table = np.corrcoef(group.values[a][has[a]], group.values[b][has[b]])[: len(has[a]), len(has[a]) :]
                for (s, t), value in zip(itertools.product(has[a], has[b]), 100 * table.ravel(), strict=True):
                    cells.setdefault((s, t), []).append(value)
        in_order = sorted({s for s, t in cells if s == t}, key=lambda s: group.place[s])
        for (i, s), (j, t) in itertools.product(enumerate(in_order), repeat=2):
            at.setdefault(abs(i - j), []).append(np.mean(cells[s, t]))
        for a in range(4):
            others = [b for one, b in apart if one == a]
            known = {t: np.mean([group.values[b][t] for b in others if t in has[b]], axis=0)
                     for t in sorted({t for b in others for t in has[b]})}  # fmt: skip
            tested, texts = [s for s in has[a] if s in known], list(known)
            table = np.corrcoef(group.values[a][tested], [*known.values()])[: len(tested), len(tested) :]
            ranks += [1 + (row > row[texts.index(s)]).sum() for s, row in zip(tested, table, strict=True)]
            spreads.append(table.std())
            sizes += [len(texts)] * len(tested)
    assert found.beside
    np.testing.assert_allclose(found.curve, [np.mean(at[d]) for d in range(len(found.curve))], atol=1e-3)
    n = round(np.mean(sizes))
    draws = np.random.default_rng(0).normal(size=(20_000, n))
    own = draws[:, 0] + np.sqrt(found.contrast.effect / 100) / np.mean(spreads)
    beaten_by = (draws[:, 1:] > own[:, None]).sum(1)
    for k, (by, best, chance) in found.top.items():
        assert by == pytest.approx(np.mean(np.array(ranks) <= k))
        assert best == pytest.approx(np.mean(beaten_by < k), abs=0.02)
        assert chance == pytest.approx(k / n, rel=0.02)
    monkeypatch.setattr("eeg2text_jax.runs.repeats.BESIDE", 1.0)
    z = NormalDist().inv_cdf
    withheld = (z(0.95) + z(0.9 / 0.95)) / (z(0.95) + z(0.9))
    assert found.contrast.mde == pytest.approx(withheld * compare(groups, OVER, order).contrast.mde)


def test_words_are_found_in_both_orders_and_noise_is_not(tmp_path):
    for same in (True, False):
        for found in repeats(data_of(tmp_path, words=0.6, drift=0.5, same=same)):
            assert found.beside == same
            assert found.claim, found.text
            assert all(left > 0 for left in found.without.values())
            by, best, chance = found.top[1]
            assert chance < by <= best + 0.1
            assert found.features.reshape(-1, F).mean(0).min() > 0
    null = [
        f.claim for s in range(6) for o in (True, False) for f in repeats(data_of(tmp_path, same=o, texts=60, seed=s))
    ]
    assert len(null) == 24
    assert sum(null) <= 4, "5 % of 24 are 1.2"


def test_drift_of_a_fixed_order_is_not_content(tmp_path):
    slow, fast = (repeats(data_of(tmp_path, drift=2.0, period=period)) for period in (400.0, 16.0))
    for found in slow:
        assert not found.claim
        assert abs(found.contrast.effect) < found.contrast.mde
        assert found.curve[0] > 10
    for found in fast:
        assert found.contrast.above, "places that follow each other differ"
        assert not found.claim
        assert found.p_fall < 0.01
        assert "nothing is claimed" in found.text
        assert f"drift could make a content of up to {FALLS * found.fall:.2f}" in found.text


def test_words_are_found_where_likeness_falls_by_less_than_they_add(tmp_path):
    """Much data shows that any drift makes likeness fall; the words are many times as strong as what it could make."""
    for found in repeats(data_of(tmp_path, words=3.0, drift=6.0, period=60.0)):
        assert found.p_fall < 0.05
        assert found.contrast.interval()[0] > FALLS * found.fall
        assert found.claim
    low, fall = found.contrast.interval()[0], found.fall
    assert not dataclasses.replace(found, fall=low / FALLS).claim
    assert dataclasses.replace(found, fall=fall, beside=False, p_fall=0.0).claim
    assert not dataclasses.replace(found, fall=np.nan, p_fall=np.nan).claim


def test_a_linear_map_finds_words_that_a_subject_turns(tmp_path):
    """Another subject's features are a rotation of the first one's: alike by a map, not by correlation."""
    data = data_of(tmp_path, words=0.8, same=False, sessions=1)
    turn = np.linalg.qr(np.random.default_rng(0).normal(size=(F, F)))[0].astype(np.float32)
    features = data.features.copy()
    other = np.repeat(data.subject == "S1", data.n_words)
    features[other] = features[other] @ turn
    turned = dataclasses.replace(data, features=features)
    assert not repeats(turned)[0].claim
    assert repeats(turned, "linear")[0].claim
    noise = dataclasses.replace(
        turned, features=np.random.default_rng(1).normal(size=features.shape).astype(np.float32)
    )
    assert not repeats(noise, "linear")[0].claim


def test_words_do_not_make_likeness_fall(monkeypatch):
    """Strong words, the same in all recordings, bring nothing into the sentences beside theirs, by way of lengths."""
    monkeypatch.setattr(verdict, "PAIRINGS", 10)
    rng, falls = np.random.default_rng(0), []
    for _ in range(12):
        words, length, place = rng.normal(size=(252, F)), rng.integers(4, 16, 252), np.arange(252)
        values = np.concatenate([words + 0.1 * rng.normal(size=(252, F)) for _ in range(2)])
        group = gathered(values, np.tile(place, 2), np.repeat([0, 1], 252), np.tile(length, 2), np.tile(place, 2),
                         ["S", "S"], ["a", "b"])  # fmt: skip
        curve = compare([group], WITHIN, 1.0).curve
        falls.append(curve[NEAR] - curve[FAR])
    assert abs(np.mean(falls)) < 2 * np.std(falls) / np.sqrt(len(falls))


def test_samples_of_a_sentence_in_a_recording_are_averaged():
    values = np.random.default_rng(0).normal(size=(9, 4))
    sentence, recording = np.array([0, 1, 2, 3, 0, 0, 1, 2, 3]), np.array([0, 0, 0, 0, 0, 1, 1, 1, 1])
    found = gathered(values, sentence, recording, np.full(9, 5), np.arange(9), ["S", "S"], ["a", "b"])
    first = values[:5] - values[:5].mean(0)
    np.testing.assert_allclose(found.values[0, 0], (first / first.std(0))[[0, 4]].mean(0), rtol=1e-5)
    assert found.present.all()
    words = np.arange(6.0).reshape(3, 2)
    assert resampled(words, 5).reshape(5, 2)[:, 0].tolist() == [0, 1, 2, 3, 4]
    assert resampled(words[:1], 3).tolist() == [0, 1] * 3


def test_the_command_prints_and_draws(tmp_path, capsys):
    data = data_of(tmp_path, words=0.6)
    assert check([str(data.path), "--repeats", f"--repeats-png={tmp_path / 'repeats.png'}"]) == 0
    out = capsys.readouterr().out
    assert "\n".join(repeat_lines(repeats(data))) in out
    assert "repeats over subjects: recordings of one sentence are more alike" in out
    assert (tmp_path / "repeats.png").stat().st_size > 1000
    answers = repeats(data)
    figure = repeats_figure(answers, F, ["4-8", "8-12"], list("abcdef"))
    for k, found in enumerate(answers):
        curve, image = figure.axes[2 * k : 2 * k + 2]
        assert curve.get_title().startswith(found.scope)
        np.testing.assert_array_equal(curve.lines[0].get_ydata(), found.curve)
        by_position = found.features.reshape(-1, 2, 6)  # channels within bands within positions
        assert len(by_position) > 1
        np.testing.assert_allclose(image.images[0].get_array(), by_position.mean(0))
        assert [label.get_text() for label in image.get_yticklabels()] == ["4-8 Hz", "8-12 Hz"]
        assert [label.get_text() for label in image.get_xticklabels()] == list("abcdef")


def test_what_cannot_be_compared_is_said(tmp_path):
    data = data_of(tmp_path, subjects=1, sessions=1, texts=20)
    with pytest.raises(UserError, match="fewer than 5 sentences that can be compared"):
        repeats(data)
    with pytest.raises(UserError, match="needs EEG with a column of recordings"):
        repeats(dataclasses.replace(data, clock=None))
    with pytest.raises(UserError, match="expected one of correlation, linear"):
        repeats(data, "cosine")
    assert Clock.of(data.clock.columns()).timed.all()
