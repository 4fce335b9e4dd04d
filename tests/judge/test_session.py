"""The command from pairs to a judge on disk: resumed, read again, and used by `eeg2text score`."""

import dataclasses
import json
import re
import shutil
import signal
import types
from collections import Counter

import jax
import numpy as np
import pytest
from etils import epath
from spoilt_judges import HOSTILE
from tiny_judge import counted_auc, tiny_config

from eeg2text_jax.base.errors import Terminated, UserError
from eeg2text_jax.commands.cli import main
from eeg2text_jax.instrument.workdir import Workdir
from eeg2text_jax.judge import session, tune
from eeg2text_jax.judge._edits import make_pairs
from eeg2text_jax.judge._judge_folder import LatteScore, load_judged
from eeg2text_jax.judge.baselines import baseline_scores, choose_threshold
from eeg2text_jax.judge.fields import PromptSettings
from eeg2text_jax.judge.frozen import Asker, frequent_tokens, initial_prompts, load_frozen
from eeg2text_jax.judge.pairs import Pair, Parts, divide, pairs_digest, preserved_of, read_pairs, write_pairs
from eeg2text_jax.judge.session import frozen_model, judge, labelled_pairs, sentences_of, speakers
from eeg2text_jax.judge.toy import sentences, toy_pairs, toy_wording
from eeg2text_jax.judge.wording import read_labels
from eeg2text_jax.models.backbones.mapping import flatten
from eeg2text_jax.models.pretrained.folder import read_tensors, write_safetensors

PRODUCTS = ("judge/judge.json", "judge/prompt.safetensors", "results.json", "results.md", "metrics.jsonl", "pairs.tsv")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A workdir in which the tiny toy was judged, and the results."""
    root = tmp_path_factory.mktemp("judged") / "work"
    return root, judge(tiny_config(), str(root))


@pytest.fixture
def judged(finished, tmp_path):
    """A copy of the judge's folder that a test may spoil, beside the toy."""
    root, _ = finished
    (tmp_path / "toy").symlink_to(root / "toy")
    return shutil.copytree(root / "judge", tmp_path / "judge")


def contents(root):
    return {name: (root / name).read_bytes() for name in PRODUCTS}


def test_a_moved_judge_goes_on_and_no_file_has_the_path_of_its_folder(finished, tmp_path):
    root, _ = finished
    moved = shutil.copytree(root, tmp_path / "moved")
    away = root.rename(root.with_name("away"))
    judge(tiny_config(), str(moved))
    assert load_judged(moved / "judge")[0].checkpoint == "../toy"
    assert contents(moved) == contents(away)
    away.rename(root)
    files = [path for path in root.rglob("*") if path.is_file()]
    assert [path for path in files if str(root).encode() in path.read_bytes()] == []


def test_a_judge_of_version_0_2_goes_on_with_its_own_pairs(finished, tmp_path, monkeypatch):
    root, _ = finished
    old = shutil.copytree(root, tmp_path / "old")
    content = json.loads((old / "config.json").read_text())
    for field in session.ADDED:
        section, _, name = field.rpartition(".")
        del (content[section] if section else content)[name]
    (old / "config.json").write_text(json.dumps(content))
    judge(tiny_config(), str(old))
    assert contents(old) == contents(root)
    with monkeypatch.context() as patched:
        patched.setattr(session, "pairs_digest", lambda _: "another")
        with pytest.raises(UserError, match="the checkpoint was tuned on other pairs"):
            judge(tiny_config(), str(old))
    (old / "config.json").write_text(json.dumps(content | {"shots": 1}))
    with pytest.raises(UserError, match=r"shots \(now 0, there 1\)"):
        judge(tiny_config(), str(old))


