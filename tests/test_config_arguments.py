"""Arguments of configuration files: the part after the colon."""

import pytest

from configs import paper, zuco_words
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
