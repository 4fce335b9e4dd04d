"""Every layout is recognised by content and read whole; damage is named, never guessed over."""

import dataclasses
import random
from collections import Counter

import pytest
from layout_samples import FREE, REFERENCES, LayoutSample, layout_samples
from reading import described, refusal

from eeg2text_jax.base.errors import UserError
from eeg2text_jax.instrument.predictions.file import PredictionSet
from eeg2text_jax.instrument.predictions.read import describe, read_any
from eeg2text_jax.instrument.predictions.selection import ten_rows


def outcomes(read: PredictionSet) -> Counter:
    return Counter((p.reference, p.eval_condition, p.mode, p.prediction) for p in read.predictions)


def opened(path, sample: LayoutSample) -> PredictionSet:
    """What is read of a sample; the columns of a table without header must be stated."""
    return read_any(path, **({"columns": ["1", "2"], "layout": "H"} if sample.name == "H" else {}))


def expected(sample: LayoutSample) -> Counter:
    return Counter(outcome for rows in sample.outcomes for outcome in rows)


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_every_layout_is_read_without_options(tmp_path, line_end):
    ids = set()
    for sample in layout_samples(tmp_path):
        path = tmp_path / "file"
        path.write_bytes(sample.text.replace("\n", line_end).encode())
        read = opened(path, sample)
        assert outcomes(read) == expected(sample), sample.name
        assert read.layout.startswith(sample.name)
        assert f"layout {sample.name}" in describe(read)
        assert len({p.sentence_id for p in read.predictions}) == 6
        ids |= {(p.reference, p.sentence_id) for p in read.predictions if sample.name != "jsonl"}
    assert sorted(reference for reference, _ in ids) == sorted(REFERENCES), "a sentence has one id in every layout"


def test_ids_and_conditions_of_a_table_are_kept(write):
    header = "sample_id,subject_id,task,sentence_id,train_condition,eval_condition,seed,mode,reference,prediction"
    path = write(f"{header}\nx,S1,NR,t7,eeg,noise,3,free_running,a b c,d\n", "f.csv")
    (p,) = read_any(path).predictions
    assert (p.sample_id, p.subject, p.task, p.sentence_id) == ("x", "S1", "NR", "t7")
    assert (p.train_condition, p.eval_condition, p.seed, p.mode, p.n_words) == ("eeg", "noise", 3, "free_running", 3)


def test_columns_and_layout_can_be_stated(write):
    path = write("what,out,other out\na b,c d,e f\ng h,i j,k l\n", "f.csv")
    shown = r"its first rows are 'what . out . other out' and 'a b . c d . e f'; name two with --columns=REFERENCE,PRED"
    refusal(path, shown)
    assert [p.prediction for p in read_any(path, columns=["what", "other out"]).predictions] == ["e f", "k l"]
    path.write_text("gt,out,other_out\na b,c d,e f\ng h,i j,k l\n")
    refusal(path, r"the reference is 'gt'; no column .* among out, other_out; name it with --col")
    assert [p.prediction for p in read_any(path, columns=["gt", "other out"]).predictions] == ["e f", "k l"]
    assert [p.prediction for p in read_any(path, columns=["1", "2"], layout="F").predictions] == ["c d", "i j"]
    assert len(read_any(path, columns=["1", "2"], layout="H").predictions) == 3
    conditions = [p.eval_condition for p in read_any(path, columns=["gt", "out", "other out"]).predictions]
    assert conditions == ["out", "other_out"] * 2


def test_mode_states_or_selects(write, tmp_path):
    by_name = {sample.name: sample for sample in layout_samples(tmp_path)}
    path = write(by_name["C"].text, "file")
    assert {p.mode for p in read_any(path, mode="teacher_forced").predictions} == {"teacher_forced"}
    path.write_text(by_name["A"].text)
    assert [p.prediction for p in read_any(path, mode="free_running").predictions] == FREE
    path.write_text("".join(by_name["jsonl"].pieces[6:]))
    refusal(path, "no teacher_forced predictions", mode="teacher_forced")