def test_a_checkpoint_beside_a_judge_is_found_where_both_were_moved(finished, tmp_path):
    root, _ = finished
    shutil.copytree(root / "toy", tmp_path / "a/model")
    config = tiny_config(checkpoint=str(tmp_path / "a/model"), pairs="templates", train__steps=2)
    judge(config, str(tmp_path / "a/work"))
    assert str(tmp_path) not in (tmp_path / "a/work/judge/judge.json").read_text()
    assert str(tmp_path) not in (tmp_path / "a/work/config.json").read_text()
    (tmp_path / "a").rename(tmp_path / "b")
    assert load_judged(tmp_path / "b/work/judge")[0].checkpoint == "../../model"
    judge(dataclasses.replace(config, checkpoint=str(tmp_path / "b/model")), str(tmp_path / "b/work"))


def test_a_read_only_judge_is_shown_and_nothing_is_written(finished, monkeypatch, capsys):
    root, _ = finished
    monkeypatch.setattr("os.access", lambda *_, **__: False)
    before = {path: path.stat().st_mtime_ns for path in root.rglob("*")}
    assert judge(tiny_config(), str(root)) == json.loads((root / "results.json").read_text())
    assert f"{root}: is read-only, so nothing was written" in capsys.readouterr().out
    assert {path: path.stat().st_mtime_ns for path in root.rglob("*")} == before


