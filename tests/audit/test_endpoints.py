"""Endpoints: shared words against rouge-score and by hand, functions of users, models, and options that are refused."""

import numpy as np
import pytest
from rows import changed, row, simulated_rows

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.instrument.auditing.audit import audit
from eeg2text_jax.instrument.auditing.result import result_text
from eeg2text_jax.instrument.auditing.strata import words
from eeg2text_jax.instrument.auditing.table import BY_NAME, WORDS, of_metric
from eeg2text_jax.instrument.metrics.metric import Metric
from eeg2text_jax.instrument.metrics.metric_names import ENDPOINTS
from eeg2text_jax.instrument.predictions.file import write_predictions

LINES = "the cat sat on the mat|the the the|a dog ran to the mat|on a mat sat the cat|nobody came|cat|dog dog cat mat"
TEXTS = LINES.split("|")


def test_all_words_are_a_hundred_points_and_none_are_0():
    points = WORDS.fit(TEXTS)
    np.testing.assert_allclose(np.diag(points(TEXTS, TEXTS)), 100)
    assert points(["THE Cat!</s>", ""], TEXTS)[:, 0].tolist() == [points(["the cat"], TEXTS)[0, 0], 0]


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("Don’t  STOP, it’s 1,5 €!", "dont stop its 1 5"),
        ("<s>so it is</s><pad><pad>", "so it is"),
        ("[CLS] un ##believ ##able [SEP]", "unbelievable"),
        ("\u2581so \u2581un believ able \u2581it \u2581is", "so unbelievable it is"),
        ("Ġso Ġit Ġis", "so it is"),
        ("un@@ believ@@ able", "unbelievable"),
        ("so</w> un believ able</w>", "so unbelievable"),
        ("ﬁne Straße e\u0301te\u0301", "fine strasse été"),
        ("我们 读书。", "我 们 读 书"),
        ("... ! </s>", ""),
    ],
)
def test_texts_are_compared_as_plain_words(text, plain):
    assert " ".join(words(text)) == plain


def letters(predictions, references):
    return np.array(
        [[100 * np.mean([a == b for a, b in zip(p, r, strict=False)]) for r in references] for p in predictions]
    )


def no_table(predictions, references):
    return np.zeros(len(predictions))


def no_number(predictions, references):
    return np.full((len(predictions), len(references)), np.nan)


def no_zebras(predictions, references):
    return np.array([[1 / ("zebra" not in p + r) for r in references] for p in predictions])


def only_alone(predictions, references):
    if len(predictions) > 1:
        raise RuntimeError
    return np.zeros((1, len(references)))


def test_a_function_of_the_user_decides(tmp_path, printed_by, refused):
    eeg, noise = simulated_rows(3, information=0.3, sentences=36)
    for name, rows in (("eeg", eeg), ("noise", changed(noise[:9], prediction="a zebra") + noise[9:])):
        write_predictions(tmp_path / f"{name}.jsonl", {}, rows)
    command = ["audit", f"--eeg={tmp_path / 'eeg.jsonl'}", f"--control={tmp_path / 'noise.jsonl'}"]
    name = f"{__name__}:letters"
    found = audit(eeg, {"noise": noise}, endpoint=name)
    out = printed_by([*command, f"--endpoint={name}"], found.exit_status)
    assert f"Chosen, and not the default: endpoint {name}." in out
    assert found.metric == name
    scores = [np.mean(np.diag(letters([r.prediction], [r.reference]))) for r in eeg]
    assert found.conditions[0].content.scores[0] == pytest.approx(np.mean(scores))
    for wrong, message in {
        "nowhere:f": "--endpoint=nowhere:f: No module named 'nowhere'; expected MODULE:FUNCTION",
        f"{__name__}:nothing": "has no attribute 'nothing'; expected MODULE:FUNCTION",
        f"{__name__}:TEXTS": "TEXTS is no function; expected MODULE:FUNCTION",
        f"{__name__}:no_table": "returned an array of shape",
        f"{__name__}:no_number": "returned NaN or infinity",
        f"{__name__}:no_zebras": ":no_zebras: failed on the prediction 'a zebra' and the reference 'w",
        f"{__name__}:only_alone": "failed on 20 predictions and 20 references (RuntimeError); correct the function.",
    }.items():
        assert message in refused([*command, f"--endpoint={wrong}"])


def test_a_function_in_the_current_folder_is_found(tmp_path, monkeypatch):
    (tmp_path / "mine_alone.py").write_text("import numpy as np\n\ndef f(p, r):\n    return np.eye(len(p), len(r))\n")
    monkeypatch.chdir(tmp_path)
    assert audit([row(i) for i in range(8)], endpoint="mine_alone:f").metric == "mine_alone:f"


