"""Where labelled pairs come from: a file, controlled edits of sentences, or template pairs."""

from pathlib import Path

from ml_collections import ConfigDict

from eeg2text_jax.errors import UserError
from eeg2text_jax.files import write_text
from eeg2text_jax.judge import controlled, templates
from eeg2text_jax.judge.pairs import Meaning, Pair, read_pairs, write_pairs
from eeg2text_jax.stores.copying import at_hand
from eeg2text_jax.study.workdir import Workdir

SOURCES = {"edits": "controlled edits", "templates": "template pairs"}  # what `pairs` names beside files


def labelled_pairs(config: ConfigDict, labels: Meaning, workdir: Workdir) -> tuple[list[Pair], str]:
    """The pairs and where their labels come from; pairs that are made here are written to `pairs.tsv`."""
    if config.pairs not in SOURCES:
        return read_pairs(config.pairs, labels), "human labels"
    if config.pairs == "templates":
        made = templates.toy_pairs(config.toy.pairs, config.toy.seed)
    else:
        options = config.edits
        made = controlled.make_pairs(
            sentences_of(config), per_sentence=options.per_sentence, preserved=options.preserved, seed=options.seed
        )
    write_text(workdir.root / "pairs.tsv", write_pairs(made))
    return made, SOURCES[config.pairs]


def sentences_of(config: ConfigDict) -> list[str]:
    """What controlled edits are made of."""
    if not config.sentences:
        return list(templates.sentences(1000))
    try:
        text = Path(at_hand(config.sentences)).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"{config.sentences}: cannot be read as UTF-8 text, a sentence a line; check the path."
        ) from error
    return [line for line in text.splitlines() if line.strip()]