def test_everything_is_written_and_says_where_its_labels_come_from(finished):
    root, results = finished
    assert (root / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert results["source"] == "template pairs"
    assert "tuned on template pairs" in (root / "results.md").read_text()
    assert len(results["arms"]) == 2
    best = max(results["arms"], key=lambda arm: (arm["dev_accuracy"], arm["dev_auc"], -arm["step"]))
    assert results["arms"][results["chosen"]] == best
    assert results["auc_dev"] == pytest.approx(best["dev_auc"], abs=0.01), "by one prompt as by all of them at once"
    assert results["format"] == 1
    assert results["slices"][0]["n"] == results["counts"]["test"]["pairs"]
    frozen = load_judged(root / "judge")[1]
    size = sum(np.asarray(leaf).size for leaf in jax.tree.leaves(frozen.params))
    assert results["parameters"] == {"LATTEScore's judge": size}
    assert f"| parameters |  |  | {size / 1e6:.1f} M |" in (root / "results.md").read_text()


def test_every_figure_is_that_of_the_judge_asked_again(finished, tmp_path, monkeypatch):
    """With what may change after the tuning: encoders, precision, pairs without an error."""
    root, before = finished
    again, given = shutil.copytree(root, tmp_path / "work"), {}
    changes = {"encoder": "small", "bertscore_encoder": "large", "exact": "exclude", "threshold__precision": 0.33}
    config, rng = tiny_config(**changes), np.random.default_rng(0)

    def baseline(encoders, own, parts):
        given.update(encoders=encoders, own=own, scores=rng.random(len(parts.test)))
        return {"lr": (given["scores"], 1_700_000)}

    monkeypatch.setattr(session.baselines, "baseline_scores", baseline)
    monkeypatch.setattr(
        session, "write_curves", lambda path, classifiers, labels: given.update(drawn=(classifiers, labels))
    )
    results = judge(config, str(again))
    assert given["encoders"] == ("large", "small")
    assert given["own"] == again / "toy"
    made, frozen = load_judged(again / "judge")
    assert (made.exact, made.source) == ("exclude", "template pairs")
    parts = divide(read_pairs(root / "pairs.tsv"), config.split.ratio, config.split.seed, "")

    def ask(prompt, pairs, wording=made.wording):
        return Asker(frozen, prompt, wording, made.labels).scores([pair.texts for pair in pairs])

    yes, (dev, test) = preserved_of(parts.test), (ask(made.prompt, pairs) for pairs in (parts.dev, parts.test))
    assert results["auc_dev"] == pytest.approx(counted_auc(dev, preserved_of(parts.dev)))
    assert results["auc_test"] == pytest.approx(counted_auc(test, yes))
    arms, best = results["arms"], results["chosen"]
    assert arms[best]["auc_test"] == pytest.approx(results["auc_test"])
    assert [(arm["seed"], arm["lr"]) for arm in arms] == [(0, 0.3), (1, 0.3)]
    texts = [text for pair in parts.train for text in pair.texts]
    first = initial_prompts(frozen, [0, 1], config.prompt, made.labels, texts)
    assert results["auc_test_before_tuning"] == pytest.approx(counted_auc(ask(first[best], parts.test), yes))
    asked = ask(first[0][:0], parts.test, toy_wording("meaning"))
    assert results["auc_test_with_the_question"] == pytest.approx(counted_auc(asked, yes))
    found = choose_threshold(dev, preserved_of(parts.dev), 0.33)
    assert made.threshold == pytest.approx(found.value, abs=1e-6)
    assert results["threshold"]["precision"] == found.precision != before["threshold"]["precision"]
    for row in results["slices"]:
        kind = row["slice"].removeprefix("kind ")
        chosen = [i for i, p in enumerate(parts.test) if row["slice"] == "all" or p.preserved or p.kind == kind]
        for name, scores in (("lr", given["scores"]), ("LATTEScore's judge", test)):
            assert row["auc"][name]["value"] == pytest.approx(counted_auc(scores[chosen], yes[chosen]))
    assert {row["slice"] for row in results["slices"]} == {"all", *(f"kind {p.kind}" for p in parts.test if p.kind)}
    assert list(results["slices"][0]["auc"]) == ["LATTEScore's judge", "lr"]
    assert results["parameters"]["lr"] == 1_700_000
    whole = [*parts.train, *parts.dev, *parts.test]
    assert {name: of["pairs"] for name, of in results["labels"].items()} == Counter(pair.rated for pair in whole)
    np.testing.assert_array_equal(given["drawn"][1], yes)
    np.testing.assert_allclose(given["drawn"][0]["LATTEScore's judge"], test, atol=1e-6)


def test_a_second_file_is_read_with_its_labels_and_its_references_train_nothing(finished, tmp_path, monkeypatch):
    root, _ = finished
    pairs, kept = read_pairs(root / "pairs.tsv"), {}
    second = [dataclasses.replace(p, rated=str(int(p.preserved)), kind="") for p in [*pairs[:15], *toy_pairs(9, 9)]]
    (tmp_path / "second.tsv").write_text(write_pairs(second))
    config = tiny_config(test=str(tmp_path / "second.tsv"))
    frozen = load_judged(root / "judge")[1]
    monkeypatch.setattr(session, "frozen_model", lambda *_: frozen)
    monkeypatch.setattr(session, "tune", lambda *_: None)
    monkeypatch.setattr(session, "to_markdown", lambda _: "")
    monkeypatch.setattr(session, "finish", lambda config, task, *_: kept.update(task=task, second=_[-1]))
    judge(config, str(tmp_path / "work"), "preserved")
    before, tested = kept["second"]
    assert [(p.reference, p.preserved) for p in tested] == [(p.reference, p.preserved) for p in second]
    assert before == divide(pairs, config.split.ratio, config.split.seed, "")
    parts, references = kept["task"].parts, {p.reference for p in second}
    for name in ("train", "dev"):
        assert getattr(parts, name) == [p for p in getattr(before, name) if p.reference not in references]
    assert (parts.test, parts.train == before.train) == (before.test, False)
    assert kept["task"].digest == pairs_digest([*pairs, *tested])


def test_the_frozen_model_is_as_configured(finished):
    workdir = Workdir(epath.Path(finished[0]))
    for dtype, stored, remat, keep in (
        ("bfloat16", "float32", True, "nothing"),
        ("float32", "bfloat16", False, "products"),
    ):
        config = tiny_config(dtype=dtype, param_dtype=stored, model__remat=remat, model__keep=keep)
        frozen = frozen_model(config, workdir)
        assert (frozen.model.dtype, frozen.model.remat, frozen.model.keep) == (dtype, remat, keep)
        assert frozen.params["backbone"]["shared"]["embedding"].dtype == stored


def test_each_baseline_may_have_an_encoder_of_its_own(finished):
    toy, parts = finished[0] / "toy", divide(toy_pairs(60, 3), (0.6, 0.2, 0.2), 0, "pairs")
    both, alone = (baseline_scores(encoders, toy, parts) for encoders in (("own", "own"), ("", str(toy))))
    assert list(both) == ["meaning[lr-bertscore]", "meaning[lr-similarity]"]
    assert list(alone) == ["meaning[lr-similarity]"]
    np.testing.assert_allclose(both["meaning[lr-similarity]"][0], alone["meaning[lr-similarity]"][0], atol=1e-6)
    whole = finished[1]["parameters"]["LATTEScore's judge"]
    assert 0 < both["meaning[lr-similarity]"][1] < whole  # the toy without its decoder
    assert both["meaning[lr-bertscore]"][0].shape == (len(parts.test),)


@pytest.mark.slow
def test_killed_while_tuning_and_while_scoring_it_ends_with_the_same_bytes(finished, tmp_path, monkeypatch):
    root, _ = finished
    again = tmp_path / "work"
    with monkeypatch.context() as patched:
        patched.setattr(tune.PairBatches, "__call__", dies(tune.PairBatches.__call__, after=3))
        with pytest.raises(KeyboardInterrupt):
            judge(tiny_config(), str(again))
    with monkeypatch.context() as patched:  # on the dev part, which is scored after the tuning
        patched.setattr(Asker, "scores", dies(Asker.scores, after=0))
        with pytest.raises(KeyboardInterrupt):
            judge(tiny_config(), str(again))
    assert not (again / "judge").exists()
    assert not (again / "results.json").exists()
    judge(tiny_config(), str(again))
    assert contents(again) == contents(root)
    judge(tiny_config(), str(again))  # once more changes nothing
    assert contents(again) == contents(root)


def test_terminated_between_two_records_it_ends_with_the_same_bytes(finished, tmp_path, monkeypatch):
    root, _ = finished
    again, calls, whole = tmp_path / "work", [], tune.PairBatches.__call__

    def terminated(*args):
        calls.append(args)
        if len(calls) == 3:  # before the third step
            signal.raise_signal(signal.SIGTERM)
        return whole(*args)

    with monkeypatch.context() as patched:
        patched.setattr(tune.PairBatches, "__call__", terminated)
        with pytest.raises(Terminated):
            judge(tiny_config(), str(again))
    every = tiny_config().train
    assert len(calls) % every.eval_every, "no line is logged at this step"
    assert len(calls) % every.save_every, "no line is logged at this step"
    judge(tiny_config(), str(again))
    assert contents(again) == contents(root)
    assert logged(again) == logged(root)


def logged(root):
    """Each record of metrics.jsonl without what depends on the machine's speed."""
    rows = map(json.loads, (root / "metrics.jsonl").read_text().splitlines())
    return [{name: value for name, value in row.items() if name == "step" or "/" in name} for row in rows]


def dies(whole, after):
    """The same method, until it was called some times."""
    calls = []

    def method(*args):
        calls.append(args)
        if len(calls) > after:
            raise KeyboardInterrupt
        return whole(*args)

    return method


def test_a_score_that_is_killed_writes_nothing_and_then_the_same(finished, tmp_path, monkeypatch):
    root, _ = finished
    file = tmp_path / "out.csv"
    said = [f"the boy saw {n} houses in {place}" for n in ("two", "four") for place in ("rome", "paris")]
    file.write_text("target,prediction\n" + "".join(f"{said[0]},{text}\n" for text in said))

    def score(name, status=0):
        out, rows = tmp_path / f"{name}.json", tmp_path / f"{name}.jsonl"
        flags = ["--mode=free_running", "--metrics=wer,lattescore", f"--judge={root / 'judge'}"]
        assert main(["score", str(file), *flags, f"--json={out}", f"--rows={rows}"]) == status
        return None if status else (out.read_bytes(), rows.read_bytes())

    whole = score("whole")
    with monkeypatch.context() as patched:
        patched.setattr(Asker, "scores", dies(Asker.scores, after=0))
        score("again", status=130)
    assert not list(tmp_path.glob("again*"))
    assert score("again") == whole


def test_a_workdir_of_other_settings_or_another_command_is_refused(finished, tmp_path):
    root, _ = finished
    with pytest.raises(UserError, match=r"belongs to another configuration.*prompt\.length \(now 4, there 5\)"):
        judge(tiny_config(prompt__length=4), str(root))
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UserError, match="holds a run of another command"):
        judge(tiny_config(), str(tmp_path))