class WordVectors(Metric):
    """Cosine of sums of random word vectors, below 0 as often as above where nothing is shared: a similarity."""

    name, columns, statistic_names = "similarity", ("angle", "similarity"), ("sum_cosine", "samples")
    signature = "model:random|cosine"

    def __init__(self):
        self._vectors, self._rng = {}, np.random.default_rng(0)

    def _of(self, texts):
        for word in sorted({word for text in texts for word in text.split()} - self._vectors.keys()):
            self._vectors[word] = self._rng.normal(size=24)
        sums = np.stack([sum((self._vectors[word] for word in text.split()), np.zeros(24)) for text in texts])
        return sums / np.maximum(np.linalg.norm(sums, axis=1, keepdims=True), 1e-12)

    def statistics(self, predictions, references):
        cosines = np.einsum("nd,nd->n", self._of(predictions), self._of(references))
        return np.stack([cosines, np.ones_like(cosines)], -1)

    def pairwise(self, predictions, references):
        cosines = self._of(predictions) @ self._of(references).T
        return np.stack([cosines, np.ones_like(cosines)], -1)

    def corpus(self, summed):
        cosines = summed[..., :1] / summed[..., 1:]
        return 100 * np.concatenate([np.arccos(np.clip(cosines, -1, 1)), cosines], -1)

    def notes(self):
        return ["vectors are random"]


def by_vectors(information, **options):
    eeg, noise = simulated_rows(3, information=information, sentences=60, subjects=4)
    return audit(eeg, {"noise": noise}, endpoint=of_metric(ENDPOINTS["similarity"], WordVectors()), **options)


def test_a_model_s_score_decides_by_the_same_rules():
    found = by_vectors(0.18)
    assert found.verdict.base == "uses EEG"
    assert (found.metric, found.margin, found.signature) == ("similarity", 1.0, "model:random|cosine")
    assert result_text(found).startswith("similarity in points")
    assert "vectors are random" in found.notes
    none = by_vectors(0.0, margin=30.0)
    assert none.verdict.base == "equivalent to control"
    assert "margin 30 (default 1)" in none.choices


def test_further_endpoints_use_the_same_strata_and_one_family_of_p():
    eeg, noise = simulated_rows(3, information=0.02, sentences=60, subjects=4)
    found = audit(
        eeg, {"noise": noise}, secondary=[BY_NAME["rouge-1"], of_metric(ENDPOINTS["similarity"], WordVectors())]
    )
    assert [s.label for s in found.secondary] == ["ROUGE-1 F", "similarity"]
    alone = audit(eeg, {"noise": noise}, endpoint=BY_NAME["rouge-1"]).deciding.contrast
    assert (found.secondary[0].contrast.effect, found.secondary[0].contrast.p) == (alone.effect, alone.p)
    raw = [found.deciding.contrast.p, *(s.contrast.p for s in found.secondary)]
    given = [found.adjusted_p, *(s.adjusted for s in found.secondary)]
    smallest = int(np.argmin(raw))
    assert given[smallest] == pytest.approx(min(1, 3 * raw[smallest]))
    assert all(a >= p for a, p in zip(given, raw, strict=True))


def test_the_form_is_checked_where_words_are_compared():
    eeg = changed(simulated_rows(3)[0], prediction="AH0 B IY1 T")
    assert audit(eeg, endpoint="rouge-1").verdict.base == "not judgeable"
    similar = of_metric(ENDPOINTS["similarity"], WordVectors())
    assert not any(n.code == "other_form" for n in audit(eeg, endpoint=similar).notices)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--endpoint=bleu-2"], "--endpoint=bleu-2: there is no such endpoint"),
        (["--endpoint=similarty"], "did you mean 'similarity'"),
        (["--endpoint=similarity"], "similarity needs --endpoint=NAME:"),
        (["--endpoint=lattescore-mean"], "lattescore needs --endpoint=NAME:"),
        (["--endpoint=words,words"], "an endpoint is given twice"),
        (["--margin=-1"], "expected a number above 0, in points of the endpoint"),
        (["--endpoint=lattescore-mean:nowhere"], "there is no such file"),
    ],
)
def test_flags_are_refused_before_a_file_is_read(flags, message, tmp_path, refused):
    assert message in refused(["audit", f"--eeg={tmp_path / 'none'}", *flags])


def test_an_unknown_name_from_python_is_refused():
    with pytest.raises(UserError, match="there is no such endpoint of texts"):
        audit([row(i) for i in range(8)], endpoint="rouge-2")
