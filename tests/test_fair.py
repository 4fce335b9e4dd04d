"""The fair benchmark's configurations: the paper's settings, what they refuse, and the table that they end in."""

from pathlib import Path

import pytest

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.commands.paper_tables import TABLES
from eeg2text_jax.training.configuration import load_config
from eeg2text_jax.training.sections import check_config, fields

ROOT = Path(__file__).parents[1]
FAIR, LEAKAGE = (str(ROOT / f"configs/{name}.py") for name in ("fair", "leakage"))


@pytest.mark.parametrize("data", ["zuco", "narratives"])
def test_unicorn_has_the_papers_settings(data):
    config = load_config(f"{FAIR}:model=unicorn,data={data}")
    check_config(config)
    assert (config.split.method, tuple(config.split.ratio)) == ("f", (0.8, 0.1, 0.1))
    assert (config.model.encoder, config.model.checkpoint) == ("unicorn", "facebook/bart-large")
    assert (config.batch.size, config.train.epochs) == (90, 10)
    assert (config.train.eval_epochs, config.train.save_epochs) == (1, 1)
    assert (config.optim.lr, config.optim.lr_end) == (1e-4, 1e-6)
    of = {"zuco": 26, "narratives": 32}[data]
    for stage in (config.pretrain.snapshot, config.pretrain.series):
        assert (stage.lr, stage.lr_end, stage.batch_size) == (1e-4, 1e-6, of)
        assert (stage.epochs, stage.eval_epochs) == (15, 1)
    assert config.data.fmri.window == 10
    star = load_config(f"{FAIR}:model=unicorn,data={data},pretrain=no")
    assert dict(fields(config)).items() ^ dict(fields(star)).items() == {
        ("pretrain.enabled", True),
        ("pretrain.enabled", False),
    }


def test_eeg2text_has_its_own_or_the_same_budget():
    own, equal = (load_config(f"{FAIR}:model=eeg2text,data=zuco,budget={name}") for name in ("paper", "equal"))
    for config in (own, equal):
        check_config(config)
        assert (config.model.encoder, config.model.encoder_layers) == ("transformer", 6)
    assert (own.optim.name, own.optim.lr, own.train.epochs) == ("sgd", 1e-6, 80)
    unicorn = load_config(f"{FAIR}:model=unicorn,data=zuco")
    for section in ("optim", "train", "batch", "text", "decode"):
        assert equal[section] == unicorn[section]
    for section in ("text", "decode", "split"):
        assert own[section] == unicorn[section]


@pytest.mark.parametrize("method", "abcdef")
def test_leakage_is_the_fair_benchmark_under_another_split(method):
    config = load_config(f"{LEAKAGE}:method={method}")
    check_config(config)
    assert (config.split.method, config.optim.lr, config.train.epochs) == (method, 1e-3, 10)
    star = load_config(f"{LEAKAGE}:method={method},pretrain=no,epochs=30")
    assert (star.pretrain.enabled, star.optim.lr, star.train.epochs) == (False, 1e-4, 30)
    assert config.optim.schedule == star.optim.schedule == "constant"


def test_the_papers_longer_runs_begin_with_its_shorter_ones():
    """Where nothing improves after the shorter run, both rows are the same: the rate does not depend on the epochs."""
    of = {row[1]: row[2:] for row in TABLES["fair-2"].rows if row[0] == "UniCoRN*"}
    assert [m for m in "abcde" if of[f"20+1e-4+({m})"] == of[f"30+1e-4+({m})"]] == ["b", "e"]


@pytest.mark.parametrize(
    ("place", "said"),
    [
        (f"{FAIR}:model=eeg2text,data=narratives", "EEG2Text is for words; expected data=zuco"),
        (f"{FAIR}:data=zuco,samples=900", "there is no argument 'samples'"),
        (f"{LEAKAGE}:epochs=0", "epochs is 0; expected a whole number above 0"),
        (f"{LEAKAGE}:method=b,data=zuco", "method=b is for stories"),
        (f"{LEAKAGE}:lr=fast", "epochs and lr are numbers"),
        (f"{LEAKAGE}:method=g", "method is 'g'; it must be one of f, e, d, c, b, a"),
    ],
)
def test_what_cannot_be_is_one_sentence(place, said):
    with pytest.raises(UserError, match=said):
        load_config(place)


def test_the_papers_rows_are_whole_and_their_rouge_columns_are_f_p_r_in_tables_2_and_3():
    """As the notes below the tables say: F = 2PR / (P + R) tells which column is which."""
    tables = {n: {tuple(row[:2]): row[2:] for row in TABLES[f"fair-{n}"].rows} for n in "234"}
    assert [len(rows) for rows in tables.values()] == [15, 12, 3]
    assert {len(values) for rows in tables.values() for values in rows.values()} == {7}

    def off(f, p, r):
        return abs(f - 2 * p * r / (p + r))

    rouge = {
        n: {key: [float(cell) for cell in row[4:]] for key, row in rows.items() if "-" not in row}
        for n, rows in tables.items()
    }
    assert max(off(*row) for row in rouge["2"].values()) < 0.25
    assert min(off(f, p, r) for r, p, f in rouge["2"].values()) > 3
    fits = {key: off(*row) < 1 for key, row in rouge["3"].items()}
    assert [key for key, found in fits.items() if not found] == [("UniCoRN", "80+1e-4+(c)")]
    r, p, f = rouge["3"]["UniCoRN", "80+1e-4+(c)"]
    assert off(f, p, r) < 1
    r, p, f = rouge["4"]["Narratives", "UniCoRN"]
    assert off(f, p, r) < 0.1
    assert off(r, p, f) > 5