def test_scores_of_the_judge_read_again_are_those_it_was_tested_with(finished):
    root, results = finished
    made, frozen = load_judged(root / "judge")
    metric = LatteScore(made, frozen)
    asker = Asker(frozen, made.prompt, made.wording, made.labels)
    pairs = [("the boy saw two houses in rome", f"the boy saw {n} houses in rome") for n in ("two", "five", "four")]
    s = asker.scores(pairs)
    rows = metric.statistics([hypothesis for _, hypothesis in pairs], [reference for reference, _ in pairs])
    np.testing.assert_array_equal(rows[0], [1, 1, 1])  # no error: not asked
    np.testing.assert_allclose(rows[1:, 1], s[1:], atol=1e-6)
    np.testing.assert_array_equal(rows[:, 0] > 0, [True, *(s[1:] >= results["threshold"]["value"])])
    bound = LatteScore(dataclasses.replace(made, threshold=float(s[1])), frozen)
    assert bound.statistics([pairs[1][1]], [pairs[1][0]])[0, 0] == 1, "a score at the threshold is accepted"
    above = LatteScore(dataclasses.replace(made, threshold=float(np.nextafter(s[1], 2))), frozen)
    assert above.statistics([pairs[1][1]], [pairs[1][0]])[0, 0] == 0, "and one below it is not, whatever the judge"
    texts, others = [hypothesis for _, hypothesis in pairs], ["the girl sold two houses in paris"] * 3
    table = metric.pairwise(texts, [pairs[0][0], others[0]])
    np.testing.assert_allclose(table[:, 0], rows, atol=1e-6)
    np.testing.assert_allclose(table[:, 1], metric.statistics(texts, others), atol=1e-6)
    assert metric.corpus(rows.sum(0))[1] == pytest.approx(100 * (1 + s[1:].sum()) / 3, abs=1e-4)


