"""Every field of configs/default.py refuses what it cannot be, before anything is made."""

import ast
import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from ml_collections import ConfigDict
from tiny_run import tiny_config
from wrong_field import DEFAULT

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.base.kinds import is_nested
from eeg2text_jax.instrument.workdir import PLACES, REMOVED, RENAMED, place_names
from eeg2text_jax.judge import fields as judge_ranges
from eeg2text_jax.runs import opening
from eeg2text_jax.training import conditions
from eeg2text_jax.training.conditions import condition
from eeg2text_jax.training.configuration import load_config, parse_config
from eeg2text_jax.training.sections import RANGES, check_config, checked_settings, fields, notes

NAN, INF, HUGE = float("nan"), float("inf"), 10**13
# Wrong for every field whose default is of the type ...
WRONG = {
    bool: ["maybe", None, 2, 0.5, NAN, [True]],
    int: ["many", None, 1.5, NAN, INF, HUGE, True, [1]],
    float: ["much", None, NAN, INF, HUGE, True, [0.5]],
    str: [None, 3, 0.5, NAN, True, ["a"], "two\nlines", "a\0b"],
    tuple: [None, 3, NAN, "abc", [None], [[[]]], [NAN], [[1.5, "x", 2]]],
}
# ... and what else is wrong, but where it is said to be right.
ZERO = {
    "split.gap", "data.synthetic.drift", "seed", "data.synthetic.signal", "data.synthetic.seed",
    "data.table.word_column", "split.seed",
    "model.encoder_layers", "model.encoder_width", "model.dropout", "optim.warmup_steps", "optim.weight_decay",
    "model.lora.dropout", "model.waves.overlap",
    "optim.lr_end", "train.patience", "optim.decay_epochs", "train.epochs", "train.eval_epochs", "train.save_epochs",
    "step_one.epochs", "pretrain.series.hidden",
    *(f"pretrain.{stage}.{name}" for stage in ("snapshot", "series")
      for name in ("steps", "epochs", "lr_end", "warmup_steps", "eval_epochs", "patience")),
    "optim.momentum", "optim.grad_clip", "train.label_smoothing", "step_one.steps", "parallel.wave",
    "decode.no_repeat_ngram_size", "decode.length_penalty", "decode.compactions", "decode.top_k",
    "audit.margin", "metrics.layer", "contrastive.layer", "retrieval.margin",
    "data.raw.highpass", "data.raw.lowpass", "data.raw.notch", "data.raw.resample", "data.raw.margin",
    "data.raw.seconds_per_character",
    "data.fmri.lag_tr", "data.synthetic_fmri.signal", "data.synthetic_fmri.lag_tr", "data.synthetic_fmri.seed",
    "data.synthetic_fmri.drift",
    "data.fmri.detrend", "data.fmri.mask",
}  # fmt: skip
NEGATIVE = {"decode.length_penalty", "metrics.layer", "contrastive.layer"}
EMPTY = {
    "data.table.feature_columns", "data.recordings.exclude", "data.raw.channels", "data.raw.exclude", "data.raw.skip",
    "metrics.names", "audit.secondary", "data.fmri.tasks", "data.fmri.same_text",
}  # fmt: skip
FREE_TEXT = {
    "compilation_cache", "data.source", "data.table.features_are", "split.path", "text.tokenizer", "model.checkpoint",
    "text.template", "model.prompt", "data.columns.features", "data.columns.sentence", "data.columns.subject",
    "data.columns.task",
    *(f"data.columns.{name}" for name in ("recording", "onset", "duration", "order")),
    "data.columns.sentence_index", "data.columns.word", "data.columns.mask", "data.columns.features_are",
    "data.raw.begin", "data.raw.end", "data.raw.text", "data.raw.texts", "data.raw.word", "data.raw.names",
    "data.raw.task", "data.raw.montage", "data.raw.reference", "data.fmri.transcripts", "data.fmri.exclude",
    "metrics.encoder", "model.encoder_checkpoint", "model.decoder_prompt", "model.waves.positions",
    "data.synthetic_fmri.folder", "metrics.judge", "contrastive.text",
}  # fmt: skip
MORE = {  # out of range in a way of their own
    **{f"data.columns.{name}": [""] for name in ("features", "sentence", "word")},
    "data.raw.text": [""],
    "data.synthetic_fmri.grid": [[64, 64], [0, 1, 1]],
    "data.fmri.grid": [[64, 64], [0, 1, 1], [4, 4, 4, 4]],
    "data.fmri.same_text": [[["alone"]], [["a", "b"], "c"]],
    "data.raw.texts": ["az://bucket/texts.tsv"],
    "data.raw.bands": [[[8, 4]], [[4]], [[0, 4]]],
    "data.source": ["", "hf://bucket/data.h5"],
    "compilation_cache": ["gs://bucket/cache"],
    "split.path": ["https://bucket/split.json"],
    "text.tokenizer": ["az://bucket/tokenizer"],
    "model.checkpoint": ["az://bucket/bart"],
    "model.dropout": [1, 1.5],
    "model.dtype": ["float16"],
    "model.shape": [None, 3, "d_model", [1], {"d_model": NAN}, {"d_model": {"more": 1}}],
    "optim.momentum": [1.0],
    "optim.decay_rate": [1.5],
    "train.label_smoothing": [1, 2],
    "text.max_tokens": [1],
    "text.vocab_size": [259],
    "metrics.names": [["bleu"], ["bertscore", "bertscore"]],
    "metrics.layer": [-2],
    "contrastive.layer": [-2],
    "contrastive.text": ["az://bucket/gpt2"],
    "contrastive.hashed": [7],
    "audit.secondary": [["wer"], ["similarity", "similarity"]],
    "decode.max_length": [1],
    "decode.top_p": [1.5],
    "data.synthetic.signal": [1.01],
    "data.synthetic.vocabulary": [19],
    "data.recordings.compat": ["wangji"],
    "data.recordings.bands": [["t1", "t1"], ["t3"]],
    "data.recordings.exclude": [[""], ["A", "A"], [3]],
    "data.table.feature_columns": [[-1], [0.5], [1, 1]],
    "split.ratio": [[0.8, 0.2], [0.8, 0.3, 0.1], [0.6, 0.2, 0.1], [1, 0, 0], [1.2, -0.1, -0.1],
                    [0.8, 0.1, NAN], ["a", "b", "c"]],
    "batch.buckets": [[[9, 9, 9]], [[0, 9]], [[9, 9], [8, 8]], [[8, 9], [9, 8]], [[9, 9], [9, 9]], [[1.5, 2]]],
    "grid.seeds": [[0, 1.5], [-1], [0, 0], [True], ["a"]],
    "grid.train_conditions": [["egg"], ["eeg", "eeg"], [3]],
    "grid.eval_conditions": [["label_shuffle"], ["eeg", "eeg"], ["gaze"]],
    "train.tracker": ["tensorboard", "wandb:", "wandb: a"],
    "train.profile": ["3", "0:2", "4:3", "a:b", "1:2:3", "-1:2"],
    "parallel.mesh": [[1], [1, -1], [1, 0.5], [0, 0, 0]],
}  # fmt: skip


