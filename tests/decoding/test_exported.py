"""An export decodes raw features as its run did: nothing of a run's decoding is lost on the way."""

import dataclasses
import json
import re

import jax
import numpy as np
import pytest
import transformers
from tiny_run import SHAPE, study_in, tiny_config

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.data.data_writer import DataWriter
from eeg2text_jax.data.source import Sample
from eeg2text_jax.decoding.settings import GenerationSpec
from eeg2text_jax.models.pretrained.folder import SUMS
from eeg2text_jax.runs.cells import decode_grid
from eeg2text_jax.runs.exported import Exported, arm_number, card_facts, load_export, write_export
from eeg2text_jax.training.sections import checked_settings
from eeg2text_jax.training.study import Arm

F = 5
SHAPES = {
    "bart": SHAPE,
    "pegasus": SHAPE,
    "t5": {"d_model": 16, "d_kv": 4, "d_ff": 16, "num_layers": 1, "num_heads": 2},
    "bert2bert": {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16,
                  "max_position_embeddings": 64},
}  # fmt: skip


def study_of(backbone: str, root):
    """A run of one arm over recordings in other units than the encoder's, ready to decode."""
    rng = np.random.default_rng(0)
    words = [f"w{i}" for i in range(30)]
    with DataWriter(root / "data.h5", F, "five numbers") as writer:
        for number in range(40):
            length = int(rng.integers(2, 11))
            features = rng.normal(4.0, 20.0, (length, F)).astype(np.float32)
            writer.add(Sample(features, " ".join(rng.choice(words, length)) + f" s{number}", "A", "NR", number))
    config = tiny_config(
        data__source=str(root / "data.h5"), data__max_words=7, grid__train_conditions=("eeg",), text__max_tokens=12,
        grid__eval_conditions=("eeg",), batch__buckets=((4, 12), (7, 12)), decode__batch_size=3, decode__max_length=7,
        decode__num_beams=2, model__encoder_layers=0, model__backbone=backbone, split__ratio=(0.5, 0.1, 0.4),
        model__prompt="w1 w2" if backbone == "t5" else "",
    )  # fmt: skip
    with config.unlocked():
        config.model.shape = SHAPES[backbone]
    return study_in(root / "run", checked_settings(config))


def telling(shapes, rng):
    """Random parameters with which what is written depends on the recording."""

    def draw(path, leaf):
        names = [key.key for key in path]
        if names[-1] == "scale":
            return 1 + rng.normal(0, 0.1, leaf.shape).astype(np.float32)
        return rng.normal(0, 2.0 if "cross_attention" in names else 0.3, leaf.shape).astype(np.float32)

    return jax.tree_util.tree_map_with_path(draw, shapes)


RUNS = [pytest.param(name, marks=[] if name in ("bart", "t5") else [pytest.mark.slow]) for name in SHAPES]


@pytest.fixture(scope="module", params=RUNS)
def run(request, tmp_path_factory):
    """Study, its free-running predictions of the test part, and its export."""
    root = tmp_path_factory.mktemp(request.param)
    study = study_of(request.param, root)
    rng = np.random.default_rng(1)
    params = telling(study.model.shapes, rng)
    rows = decode_grid(study, jax.tree.map(lambda leaf: leaf[None], params))
    texts = [row.prediction for row in rows if row.mode == "free_running"]
    write_export(study, study.arms[0], params, str(root / "export"))
    return study, texts, root / "export"


def raw(study) -> list[np.ndarray]:
    return [study.data.words(i) for i in study.split.parts["test"]]


def test_raw_features_give_what_the_run_gave(run):
    study, texts, folder = run
    exported = load_export(folder)
    assert exported.model == study.model
    assert exported.generation == GenerationSpec.from_fields(study.config.decode.fields(), study.model)
    with pytest.warns(UserWarning, match=r"recordings are cut to 7 words"):
        assert exported.decode(raw(study)) == texts
    assert len(set(texts)) > len(texts) // 2, "the model must tell its inputs apart for this to mean something"
    plain = dataclasses.replace(exported.feeding, mean=np.zeros(F, np.float32), scale=np.ones(F, np.float32))
    with pytest.warns(UserWarning, match="cut"):
        assert dataclasses.replace(exported, feeding=plain).decode(raw(study)) != texts