def test_speakers_are_of_the_test_part_with_and_without_errors(tmp_path):
    right, wrong = Pair("a b c d e", "a b c d e", True, speaker="S"), Pair("f g h i j", "f g", False, speaker="S")
    texts = [f"the man number {n} went into the old house" for n in range(12)]
    (tmp_path / "texts.txt").write_text("\n".join(texts))
    test, train = ([Pair(text, "x", False) for text in some] for some in (texts[:4], texts[4:]))
    asked = []

    def scores(pairs):
        asked.extend(pairs)
        return np.zeros(len(pairs))

    config = tiny_config(sentences=str(tmp_path / "texts.txt"), edits__speakers=3)
    parts = Parts(train, [], [wrong], 1, [right], [])
    assert speakers(config, parts, scores, 0.5, "human labels")["speakers"][0]["n"] == 2
    assert asked == [wrong]
    assert speakers(config, Parts(train, [], test, 0, [], []), scores, 0.5, "human labels") is None
    made = speakers(config, Parts(train, [], test, 0, [], []), scores, 0.5, "controlled edits")["speakers"]
    assert [line["name"] for line in made] == ["S1", "S2", "S3"]
    assert {pair.reference for pair in asked[1:]} <= set(texts[:4])


def test_sentences_are_the_filled_lines_of_a_file(tmp_path):
    """As editors of Windows write it: with a byte order mark and line ends of two characters."""
    path = tmp_path / "texts.txt"
    config = tiny_config(sentences=str(path))
    path.write_bytes("\ufeffOne two.\r\n\r\n  \r\nAn élan.\r\nFour".encode())
    assert sentences_of(config) == ["One two.", "An élan.", "Four"]
    path.write_bytes("élan".encode("latin-1"))
    with pytest.raises(UserError, match=r"texts\.txt: cannot be read as UTF-8 text, a sentence a line"):
        sentences_of(config)
    assert sentences_of(tiny_config()) == list(sentences(1000))