A = "target string: a b\npredicted string with tf: c\npredicted string: d\n" + "#" * 20 + "\n"
DAMAGED = {
    "empty": ("", "the file is empty"),
    "prose": ("Once upon a time\nthere was a file.\n", "neither a known layout nor a table"),
    "missing field": (A + A.replace("predicted string: d\n", ""), "line 5: this block has no 'predicted string:'"),
    "missing reference": (A + A.replace("target string: a b\n", ""), "line 5: .* no 'target string:'"),
    "missing line of #": (A.replace("#" * 20, "") + A, "line 5: a second 'target string:' in the block of line 1"),
    "cut short": (A + A[:60], "line 5: the block that begins here is not closed"),
    "stray text": ("target string: a\nfoo\n", "neither a known layout"),
    "nothing to close": (A + "#" * 20, "line 5: the block closed here has no"),
    "E": ("target word: a\tpred word: b\ntarget word: c pred word: d\n", "line 2: expected 'target word"),
    "ragged": ("truth,pred\na,b\nc\n", "line 3: 1 fields where the first line has 2"),
    "open quote": ('truth,pred\na,b\n"c,d\n', "line 3: not a CSV row"),
    "two pairs": ("truth,pred,sentence,prediction\na,b,c,d\n", "several columns may be reference and prediction"),
    "no reference": ("subject,prediction\na,b\n", r"outputs without references .columns 'subject', 'prediction'"),
    "bad seed": ("truth,pred,seed\na,b,x\n", "line 2: seed is 'x'"),
    "bad mode": ("truth,pred,mode\na,b,free_running\nc,d,fast\n", "line 3: mode is 'fast'"),
    "twice": ("truth,pred,sample_id\na,b,1\nc,d,1\n", "line 3: sample '1' is on line 2 already"),
    "no rows": ("truth,pred\n", "no predictions in the file"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damage_is_named(write, name):
    text, message = DAMAGED[name]
    path = write(text, "damaged.txt")
    refusal(path, f"damaged.txt.*{message}")


def test_options_that_cannot_be_met(write):
    path = write("truth,pred\na,b\n", "f.csv")
    for options, message in [
        ({"columns": ["truth", "guess"]}, "no column 'guess'; the columns are truth, pred"),
        ({"columns": ["truth"]}, "expected the reference and at least one prediction"),
        ({"columns": ["1", "0"]}, "no column '0'; the columns are truth, pred"),
        ({"columns": ["1", "1"]}, "named twice"),
        ({"layout": "G"}, "no such layout"),
        ({"layout": "A"}, "it has no samples of known labels"),
        ({"mode": "free"}, "no such mode"),
    ]:
        refusal(path, message, **options)


JUNK = [b'"', b"'", b",", b"\n", b"\r", b"\r\n", b"\t", b"{", b"#", b"\xff", b"\x00", b"\\", b"\xc3", b":"]


def mutate(data: bytes, rng: random.Random) -> tuple[bytes, int, int, bool]:
    """A damaged copy, the span of the original that was touched, and whether whole text was repeated."""
    start = rng.randrange(len(data))
    end = min(len(data), start + rng.choice([1, 1, 2, 8, 40, 200]))
    lines = [0, *(i + 1 for i, byte in enumerate(data) if byte == 10)]
    kind = rng.choice(["delete", "insert", "replace", "cut", "line out", "line twice", "lines swapped", "repeat"])
    junk = rng.choice(JUNK)
    if kind == "cut":
        return data[:start], start, len(data), False
    if kind == "delete":
        return data[:start] + data[end:], start, end, False
    if kind == "insert":
        return data[:start] + junk + data[start:], start, start, False
    if kind == "replace":
        return data[:start] + junk + data[start + 1 :], start, start + 1, False
    if kind == "repeat":
        return data[:end] + data[start:end] + data[end:], start, end, True
    i = rng.randrange(len(lines) - 2)
    first, second, third = lines[i], lines[i + 1], lines[i + 2]
    if kind == "line out":
        return data[:first] + data[second:], first, second, False
    if kind == "line twice":
        return data[:second] + data[first:second] + data[second:], first, second, True
    return data[:first] + data[second:third] + data[first:second] + data[third:], first, third, False


def read_or_message(path, sample: LayoutSample) -> tuple[Counter | None, str]:
    """What is read and how it is described, or None and the refusal."""
    try:
        read = opened(path, sample)
    except UserError as error:
        return None, str(error)
    return outcomes(read), describe(read)


def test_mutated_files_are_refused_or_read_as_what_is_there(tmp_path):
    """500 random mutations: an error that names the file, or every sample that was not touched, once, and no other."""
    rng = random.Random(0)
    samples = layout_samples(tmp_path)
    path = tmp_path / "mutated"
    refused = Counter()
    for _ in range(500):
        sample = rng.choice(samples)
        damaged, start, end, repeats = mutate(sample.text.encode(), rng)
        path.write_bytes(damaged)
        found, message = read_or_message(path, sample)
        if found is None:
            assert str(path) in message
            refused[sample.name] += 1
            continue
        position = len(sample.before.encode())
        untouched: Counter = Counter()
        touched = 0
        for piece, rows in zip(sample.pieces, sample.outcomes, strict=True):
            if position + len(piece.encode()) < start or position > end:
                untouched.update(rows)
            else:
                touched += len(rows)
            position += len(piece.encode())
        if start < len(sample.before) and "not used" in message:  # a column lost its name, and that was said
            continue
        surplus = found - untouched
        assert untouched <= found, (sample.name, damaged)
        assert surplus.total() <= touched * (2 if repeats else 1), (sample.name, damaged)
    assert sum(refused.values()) > 100
    assert len(refused) == len({sample.name for sample in samples})


def test_a_repeated_row_is_mentioned_where_subjects_are_known(write):
    path = write("subject,truth,pred\nS1,a b,c\nS2,a b,c\nS1,a b,c\n", "f.csv")
    assert "; rows that repeat another row of the same subject: 1" in described(path)
    path.write_text("truth,pred\na b,c\na b,c\n")
    assert "rows that repeat" not in described(path)


def test_ten_rows_show_the_first_the_last_and_those_whose_lengths_differ(write):
    texts = [f"the text of row {i} goes on" for i in range(100)]
    said = [text if i not in (40, 60, 61) else text[:5] for i, text in enumerate(texts)]
    read = read_any(write("reference,prediction\n" + "".join(map("{},{}\n".format, texts, said)), "rows.csv"))
    assert [row[2:] for row in ten_rows(read)] == [(texts[i], said[i]) for i in (0, 1, 2, 3, 4, 40, 60, 61, 98, 99)]
    assert len(ten_rows(dataclasses.replace(read, predictions=read.predictions[:3]))) == 3
