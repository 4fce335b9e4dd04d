"""Two files are joined by a key that both have, and said; what is not sure is asked; references of benchmarks."""

import json
import random

import pytest
from reading import described, refusal, table

from eeg2text_jax.instrument.predictions.read import describe, read_any

TRUE = [f"the {a} {b} is {c}" for a in ("red", "old", "tall") for b in ("ship", "tree") for c in ("here", "lost")]
SAID = [text.replace("the", "a").replace("is", "was") for text in TRUE]
PAIRS = sorted(zip(TRUE, SAID, strict=True))
N = len(TRUE)


def pairs(found):
    return sorted((row.reference, row.prediction) for row in found.predictions)


SUBMISSION = table(("id", "text"), *enumerate(SAID))
TRIALS = [(f"s{i // 6}", i // 3 % 2, i % 3, text) for i, text in enumerate(TRUE)]
SHUFFLED = random.Random(0).sample(range(N), N)


def test_a_submission_stands_beside_the_sentences_of_the_benchmark(join):
    found = join(SUBMISSION, table(("session", "block", "trial", "true_sentence"), *TRIALS))
    assert pairs(found) == PAIRS
    said = describe(found)
    assert "because no column of ids is in both files ('id' and of the references 'session' and 'block'" in said


def test_a_trial_is_never_an_id(join, join_refused):
    """Rows in another order were joined by `id` and `trial`, and the decoder had no content."""
    other = table(("trial", "true_sentence"), *((i, TRUE[i]) for i in SHUFFLED))
    join_refused(r"'id' and 'trial' of .* hold the same values in another order, .* --id=trial,id", SUBMISSION, other)
    joined = join(SUBMISSION, other, id=["trial", "id"])
    assert pairs(joined) == pairs(join(SUBMISSION, other, id=["id", "trial"])) == PAIRS
    assert "joined by 'id' of the predictions and 'trial' of the references, as stated" in describe(joined)
    assert pairs(join(SUBMISSION, other, id=["rows"])) == sorted(zip([TRUE[i] for i in SHUFFLED], SAID, strict=True))


@pytest.mark.parametrize("name", ["phrase", "utterance", "text"])
def test_a_submission_under_another_noun_is_one(join, write, name):
    outputs = SUBMISSION.replace("text", name, 1)
    said = rf"outputs without references \(columns 'id', '{name}'\); give .* --reference=FILE"
    refusal(write(outputs), said)
    assert pairs(join(outputs, "\n".join(TRUE))) == PAIRS


@pytest.mark.parametrize(
    "names", [("id", "utt_id"), ("sample_id", "id"), ("uid", "key"), ("trial", "trial_num"), ("", "idx")]
)
def test_names_that_are_one_key_are_joined_in_any_order(join, names):
    mine, theirs = names
    references = table((theirs, "true_text"), *((i, TRUE[i]) for i in SHUFFLED))
    found = join(table((mine, "pred"), *enumerate(SAID)), references)
    assert pairs(found) == PAIRS
    assert "joined by " in describe(found)


def test_every_field_of_a_joined_row_is_of_its_id(join):
    """Ids name the samples; what the predictions state counts before what the references state; some have none."""
    keys, kept = [f"u{7 * i}" for i in range(N)], SHUFFLED[2:]
    outputs = [(f"reader {i % 3}", SAID[i], keys[i], i % 4) for i in kept]
    references = [(keys[i], "another", TRUE[i], f"task {i % 5}", i / 2) for i in sorted(SHUFFLED, key=lambda i: -i)]
    found = join(
        table(("subject", "pred", "id", "seed"), *outputs),
        table(("id", "subject", "true_text", "task", "onset"), *references),
    )
    assert [
        (p.sample_id, p.subject, p.reference, p.prediction, p.task, p.seed, p.onset) for p in found.predictions
    ] == [(keys[i], f"reader {i % 3}", TRUE[i], SAID[i], f"task {i % 5}", i % 4, i / 2) for i in kept]
    assert "2 of them without a prediction" in describe(found)
    again = table(("pred", "id"), *((f"{SAID[i]} {k}", keys[i]) for k in (1, 2) for i in kept))
    twice = join(again, table(("id", "true_text"), *((key, text) for key, text, *_ in zip(keys, TRUE, strict=True))))
    assert pairs(twice) == sorted((TRUE[i], f"{SAID[i]} {k}") for k in (1, 2) for i in kept)
    assert len({p.sentence_id for p in twice.predictions}) == N - 2


def test_session_block_and_trial_are_a_key_together(join, join_refused):
    outputs = table(("session", "block", "trial", "pred"), *((*TRIALS[i][:3], SAID[i]) for i in SHUFFLED))
    references = table(("session", "block_num", "trial_num", "sentence_label"), *TRIALS)
    found = join(outputs, references)
    assert pairs(found) == PAIRS
    said = "joined by 'trial' and 'block' and 'session' of the predictions and 'trial_num' and 'block_num'"
    assert said in describe(found)
    trials = [(row[2], text) for row, text in zip(TRIALS, SAID, strict=True)]
    sentences = table(("session", "block", "trial", "sentence"), *TRIALS)
    message = r"'0' has several references .ids: 'trial'.; say --id=COLUMN"
    join_refused(message, table(("trial", "pred"), *trials[::-1]), sentences)
    found = join(table(("trial", "pred"), *trials), sentences)
    assert pairs(found) == PAIRS
    assert "joined row by row, because 'trial' repeats, in one order in both files" in describe(found)
    references = references.replace("block_num,trial_num", "block,trial")
    assert pairs(join(outputs, references, id=["session", "block", "trial"])) == PAIRS


def test_a_trial_is_of_a_subject(join):
    rows = [(f"s{i % 2}", i // 2, text) for i, text in enumerate(TRUE)]
    outputs = table(("subject", "trial", "pred"), *((*rows[i][:2], SAID[i]) for i in SHUFFLED))
    assert pairs(join(outputs, table(("subject", "trial", "sentence"), *rows))) == PAIRS


def test_columns_of_an_id_that_are_not_there_are_named(join_refused):
    for name, options, message in (
        ("id", {"id": ["what"]}, r"--id=what: .*out.txt has no column 'what', its columns are id, text"),
        ("id", {}, r"the id '11' is not in .* ids: 'id'.; .*--id=rows to join row by row"),
        ("trial", {}, r"12 texts, and 11 references .*'trial'; 'id'., or say --id=REFERENCE_ID,"),
    ):
        join_refused(message, SUBMISSION, table((name, "true_sentence"), *enumerate(TRUE[:-1])), **options)


def test_an_id_needs_two_files(write):
    refusal(write(SUBMISSION), "--id=id: joins two files; give the references", id=["id"])


def test_the_hdf5_of_a_session_is_a_file_of_references(write, tmp_path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "data_val.hdf5", "w") as file:
        for i, (session, block, trial, text) in enumerate(TRIALS):
            group = file.create_group(f"trial_{i:04}")
            group.create_dataset("input_features", data=[[0.0]])
            group.attrs.update({"session": session, "block_num": block, "trial_num": trial, "sentence_label": text})
    refusal(tmp_path / "data_val.hdf5", r"outputs without references .columns 'block_num', 'sentence_label'")
    assert pairs(read_any(write(SUBMISSION), reference=tmp_path / "data_val.hdf5")) == PAIRS
    texts = "".join(f"{text}\n" for text in SAID)
    assert pairs(read_any(write(texts), reference=tmp_path / "data_val.hdf5", layout="P")) == PAIRS
    rows = [(*TRIALS[i][:3], SAID[i]) for i in SHUFFLED]
    found = read_any(write(table(("session", "block", "trial", "pred"), *rows)), reference=tmp_path / "data_val.hdf5")
    assert pairs(found) == PAIRS
    with h5py.File(tmp_path / "own.h5", "w") as file:
        file["sentence"], file["features"] = TRUE, [[0.0]] * 3
    assert pairs(read_any(write(SUBMISSION), reference=tmp_path / "own.h5")) == PAIRS
    (tmp_path / "cut.h5").write_bytes((tmp_path / "own.h5").read_bytes()[:200])
    refusal(write(SUBMISSION), "cannot be read as HDF5", reference=tmp_path / "cut.h5")


def test_results_and_annotations_of_coco(write):
    results = [{"image_id": 100 + i, "caption": SAID[i]} for i in SHUFFLED]
    more = [(7 * i, 100 + i, text) for i, text in enumerate(TRUE)] + [(1, 100 + i, f"another {i}") for i in range(N)]
    annotations = [{"id": key, "image_id": image, "caption": text} for key, image, text in more]
    whole = {
        "info": {},
        "images": [{"id": 100 + i, "file_name": f"{i}.jpg"} for i in range(N)],
        "annotations": annotations,
    }
    reference = write(json.dumps(whole), "ann.json")
    found = read_any(write(json.dumps(results)), reference=reference)
    assert pairs(found) == PAIRS
    assert "12 ids have several references; the first of them counts" in describe(found)
    assert "joined by " in describe(found)
    refusal(write(json.dumps(results)), "give its references with --reference=FILE")


def test_two_keys_that_join_the_files_differently_are_asked_about(write):
    """The keys of JSON objects were joined, beside an id in both files that says otherwise."""
    outputs = json.dumps({f"s{i}": {"utt_id": f"u{i}", "prediction": text} for i, text in enumerate(SAID)})
    other = [{"utt_id": f"u{i}", "reference": TRUE[i]} for i in SHUFFLED]
    keyed = write(json.dumps({f"s{i}": row for i, row in enumerate(other)}), "ref.json")
    message = "'key' and 'utt_id' join the files differently; say --id=utt_id"
    refusal(write(outputs, "out.json"), message, reference=keyed)
    assert pairs(read_any(write(outputs, "out.json"), reference=keyed, id=["utt_id"])) == PAIRS
    assert pairs(read_any(write(outputs, "out.json"), reference=write(json.dumps(other), "ref.json"))) == PAIRS


def test_the_index_of_pandas_is_no_key_where_other_columns_tell_another_order(join_refused):
    outputs = json.dumps({str(i): {"uid": i, "prediction": text} for i, text in enumerate(SAID)})
    other = {str(i): {"trial": k, "reference": TRUE[k]} for i, k in enumerate(SHUFFLED)}
    join_refused("hold the same values in another order", outputs, json.dumps(other), "json")


def test_the_best_of_several_columns_of_one_key_is_taken(write):
    outputs = table(("utt_id", "time", "pred"), *((f"u{i}", i, text) for i, text in enumerate(SAID)))
    keyed = {f"s{i}": {"utt_id": f"u{k}", "time": i, "gt": TRUE[k]} for i, k in enumerate(SHUFFLED)}
    found = read_any(write(outputs, "out.csv"), reference=write(json.dumps(keyed), "ref.json"))
    assert pairs(found) == PAIRS
    assert "joined by 'utt_id'" in describe(found)


def test_a_key_that_has_several_texts_gives_way_to_one_that_has_one(join):
    """Each picture has two sentences, and each sentence an id: the picture does not tell which is meant."""
    outputs = table(("image_id", "utt_id", "pred"), *((i // 2, f"u{i}", SAID[i]) for i in SHUFFLED))
    found = join(outputs, table(("image", "uid", "sentence"), *((i // 2, f"u{i}", TRUE[i]) for i in range(N))))
    assert pairs(found) == PAIRS
    assert "joined by 'utt_id' of the predictions and 'uid' of the references" in describe(found)


def test_ids_without_a_name_are_those_of_the_column_that_tells_the_texts_apart(join):
    outputs = "".join(f"u{i}\t{SAID[i]}\n" for i in SHUFFLED)
    rows = [(f"u{i % N}", f"u{i}", text) for i, text in enumerate([*TRUE, *(f"another {i}" for i in range(N))])]
    for rows_of, names in ((rows, ("image_id", "utt_id")), ([(b, a, t) for a, b, t in rows], ("utt_id", "image_id"))):
        assert pairs(join(outputs, table((*names, "sentence"), *rows_of))) == PAIRS


@pytest.mark.parametrize("bare", [[2], [2, 0]])
def test_ids_before_a_tab_are_ids_where_a_line_has_no_tab(join, bare):
    """An empty output had no tab, so that the ids were words, and rows were joined in the order of the files."""
    outputs = "".join(f"U{'T' * i}\t{SAID[i]}\n" if i != 2 else "UTT\n" for i in SHUFFLED)
    references = "".join(f"U{'T' * i}{' ' if i in bare[1:] else chr(9)}{text}\n" for i, text in enumerate(TRUE))
    found = join(outputs, references)
    assert pairs(found) == sorted((text, SAID[i] if i != 2 else "") for i, text in enumerate(TRUE))


def test_of_several_rows_of_an_image_the_first_is_the_reference_if_its_id_is_stated(join, join_refused):
    outputs = json.dumps([{"img_id": f"{i}.jpg", "prediction": [SAID[i]]} for i in SHUFFLED])
    rows = [(f"{i}.jpg", text) for i in range(N) for text in (TRUE[i], f"another {i}")]
    references = table(("image", "caption"), *rows)
    join_refused(r"several references .*, say --id=image,img_id: the first of them counts", outputs, references)
    found = join(outputs, references, id=["image", "img_id"])
    assert pairs(found) == PAIRS
    assert "12 ids have several references; the first of them counts" in describe(found)


@pytest.mark.parametrize(
    "outputs", ['[{"picture":"a1.jpg","prediction":["a dog sits"]}]', "video,generated_caption\nC:/a/v1.mp4,a man\n"]
)
def test_outputs_beside_ids_of_any_name_are_outputs_without_references(write, outputs):
    refusal(write(outputs), r"holds outputs without references .*--reference=FILE")


def test_a_column_of_the_outputs_that_tells_eeg_from_noise_is_not_pooled(join, join_refused):
    references = table(("id", "reference"), ("0", "a b"), ("1", "c d"))
    rows = [(key, "a c", fed) for fed in ("eeg", "noise") for key in "01"]
    join_refused("the column 'source' says what was fed", table(("id", "prediction", "source"), *rows), references)
    conditions = {
        p.eval_condition for p in join(table(("id", "prediction", "condition"), *rows), references).predictions
    }
    assert conditions == {"eeg", "noise"}


@pytest.mark.parametrize("form", ["rows", "lines"])
def test_references_in_groups_stand_beside_one_output_each(join, form):
    groups = [[text, f"{text} again"] if i % 2 else [text] for i, text in enumerate(TRUE)]
    rows = table(("meaning", "ref"), *((f"m{i}", text) for i, group in enumerate(groups) for text in group))
    references = rows if form == "rows" else "\n\n".join("\n".join(group) for group in groups) + "\n"
    found = join("\n".join(SAID) + "\n", references)
    assert pairs(found) == PAIRS
    what = "'meaning'" if form == "rows" else "empty lines"
    assert f"has a group of references, divided by {what}; the first of a group counts" in describe(found)


def test_what_the_references_say_of_repeats_is_said(join):
    rows = [(f"{level}{i}", level, text) for level in "ab" for i, text in enumerate(TRUE)]
    outputs = table(("id", "pred"), *((key, "a b") for key, *_ in rows))
    found = join(outputs, table(("id", "noise level", "reference"), *rows))
    assert f"'noise level' is not used, and each of its 2 values has the same {N} references" in describe(found)


def test_a_reference_without_letters_is_said(write):
    rows = [*zip(TRUE, SAID, strict=True), ("---0---", "---0---")]
    said = "1 reference has no letter, such as '---0---': scored as any other"
    assert said in described(write(table(("reference", "pred"), *rows)))


def test_an_index_without_a_name_tells_a_header_and_joins_nothing_where_names_do(join):
    outputs = [(i, f"f{i}.wav", said) for i, said in enumerate(SAID)]
    references = [(place, f"f{i}.wav", TRUE[i], 1) for place, i in enumerate(SHUFFLED)]
    heads = ("", "file_name", "prediction"), ("", "file_name", "what was said", "total")
    found = join(table(heads[0], *outputs), table(heads[1], *references), columns=["what was said", "prediction"])
    assert pairs(found) == PAIRS
    references = table(("", "file_name", "gt_transcriptions", "n"), *references)
    assert pairs(join(table(heads[0], *outputs), references)) == PAIRS


def test_a_column_mode_of_other_values_is_not_used(write):
    rows = [("speech" if i % 2 else "song", *pair) for i, pair in enumerate(zip(TRUE, SAID, strict=True))]
    found = read_any(write(table(("mode", "reference", "prediction"), *rows)))
    assert pairs(found) == PAIRS
    assert "not used: 'mode'" in describe(found)


def test_objects_by_key_under_a_name_are_read(write):
    rows = {f"{i}.jpg": {"refs": [text], "pred": said} for i, (text, said) in enumerate(zip(TRUE, SAID, strict=True))}
    assert pairs(read_any(write(json.dumps({"overall": {"bleu": 3.0}, "data": "x", "imgToEval": rows})))) == PAIRS


def test_lists_of_numbers_are_no_texts(write):
    rows = [(f"[{i}, 4, 33]", said, text) for i, (text, said) in enumerate(zip(TRUE, SAID, strict=True))]
    assert pairs(read_any(write(table(("preds", "cands", "mrefs"), *rows), "out.csv"))) == PAIRS