def test_controlled_edits_have_settings_and_a_seed_of_their_own(tmp_path):
    texts = list(sentences(30))
    (tmp_path / "texts.txt").write_text("\n".join(texts))
    edits = {"edits__per_sentence": 3, "edits__preserved": 0.7, "edits__seed": 5, "split__seed": 6, "toy__seed": 7}
    config = tiny_config(pairs="edits", sentences=str(tmp_path / "texts.txt"), **edits)
    made, source = labelled_pairs(config, "", types.SimpleNamespace(root=tmp_path))
    assert source == "controlled edits"
    assert made == make_pairs(texts, per_sentence=3, preserved=0.7, seed=5) == read_pairs(tmp_path / "pairs.tsv")


def test_the_toys_attention_begins_as_that_of_a_t5_with_smaller_queries(finished):
    """By the spread of weights, which four steps hardly change; q of T5 begins with (width * head width) ** -0.5."""
    tensors, (width, inner, of_head) = read_tensors(finished[0] / "toy"), (32, 32, 8)
    spread = {"q": (width * of_head) ** -0.5 / of_head**0.5, "k": width**-0.5, "v": width**-0.5, "o": inner**-0.5}
    for name, expected in spread.items():
        kernels = [values.ravel() for key, values in tensors.items() if key.endswith(f"Attention.{name}.weight")]
        assert len(kernels) == 6
        assert np.concatenate(kernels).std() == pytest.approx(expected, rel=0.1), name


def test_a_damaged_card_of_the_toy_is_written_again_and_lost_checksums_are_refused(finished, tmp_path):
    """`SHA256SUMS` does not cover the card, so nothing else notices."""
    shutil.copytree(finished[0], tmp_path / "work")
    card = tmp_path / "work/toy/README.md"
    whole = card.read_bytes()
    for damage in (lambda: card.write_bytes(whole[:20]), card.unlink):
        damage()
        frozen_model(tiny_config(), Workdir(epath.Path(tmp_path / "work")))
        assert card.read_bytes() == whole
    card.with_name("SHA256SUMS").unlink()
    with pytest.raises(UserError, match=r"toy: has no SHA256SUMS; remove the folder"):
        frozen_model(tiny_config(), Workdir(epath.Path(tmp_path / "work")))


def test_kernels_and_embeddings_alone_are_kept_in_bfloat16(finished):
    """Norms and relative positions keep their digits."""
    whole, low = (flatten(load_frozen(finished[0] / "toy", "float32", kind).params) for kind in ("float32", "bfloat16"))
    assert {path.rpartition("/")[2] for path in whole} == {"kernel", "embedding", "scale"}
    for path, values in whole.items():
        kind = "float32" if path.endswith(("scale", "relative/embedding")) else "bfloat16"
        assert low[path].dtype == kind, path
        np.testing.assert_array_equal(np.asarray(low[path]), np.asarray(values).astype(kind), path)