def test_one_padded_array_is_decoded_like_a_list(run):
    study, texts, folder = run
    chosen = [i for i, words in enumerate(raw(study)) if len(words) <= 7]
    recordings = [raw(study)[i] for i in chosen]
    padded = np.full((len(recordings), 9, F), np.nan)
    for row, words in zip(padded, recordings, strict=True):
        row[: len(words)] = words
    mask = np.arange(9) < np.array([[len(words)] for words in recordings])
    assert load_export(folder).decode(padded, mask) == [texts[i] for i in chosen]


def test_transformers_reads_the_settings_and_finds_every_tensor(run):
    study, _, folder = run
    theirs = transformers.GenerationConfig.from_pretrained(folder)
    for name in ("num_beams", "max_length", "repetition_penalty", "no_repeat_ngram_size", "length_penalty"):
        assert getattr(theirs, name) == getattr(study.config.decode, name), name
    assert theirs.decoder_start_token_id == study.model.start_token
    kind = transformers.EncoderDecoderModel if "bert" in str(folder) else transformers.AutoModelForSeq2SeqLM
    _, report = kind.from_pretrained(folder, output_loading_info=True)
    assert not any(report.values()), report


@pytest.mark.filterwarnings("ignore")  # of transformers
def test_snippets_of_the_card_run_as_they_stand(run, monkeypatch, capsys):
    _, _, folder = run
    card = (folder / "README.md").read_text()
    snippets = re.findall(r"```python\n(.*?)```", card, flags=re.DOTALL)
    assert len(snippets) == 2
    monkeypatch.chdir(folder)
    for code in snippets:
        exec(code, {})
        assert capsys.readouterr().out.splitlines()[-1].startswith("[")


@pytest.fixture
def bart(run):
    if run[0].config.model.backbone != "bart":
        pytest.skip("the same for every backbone")
    return run


def test_an_export_takes_the_arm_that_is_named_or_else_the_first_of_eeg():
    arms = tuple(Arm(*name) for name in (("noise", 0), ("eeg", 0), ("eeg", 1)))
    assert [arm_number(arms, name) for name in ("noise/0", "eeg/0", "eeg/1", "")] == [0, 1, 2, 1]
    assert arm_number(arms[:1], "") == 0


def test_a_card_has_the_scores_of_its_own_arm_alone(bart):
    study, _, _ = bart
    cells = [
        {"train_condition": train, "seed": seed, "eval_condition": "eeg", "mode": mode, "rows": 9,
         "metrics": {} if mode == "unscored" else {"wer": {"value": value, "signature": f"of {value}"}}}
        for value, (train, seed, mode) in enumerate([
            ("eeg", 1, "free_running"), ("noise", 0, "free_running"), ("eeg", 0, "free_running"),
            ("eeg", 0, "teacher_forced"), ("eeg", 0, "unscored"), ("eeg", 0, "likelihood")])
    ]  # fmt: skip
    study.workdir.results.write_text(json.dumps({"cells": cells}))
    facts = card_facts(study, Arm("eeg", 0), "x")
    study.workdir.results.unlink()
    assert [(row["mode"], row["wer"]) for row in facts.scores] == [("free_running", 2), ("teacher_forced", 3)]
    assert facts.signatures == {"wer": "of 3"}
    assert (facts.name, facts.backbone, facts.arm, facts.started_from) == ("x", "bart", "eeg, seed 0", "random weights")
    assert facts.data == f"data.h5, {len(study.split.parts['train'])} training samples"
    assert (facts.features, facts.n_features) == ("five numbers", F)
    assert (facts.split, facts.config_hash) == (study.split.digest(), study.config_digest)
    assert not any((facts.base, facts.lora, facts.int8, facts.alone, facts.encoder, facts.verdict))


@pytest.mark.filterwarnings("ignore:.* recordings are cut")
def test_drawn_texts_are_those_of_the_samples_numbers(bart):
    study, texts, folder = bart
    exported = load_export(folder)
    config = study.config.changed({"decode.do_sample": True, "decode.num_beams": 1})
    params = jax.tree.map(lambda leaf: leaf[None], exported.params)
    rows = decode_grid(dataclasses.replace(study, config=config), params)
    drawn = [row.prediction for row in rows if row.mode == "free_running"]
    drawing = GenerationSpec.from_fields(config.decode.fields(), study.model)
    exported = dataclasses.replace(exported, generation=drawing)
    assert exported.decode(raw(study), sample_ids=study.split.parts["test"]) == drawn
    assert exported.decode(raw(study)) != drawn != texts


