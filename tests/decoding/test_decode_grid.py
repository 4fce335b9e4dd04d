"""The grid from a study to rows of the predictions file."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ml_collections import ConfigDict
from tiny_run import study_in, tiny_settings

from eeg2text_jax.base.devices.mesh import make_mesh
from eeg2text_jax.base.errors import UserError
from eeg2text_jax.data.batches import make_batch
from eeg2text_jax.data.splits.split import sample_ids
from eeg2text_jax.data.text import encode_targets
from eeg2text_jax.instrument.predictions.file import read_predictions, write_predictions
from eeg2text_jax.runs.cells import Cell, copied_predictions, decode_grid, feed_arms, over_slices, row_fields
from eeg2text_jax.training.grid_program import make_program
from eeg2text_jax.training.sections import check_config
from eeg2text_jax.training.study import Arm, make_samples


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    short = {"text__max_tokens": 24, "decode__max_length": 6, "decode__batch_size": 4}
    settings = tiny_settings(batch__buckets=((10, 24), (20, 24)), **short)
    return study_in(tmp_path_factory.mktemp("run"), settings)


@pytest.fixture(scope="module")
def params(study):
    keys = jax.random.split(jax.random.key(0), len(study.arms))
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *[study.model.init(key) for key in keys])


@pytest.fixture(scope="module")
def predictions(study, params):
    return list(decode_grid(study, params))


def test_every_cell_and_mode_has_every_test_sample_in_order(study, predictions):
    rows = study.split.parts["test"]
    expected = [f"{study.data.subject[i]}/{study.data.sentence_id[i]}" for i in rows]
    cells = {}
    for p in predictions:
        cells.setdefault((p.train_condition, p.eval_condition, p.mode), []).append(p.sample_id)
    assert len(cells) == 8
    assert all(ids == expected for ids in cells.values())


def test_rows_carry_what_their_mode_knows(predictions):
    for p in predictions:
        assert (p.nll is None) == (p.mode == "free_running")
        assert p.mode == "free_running" or len(p.prediction_tokens) <= p.n_tokens
    assert len({p.prediction for p in predictions}) > 4


def test_rewriting_every_sentence_leaves_free_running_predictions_identical(study, params, predictions):
    rewritten = study.data.sentence[np.random.default_rng(0).permutation(len(study.data))]
    data = dataclasses.replace(study.data, sentence=rewritten)
    targets = encode_targets(study.tokenizer, rewritten, study.config.text.max_tokens)
    samples = dataclasses.replace(study.samples, data=data, targets=targets)
    again = list(decode_grid(dataclasses.replace(study, data=data, samples=samples), params))

    def free(rows):
        return [(p.sample_id, p.prediction, p.prediction_tokens) for p in rows if p.mode == "free_running"]

    assert free(again) == free(predictions)
    assert [p.reference for p in again] != [p.reference for p in predictions]
    assert [p.nll for p in again] != [p.nll for p in predictions]


@pytest.mark.parametrize("condition", ["noise", "noise_redrawn", "phase_randomized", "eeg"])
def test_arms_of_a_seed_are_tested_on_the_same_noise_and_seeds_on_others(study, condition):
    """And on what the same arms are evaluated on while they are trained, at whatever step."""
    arms = tuple(Arm(name, seed) for seed in (0, 1) for name in ("eeg", "noise"))
    rows, mesh = study.split.parts["test"][:3], make_mesh(1, 1, jax.devices()[:1])
    batch = make_batch(study.samples, rows, (20, 24), len(rows))
    fed = np.asarray(feed_arms(arms, study.arrays, condition, batch, mesh))
    np.testing.assert_array_equal(fed[::2], fed[1::2])
    assert (fed[0] != fed[2]).any() == (condition != "eeg")
    trained = tuple(Arm(condition, arm.seed) for arm in arms)
    program = dataclasses.replace(make_program(study.config, study.model, trained), mesh=mesh)
    np.testing.assert_allclose(fed, program.fed(batch, study.arrays)["features"], rtol=1e-5, atol=1e-6)


@pytest.mark.quick("drawn")
@pytest.mark.parametrize("settings", [{"num_beams": 3}, {"num_beams": 1, "do_sample": True}], ids=["beams", "drawn"])
def test_every_sample_has_its_own_hypotheses(study, params, settings):
    """The first is what one alone would be, and all are those that a sample has when it is decoded by itself."""
    config = study.config.changed({f"decode.{name}": value for name, value in settings.items()})
    one = [p for p in decode_grid(dataclasses.replace(study, config=config), params) if p.mode == "free_running"]
    both = dataclasses.replace(study, config=config.changed({"decode.num_return_sequences": 2}))
    rows = list(decode_grid(both, params))
    forced = [p for p in rows if p.mode == "teacher_forced"]
    two = [p for p in rows if p.mode == "free_running"]
    assert [p.sample_id for p in two] == [p.sample_id for p in one for _ in range(2)]
    assert [p.reference for p in two] == [p.reference for p in one for _ in range(2)]
    assert [p.hypothesis for p in two] == [0, 1] * len(one)
    assert [p.hypothesis for p in forced] == [None] * len(one)
    if not config.decode.do_sample:  # a draw has a key of its own
        assert [p.prediction_tokens for p in two[::2]] == [p.prediction_tokens for p in one]
    assert [p.prediction_tokens for p in two[1::2]] != [p.prediction_tokens for p in two[::2]]
    assert list(decode_grid(both, params, make_mesh(1, 2, jax.devices()[:2]))) == rows
    seed = dataclasses.replace(both, config=both.config.changed({"seed": 1}))
    redrawn = [p.prediction_tokens for p in decode_grid(seed, params) if p.mode == "free_running"]
    assert (redrawn == [p.prediction_tokens for p in two]) == (not config.decode.do_sample)
    chosen = study.split.parts["test"][-1:]
    split = dataclasses.replace(study.split, parts={**study.split.parts, "test": chosen})
    alone = [p for p in decode_grid(dataclasses.replace(both, split=split), params) if p.mode == "free_running"]
    name = alone[0].sample_id
    assert [p.prediction_tokens for p in alone] == [p.prediction_tokens for p in two if p.sample_id == name]


@pytest.mark.parametrize("condition", ["eeg", "prompt_only"])
def test_a_slice_holds_what_belongs_to_its_samples(study, condition):
    """Of batches of three, rounded up to rows for two devices: features, words, and texts of each arm."""
    study = dataclasses.replace(study, config=study.config.changed({"decode.batch_size": 3}))
    rows, mesh, sizes = study.split.parts["test"], make_mesh(1, 2, jax.devices()[:2]), set()
    shape = (len(study.arms), len(rows), 2)
    texts = np.arange(np.prod(shape), dtype=np.int32).reshape(shape)

    def run(fed, shared, batch):
        sizes.add(len(batch["sample_id"]))
        summed = fed["features"].sum(axis=(2, 3))  # --> [A, B]
        words = jnp.broadcast_to(shared["mask"].sum(axis=1)[None], summed.shape)
        return {"summed": summed, "words": words, "texts": fed["labels"]}

    found = over_slices(study, rows, condition, mesh, run, "test", texts)
    assert sizes == {4}
    np.testing.assert_array_equal(found["texts"], texts)
    has_recording = condition == "eeg"
    summed = [study.samples.features(int(i)).sum() * has_recording for i in rows]
    np.testing.assert_allclose(found["summed"], [summed] * len(study.arms), atol=1e-3)
    np.testing.assert_array_equal(found["words"][0], study.samples.n_words[rows] * has_recording)


def test_what_is_lent_or_copied_is_named_and_nothing_of_the_sample_itself(study):
    """Recordings lent by the sample before, texts copied from the second one before."""
    numbers, rows = np.arange(len(study.data)), study.split.parts["test"]
    samples = dataclasses.replace(study.samples, donors=numbers - 1, copies={"same_place": numbers - 2})
    lent = dataclasses.replace(study, samples=samples)
    arm, i = study.arms[0], int(rows[3])
    donor = {name: row_fields(lent, Cell(arm, name), i, "free_running")["donor"] for name in ("shuffled", "eeg")}
    assert donor == {"shuffled": study.data.sentence_id[i - 1], "eeg": None}
    copied = list(copied_predictions(lent, "same_place", rows))
    assert [(p.train_condition, p.sample_id) for p in copied] == [
        (arm.condition, study.split.names[i]) for arm in study.arms for i in rows
    ]
    for p, i in zip(copied, [*rows.tolist()] * len(study.arms), strict=True):
        assert (p.prediction, p.reference) == (study.data.sentence[i - 2], study.data.sentence[i])
        whole = (study.tokenizer(text, add_special_tokens=False)["input_ids"] for text in (p.prediction, p.reference))
        ours = (p.prediction_tokens, p.reference_tokens)
        assert all(tokens and tokens == ids[: len(tokens)] for tokens, ids in zip(ours, whole, strict=True))


def test_an_unknown_cut_is_named(study):
    config = study.config.changed({"decode.teacher_forced_cut": "middle"})
    with pytest.raises(UserError, match="'middle'; expected one of reference, authors"):
        check_config(ConfigDict(config.document))


def test_repeated_readings_keep_names_of_their_own(study, params, tmp_path):
    """A subject read a sentence twice: named as `sample_ids` does, so that the predictions file takes them."""
    index = study.data.sentence_index.copy()
    first, second = study.split.parts["test"][:2]
    subject, task = study.data.subject.copy(), study.data.task.copy()
    index[second], subject[second], task[second] = index[first], subject[first], task[first]
    data = dataclasses.replace(study.data, sentence_index=index, subject=subject, task=task)
    split = dataclasses.replace(study.split, names=sample_ids(subject, data.sentence_id))
    again = dataclasses.replace(study, data=data, split=split)
    write_predictions(tmp_path / "p.jsonl", {}, decode_grid(again, params))
    names = {p.sample_id for p in read_predictions(tmp_path / "p.jsonl").predictions}
    twice = f"{subject[first]}/{task[first]}:{index[first]}"
    assert {twice, f"{twice}#2"} <= names
    assert len(names) == len(study.split.parts["test"])


@pytest.mark.parametrize("unit", [1e-12, 1e-9, 1e12])
def test_the_unit_of_the_recordings_changes_no_prediction(study, params, predictions, unit):
    data = dataclasses.replace(study.data, features=study.data.features * np.float32(unit))
    samples = make_samples(study.config, data, study.split, study.tokenizer, study.model.pad_token)
    again = decode_grid(dataclasses.replace(study, data=data, samples=samples), params)
    one, other = ([(p.sample_id, p.prediction_tokens) for p in rows] for rows in (again, predictions))
    assert one == other


def test_cuts_are_counted_and_said(study, capsys):
    config = study.config.changed({"data.max_words": 8, "text.max_tokens": 10})
    samples = make_samples(config, study.data, study.split, study.tokenizer, study.model.pad_token)
    words = int((study.data.n_words > 8).sum())
    tokens = sum(len(ids) > 10 for ids in study.tokenizer([str(text) for text in study.data.sentence])["input_ids"])
    assert capsys.readouterr().out.splitlines() == [
        f"{words} of 120 samples have more than data.max_words=8 words (up to {study.data.n_words.max()}): further "
        "words are cut.",
        f"{tokens} of 120 sentences have more than text.max_tokens=10 tokens: as targets they are cut.",
    ]
    assert max(len(ids) for ids in samples.targets) == 10
    config = config.changed({"text.max_tokens": 2})
    with pytest.raises(UserError, match=r"text.max_tokens is 2; expected at least 3"):
        make_samples(config, study.data, study.split, study.tokenizer, study.model.pad_token)
    config = config.changed({"data.max_words": 56, "batch.buckets": ((10, 24),)})
    with pytest.raises(UserError, match=r"the widest has 10 words and a sample has \d+; add a wider bucket"):
        make_samples(config, study.data, study.split, study.tokenizer, study.model.pad_token)