def test_blank_sides_are_lost_and_exact_ones_may_be_left_out(finished):
    root, _ = finished
    made, frozen = load_judged(root / "judge")
    metric = LatteScore(made, frozen)
    rows = metric.statistics(["", "the boy", "The boy!"], ["the boy", " . ", "the boy"])
    np.testing.assert_array_equal(rows, [[0, 0, 1], [0, 0, 1], [1, 1, 1]])
    assert any("2 pairs with a blank side" in note for note in metric.notes())
    assert any("tuned on template pairs" in note for note in metric.notes())
    assert not any("threshold" in note for note in metric.notes())
    high = LatteScore(made.__class__(**{**vars(made), "threshold": 1.0}), frozen)
    _, score, _ = high.statistics(["a cat"], ["the boy"])[0]
    assert any(f"threshold of 1.000 (the highest score is {score:.3f})" in note for note in high.notes())
    without = LatteScore(made.__class__(**{**vars(made), "exact": "exclude"}), frozen)
    np.testing.assert_array_equal(without.statistics(["The boy!"], ["the boy"]), [[0, 0, 0]])


def test_score_prints_it_with_its_signature_by_subject_and_by_row(finished, tmp_path, printed_by):
    root, _ = finished
    file = tmp_path / "out.csv"
    file.write_text(
        "target,prediction,subject\nthe boy saw two houses in rome,the boy saw two houses in rome,A\n"
        "the boy saw two houses in rome,a boy found two houses in rome,A\n"
        "the girl sold four houses in paris,the girl sold four four houses in paris,B\n"
    )
    out, rows = tmp_path / "out.json", tmp_path / "rows.jsonl"
    flags = ["--metrics=wer,lattescore", f"--judge={root / 'judge'}", "--by=subject", f"--rows={rows}"]
    printed = printed_by(["score", str(file), "--mode=free_running", *flags, f"--json={out}", "--signatures"])
    (cell,) = json.loads(out.read_text())["cells"]
    assert cell["metrics"]["lattescore"]["signature"].startswith("judge:toy[sha256:")
    assert "source:template-pairs" in cell["metrics"]["lattescore"]["signature"]
    assert "tuned on template pairs, not on people's ratings" in printed
    by_row = [json.loads(line) for line in rows.read_text().splitlines()]
    means = [row["figures"]["lattescore-mean"] for row in by_row]
    assert means[0] == 100
    assert cell["by_subject"]["A"]["lattescore-mean"] == pytest.approx(np.mean(means[:2]))
    assert cell["by_subject"]["B"]["rows"] == 1
    for row in cell["by_subject"].values():
        assert row["accepted"] == {"word_accuracy": row["wer"] <= 20, "latte": row["lattescore"] >= 70}
    assert cell["by_subject"]["A"]["accepted"]["word_accuracy"]  # two of fourteen words are wrong
    assert "accepted by latte" in " ".join(printed.split())
    assert cell["metrics"]["lattescore-mean"]["value"] == pytest.approx(np.mean(means))


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--metrics=lattescore"], "lattescore needs --judge=DIR/judge"),
        (["--metrics=bleu", "--judge=x"], "--judge is for lattescore"),
        (["--metrics=bleu", "--truncate"], "--truncate is for lattescore"),
        (["--metrics=bertscore"], "bertscore needs --encoder"),
        (["--metrics=lattescor"], "did you mean 'lattescore'"),
        (["--metrics=lattescore", "--judge=nowhere"], "there is no such file"),
    ],
)
def test_flags_that_do_not_belong_together(flags, message, tmp_path, refused):
    assert message in refused(["score", str(tmp_path / "none.csv"), *flags])


@pytest.mark.parametrize("name", HOSTILE)
def test_a_spoilt_judge_is_refused_with_its_file(name, judged, refused):
    spoil, message = HOSTILE[name]
    spoil(judged)
    assert re.search(r"judge|nowhere", refused_by_score(judged, message, refused))