@pytest.mark.filterwarnings("ignore:.* recordings are cut")
def test_of_several_texts_an_export_gives_the_first(bart):
    study, texts, folder = bart
    config = study.config.changed({"decode.num_return_sequences": 2})
    exported = load_export(folder)
    params = jax.tree.map(lambda leaf: leaf[None], exported.params)
    rows = [r for r in decode_grid(dataclasses.replace(study, config=config), params) if r.mode == "free_running"]
    exported = dataclasses.replace(exported, generation=exported.generation.replace(num_return_sequences=2))
    assert exported.decode(raw(study)) == [row.prediction for row in rows if row.hypothesis == 0] == texts


def test_recordings_longer_than_every_bucket_have_a_width_of_their_own(bart, monkeypatch):
    """A run makes no batch of `data.max_words` where none of its samples is so long."""
    exported = load_export(bart[2])
    exported = dataclasses.replace(exported, feeding=dataclasses.replace(exported.feeding, max_words=9))
    widths = lambda self, params, recordings, part, ids: [str(part.words)] * part.real  # noqa: E731
    monkeypatch.setattr(Exported, "_decode_batch", widths)
    assert exported.decode([np.zeros((words, F)) for words in (3, 9, 5, 8)]) == ["4", "9", "7", "9"]


def test_what_cannot_be_decoded_is_said_in_one_sentence(bart):
    exported = load_export(bart[2])
    good = np.zeros((3, F))
    cases = [
        (([np.zeros((3, F + 1))],), r"features\[0\] has shape \[3, 6\]; expected \[words, 5\]"),
        (([good, np.zeros((0, F))],), r"features\[1\] has shape \[0, 5\].*at least one word"),
        (([np.full((3, F), "x")],), r"features\[0\]: the features are text; expected numbers"),
        (([good.astype(complex)],), r"are values of type complex128; expected numbers"),
        (([np.full((3, F), np.nan)],), r"features\[0\]: the features have NaN or infinity"),
        (([np.full((3, F), 1e300)],), r"features\[0\]: the features have NaN or infinity"),
        ((good,), r"features has shape \[3, 5\]; expected a list"),
        ((good[None],), r"need mask \[N, W\]"),
        ((good[None], np.ones((1, 4), bool)), r"mask is bool \[1, 4\]; expected bool \[1, 3\]"),
        ((good[None], np.ones((1, 3))), "mask is float64"),
        ((good[None], np.array([[True, False, True]])), "a real word after a padded one"),
        (([good], np.ones((1, 3), bool)), "mask goes with one array"),
    ]
    for arguments, message in cases:
        with pytest.raises(UserError, match=message):
            exported.decode(*arguments)
    with pytest.raises(UserError, match=r"sample_ids has shape \[2\]"):
        exported.decode([good], sample_ids=[1, 2])


def copied(folder, place):
    place.mkdir()
    for path in folder.iterdir():
        (place / path.name).write_bytes(path.read_bytes())
    return place


def test_a_flipped_byte_of_any_file_is_refused_by_name(bart, tmp_path):
    names = sorted(path.name for path in bart[2].iterdir())
    assert {"eeg2text.json", "eeg_encoder.safetensors", "generation_config.json", SUMS} < set(names)
    rng = np.random.default_rng(0)
    for name in names:
        folder = copied(bart[2], tmp_path / name)
        content = bytearray((folder / name).read_bytes())
        content[rng.integers(len(content))] ^= 1
        (folder / name).write_bytes(content)
        if name == "README.md":  # people write in it
            load_export(folder)
            continue
        with pytest.raises(UserError, match=re.escape(str(folder))) as refused:
            load_export(folder)
        assert name in str(refused.value), "the file is named"


def test_a_missing_file_is_refused_by_name(bart, tmp_path):
    for name in ("eeg2text.json", "eeg_encoder.safetensors", "generation_config.json", "tokenizer.json", SUMS):
        folder = copied(bart[2], tmp_path / name)
        (folder / name).unlink()
        with pytest.raises(UserError, match=re.escape(name)):
            load_export(folder)
    (folder / "eeg2text.json").unlink()  # with the sums gone, too: as version 0.1.0 exported
    with pytest.raises(UserError, match=r"has no eeg2text.json.*export the run again"):
        load_export(folder)