def wrong_values() -> dict[str, list]:
    """The values to try, by field; of the fields as `configs/default.py` has them, not as `RANGES` does."""
    found = {}
    for name, default in fields(load_config(DEFAULT)):
        kind = type(default)
        values = [*WRONG.get(kind, []), *MORE.get(name, [])]
        if kind in (int, float):
            values += [] if name in ZERO else [kind(0)]
            values += [] if name in NEGATIVE else [kind(-1)]
        if kind is str and name not in FREE_TEXT:
            values.append("nonsense")
        if kind is tuple and name not in EMPTY:
            values.append([])
        found[name] = values
    return found


CASES = wrong_values()
DEFAULTS = dict(fields(load_config(DEFAULT)))


def test_every_field_has_a_range_and_five_wrong_values_or_more():
    assert sorted(RANGES) == sorted(CASES)
    assert [name for name, values in CASES.items() if len(values) < 5] == []
    assert all(name in CASES for name in (*ZERO, *NEGATIVE, *EMPTY, *FREE_TEXT, *MORE))
    check_config(load_config(DEFAULT))


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("both", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["one way", "both ways"])
def test_a_wrong_value_ends_in_one_sentence_and_makes_nothing(both, name, tmp_path, monkeypatch, refused):
    """As a configuration file has it, and where a command line can say it, from there; or one of them in turn."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(opening, "initialize", lambda _: pytest.fail("a wrong value was accepted"))
    # absl makes a text of every default of a flag; of a configuration this took most of a command's start.
    monkeypatch.setattr(ConfigDict, "__str__", lambda _: pytest.fail("the whole configuration was made a text"))
    file = Path(__file__).with_name("wrong_field.py")
    for n, value in enumerate(CASES[name]):
        commands = [[f"--config={file}:{json.dumps({'field': name, 'value': value})}"]]
        if sayable(name, value):
            commands.append([f"--config={DEFAULT}", f"--config.{name}={value}"])
        for command in commands if both else [commands[n % len(commands)]]:
            begun = time.process_time()
            sentence = refused(["run", *command, "--workdir=made"])
            assert time.process_time() - begun < 5
            assert sentence.startswith(f"eeg2text run: {name} is "), sentence
            assert f"; expected {RANGES[name].expected}." in sentence
            shown = value if not isinstance(value, list | dict) else ""
            assert str(shown) in sentence or repr(shown) in sentence, sentence
            assert not list(tmp_path.iterdir())


def sayable(name: str, value: object) -> bool:
    """Whether a command line means this value, and not another one, by its text."""
    if value is None or isinstance(value, bool | dict) or (isinstance(value, str) and not value.isprintable()):
        return False
    default = DEFAULTS[name]
    if isinstance(default, str):
        return isinstance(value, str)
    if isinstance(default, bool):
        return True
    if isinstance(default, tuple):
        return isinstance(value, list) and not math.isnan(sum(v for v in value if isinstance(v, float)))
    return not isinstance(value, list | dict) and name != "model.shape"


def test_a_mistake_costs_a_process_less_than_five_seconds(tmp_path):
    program = """if True:
        import sys
        from eeg2text_jax.__main__ import start
        status = start()
        sys.exit(str(slow) if (slow := {"jax", "transformers"} & set(sys.modules)) else status)"""
    command = [sys.executable, "-c", program, "run", f"--config={DEFAULT}", "--config.optim.lr=-1"]
    begun = sum(os.times()[2:4])  # of processor time: a loaded machine is no mistake
    done = subprocess.run([*command, "--workdir=x"], cwd=tmp_path, capture_output=True, text=True)
    assert sum(os.times()[2:4]) - begun < 5
    assert done.returncode == 2
    assert done.stderr == "eeg2text run: optim.lr is -1.0; expected a number above 0 to 100.\n"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"split.method": "file"}, "split.path is ''; expected a certificate"),
        ({"model.encoder_width": 12}, "model.encoder_width is 12; expected a multiple of model.encoder_heads"),
        ({"batch.size": 9, "train.accumulate": 2}, "train.accumulate is 2; expected a divisor of batch.size"),
        ({"objective": "contrastive", "train.accumulate": 2}, "train.accumulate is 2; expected 1 with objective=contr"),
        ({"objective": "contrastive", "batch.size": 1}, "batch.size is 1; expected at least 2 with objective=contr"),
        ({"data.recordings.compat": "wang-ji", "data.recordings.measure": "SFD"}, "expected GD, FFD or TRT with"),
    ],
)
def test_fields_that_do_not_fit_together(changes, message):
    config = load_config(DEFAULT)
    config.update_from_flattened_dict(changes)
    with pytest.raises(UserError, match=message):
        checked_settings(config)


def test_a_sequence_is_told_what_it_must_hold():
    message = r"^grid\.seeds is \(0, 1\.5\); expected a tuple of at least 1 different entries, each a whole number"
    with pytest.raises(UserError, match=message):
        checked_settings(tiny_config(grid__seeds=(0, 1.5)))


def test_fields_that_are_missing_or_unknown():
    config = load_config(DEFAULT)
    for section, unknown in (("decode_num_beams", 3), ("decoder", {"num_beams": 3}), ("optims", {"lr": 0.1})):
        with config.unlocked():
            config[section] = unknown
        name = ".".join([section, *(unknown if isinstance(unknown, dict) else ())])
        with pytest.raises(UserError, match=rf"^{name}: there is no such field; "):
            check_config(config)
        with config.unlocked():
            del config[section]
    with config.unlocked():
        config.optim.learning_rate = 1e-3
    with pytest.raises(UserError, match=r"optim.learning_rate: there is no such field; did you mean 'optim.lr'"):
        check_config(config)
    with config.unlocked():
        del config.optim["learning_rate"]
        del config.optim["lr"]
    with pytest.raises(UserError, match=r"optim.lr is missing in the configuration"):
        check_config(config)


def test_decoding_may_have_every_setting_of_generation_and_no_other():
    config = load_config(DEFAULT)
    with config.unlocked():
        config.decode.do_sample = True
        config.decode.min_length = 57
    with pytest.raises(UserError, match=r"generation setting min_length: expected between 0 and max_length"):
        check_config(config)
    with config.unlocked(), config.ignore_type():
        config.decode.min_length = "half"
    with pytest.raises(UserError, match="generation setting min_length: expected a whole number, got 'half'"):
        check_config(config)
    with config.unlocked(), config.ignore_type():
        config.decode.min_length, config.decode.beams = 5, 3
    with pytest.raises(UserError, match=r"'beams' .* is not implemented"):
        check_config(config)


def test_the_command_line_sets_several_texts_and_drawing():
    said = ["num_return_sequences=2", "do_sample=True", "temperature=0.7", "top_k=0", "top_p=0.9"]
    found = parse_config([f"--config={DEFAULT}", *(f"--config.decode.{one}" for one in said)], "run").config.decode
    chosen = [found.num_return_sequences, found.do_sample, found.temperature, found.top_k, found.top_p]
    assert chosen == [2, True, 0.7, 0, 0.9]
    with pytest.raises(UserError, match="num_return_sequences: expected between 1 and num_beams"):
        parse_config([f"--config={DEFAULT}", "--config.decode.num_return_sequences=6"], "run")
    with pytest.raises(UserError, match=r"decode.top_p is 1.5; expected"):
        parse_config([f"--config={DEFAULT}", "--config.decode.top_p=1.5"], "run")


def test_what_is_set_twice_has_the_last_value():
    twice = ["--config.grid.seeds=(4,)", "-config.seed=1", "--config.grid.seeds", "(5,6)", "--config.seed=2"]
    config = parse_config([f"--config={DEFAULT}", *twice, "--noconfig.data.standardize"], "run").config
    assert tuple(config.grid.seeds) == (5, 6)
    assert config.seed == 2
    assert config.data.standardize is False


def test_every_configuration_of_ours_is_in_range():
    for file in Path(DEFAULT).parent.glob("*.py"):
        if file.name == "judge.py":  # of a command of its own
            check_config(load_config(f"{file}:checkpoint=toy"), ranges=judge_ranges.RANGES)
            assert dict(fields(load_config(str(file)))).keys() == judge_ranges.RANGES.keys()
        elif "def get_config" in file.read_text():
            check_config(load_config(str(file)))


def test_a_warm_up_that_is_cut_is_said():
    config = tiny_config(train__steps=7, optim__warmup_steps=10, step_one__steps=4)
    assert notes(config) == [
        "optim.warmup_steps is 10, more than half of train.steps (7): the warm-up is cut to 3 steps.",
        "optim.warmup_steps is 10, more than half of step_one.steps (4): the warm-up is cut to 2 steps.",
    ]
    assert notes(tiny_config()) == []


def test_names_of_conditions_are_those_that_there_are():
    assert tuple(condition.CONDITIONS) == conditions.CONDITIONS


def test_nested():
    assert is_nested(((16, 24), (28, 24), (28, 56)))
    assert not is_nested(((28, 24), (16, 56)))


def test_ranges_are_in_the_order_of_the_fields():
    tree = ast.parse(Path(DEFAULT).read_text())
    lines = [ast.unparse(node.targets[0]) for node in ast.walk(tree) if isinstance(node, ast.Assign)]
    assert [name for name in (line.removeprefix("c.") for line in lines) if name in RANGES] == list(RANGES)


def test_fields_that_hold_paths_are_listed():
    assert list(PLACES) == place_names(RANGES)


def test_old_names_are_refused_with_the_new(tmp_path, monkeypatch, refused):
    monkeypatch.chdir(tmp_path)
    renamed = [(old, f" is called --config.{new} now.", f"is called {new} now") for old, new in RENAMED.items()]
    gone = "is gone since version 1.0"
    removed = [(old, f": {gone}; {why}; leave it out.", gone) for old, why in REMOVED.items()]
    for old, said, in_a_file in renamed + removed:
        command = ["run", f"--config={DEFAULT}", f"--config.{old}=1", "--workdir=made"]
        assert refused(command) == f"eeg2text run: --config.{old}{said}"
        config, (section, name) = load_config(DEFAULT), old.split(".")
        with config.unlocked():
            config[section][name] = 1
        with pytest.raises(UserError, match=f"{old} {in_a_file}"):
            check_config(config)
    assert not list(tmp_path.iterdir())
