"""Arguments of configuration files: the part after the colon."""

import contextlib
import importlib
from pathlib import Path

import pytest

from configs import paper, waves, zuco_words
from configs.arguments import parse
from eeg2text_jax.base.errors import UserError
from eeg2text_jax.models.backbones.build import random_spec
from eeg2text_jax.runs.opening import AnyTokenizer


def test_values_and_defaults():
    given = parse("tasks=sr,backbone=t5", "f.py", backbone=("bart", "t5"), tasks="all", checkpoint="")
    assert vars(given) == {"backbone": "t5", "tasks": "sr", "checkpoint": ""}
    assert parse("", "f.py", backbone=("bart", "t5")).backbone == "bart"


def test_mistakes_are_named():
    with pytest.raises(UserError, match=r"there is no argument 'bakbone'; did you mean 'backbone'"):
        parse("bakbone=t5", "f.py", backbone=("bart", "t5"), tasks="")
    with pytest.raises(UserError, match="backbone is 'gpt'; it must be one of bart, t5"):
        parse("backbone=gpt", "f.py", backbone=("bart", "t5"))


@pytest.mark.parametrize("backbone", ["bart", "t5", "pegasus"])
def test_paper_takes_large_checkpoints_or_random_weights_of_their_shape(backbone):
    config = paper.get_config(f"backbone={backbone}")
    assert "large" in config.model.checkpoint
    assert bool(config.model.prompt) == (backbone == "t5")
    random = paper.get_config(f"backbone={backbone},checkpoint=random")
    assert random.model.checkpoint == ""
    # What config.json of the published checkpoints says; the defaults of transformers have 0 for BART and PEGASUS.
    stack = random_spec(backbone, dict(random.model.shape), AnyTokenizer()).encoder
    assert (stack.dropout, stack.attention_dropout, stack.activation_dropout) == (0.1, 0.1, 0.1)


def test_zuco_words_takes_every_backbone_and_a_checkpoint():
    for backbone in ("bart", "pegasus", "t5", "bert2bert"):
        assert zuco_words.get_config(f"backbone={backbone}").model.backbone == backbone
    config = zuco_words.get_config("backbone=bert2bert,checkpoint=minilm")
    assert config.model.checkpoint == "minilm"
    assert not config.model.shape


FREE = {"seconds": "6", "rate": "100", "epochs": "3", "lr": "0.125"}  # of arguments with any value; others: a folder
BESIDE = {"demo": "planted,", "demo_waves": "planted,", "demo_blocks": "words,", "waves": "encoder=labram,",
          "fair/budget": "model=eeg2text,", "leakage/model": "data=zuco,",
          "zuco_words/text": "objective=contrastive,"}  # fmt: skip
CONFIGS = Path(__file__).parents[1] / "configs"
ARGUED = [path.stem for path in sorted(CONFIGS.glob("*.py")) if " = parse(" in path.read_text()]


@pytest.mark.parametrize("name", ARGUED)
def test_every_value_of_an_argument_gives_a_configuration_of_its_own(name, monkeypatch):
    module, asked = importlib.import_module(f"configs.{name}"), {}
    monkeypatch.setattr(module, "parse", lambda *given, **options: asked.update(options) or parse(*given, **options))
    module.get_config(BESIDE.get(name, ""))
    for option, allowed in dict(asked).items():
        beside, made = BESIDE.get(f"{name}/{option}", BESIDE.get(name, "")), []
        for value in (allowed, FREE.get(option, "folder")) if isinstance(allowed, str) else filter(None, allowed):
            with contextlib.suppress(UserError):  # not with the other arguments
                made.append(module.get_config(f"{beside}{option}={value}").to_json_best_effort())
        assert len({*made}) == len(made) > 1, option


def test_waves_are_read_and_cut_at_the_rate_that_is_asked_for():
    c = waves.get_config("encoder=labram,seconds=6,rate=100")
    assert (c.data.raw.features, c.data.raw.resample, c.data.max_words) == ("waves", 100.0, 600)
    assert [words for words, _ in c.batch.buckets] == [300, 450, 600]