def refused_by_score(judged, message, refused, said="the girl sold two houses in rome"):
    """One sentence, which is returned, and status 2, and nothing written."""
    file, out = judged.parent / "out.csv", judged.parent / "out.json"
    file.write_text(f"target,prediction\nthe boy saw two houses in rome,{said}\n")
    flags = ["--mode=free_running", "--metrics=lattescore", f"--judge={judged}", f"--json={out}"]
    told = refused(["score", str(file), *flags])
    assert told.startswith("eeg2text score: ")
    assert message in told
    assert not out.exists()
    return told.removeprefix("eeg2text score: ")


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        (np.full((5, 32), np.nan, np.float32), "numbers that are not finite"),
        (np.zeros((5,), np.float32), "expected one tensor"),
        (np.zeros((0, 32), np.float32), "expected one tensor"),
        (np.zeros((5, 32), np.float16), "expected one tensor"),
        (np.ones((5, 32), np.float32), "another SHA-256"),
    ],
)
def test_a_spoilt_prompt_is_refused(prompt, message, judged, refused):
    write_safetensors(judged / "prompt.safetensors", {"prompt": prompt}, {})
    refused_by_score(judged, message, refused)


def test_long_pairs_are_named_or_cut_alike(finished, judged, refused):
    long = " ".join(["the boy"] * 300)
    refused_by_score(judged, "the model takes at most 507", refused, said=long)
    made, frozen = load_judged(finished[0] / "judge")
    with pytest.raises(UserError, match=r"row 2 .* tokens, but the model takes at most 507"):
        Asker(frozen, made.prompt, made.wording, made.labels).scores([("a", "b"), (long, long)])
    cutting = Asker(frozen, made.prompt, made.wording, made.labels, truncate=True)
    assert cutting.scores([(long, long)]).shape == (1,)
    assert cutting.encoder.cut == 1
    assert LatteScore(made, frozen, truncate=True).notes()


def test_initial_prompts_are_tokens_of_the_pairs(finished):
    root, _ = finished
    _, frozen = load_judged(root / "judge")
    labels = read_labels(("yes", "no"), frozen.tokenizer)
    texts = ["boy boy boy girl girl", "rome"]
    words = frozen.tokenizer.convert_tokens_to_ids(["boy", "girl", "rome"])
    assert frequent_tokens(frozen, 5000, texts).tolist() == words
    assert frequent_tokens(frozen, 2, texts).tolist() == words[:2]
    table = np.asarray(frozen.params["backbone"]["shared"]["embedding"])

    def prompts(init, seeds=(0,), population=5000):
        return initial_prompts(frozen, seeds, PromptSettings(3, init, population, 0.0), labels, texts)

    drawn = prompts("vocabulary", [0, 1])
    assert all(any(np.array_equal(row, table[word]) for word in words) for row in drawn.reshape(-1, 32))
    named = prompts("labels")[0]
    np.testing.assert_array_equal(named[:2], table[[labels.ids[0][0], labels.ids[1][0]]])
    assert np.abs(prompts("uniform")).max() <= 0.5
    with pytest.raises(UserError, match=r"prompt\.population is .* gives only 2 tokens"):
        prompts("vocabulary", population=2)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("yes", "yes"), "two different words"),
        (("yes", "quite"), "has no token for 'quite'"),
        (("yes no", "yes"), "one begins with the tokens of the other"),
    ],
)
def test_labels_that_cannot_be_told_apart_are_refused(words, message, finished):
    root, _ = finished
    with pytest.raises(UserError, match=message):
        read_labels(words, load_judged(root / "judge")[1].tokenizer)


def test_an_encoder_alone_is_no_judge(tmp_path, refused):
    (tmp_path / "config.json").write_text('{"model_type": "roberta"}')
    flags = [f"--config=configs/judge.py:checkpoint={tmp_path},pairs=templates", f"--workdir={tmp_path / 'work'}"]
    assert "encoder without a decoder" in refused(["judge", *flags, "--config.compilation_cache="])


def test_losses_are_means_between_the_steps_that_are_scored_or_saved(finished):
    config = tiny_config()
    rows = [json.loads(line) for line in (finished[0] / "metrics.jsonl").read_text().splitlines()]
    steps = [row["step"] for row in rows if any(name.startswith("loss/") for name in row)]
    every = config.train.eval_every, config.train.save_every, config.train.steps
    assert steps == [n for n in range(1, config.train.steps + 1) if any(n % k == 0 for k in every)]
    assert len(steps) < config.train.steps
