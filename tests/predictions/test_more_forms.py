"""Forms of decoded text that tools print: notebooks, subtitles, label files, objects in JSON, encodings."""

import html
import json

import pytest
from reading import described, notebook, pairs, refusal, texts

from eeg2text_jax.instrument.predictions.read import describe, read_any

PAIRS = [(f"the {a} was {b} today", f"a {a} is {b} now") for a in ("road", "lake") for b in ("wet", "dry", "old")]


def printed(form):
    return "".join(form.format(*sides, i=i) for i, sides in enumerate(PAIRS))


def frame(titles, rows):
    """Return a DataFrame as a notebook shows it: plain and as HTML."""

    def row(tag, cells):
        return "<tr>" + "".join(f"\n<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>\n"

    body = "".join(row("td", [str(i), *cells]).replace("td>", "th>", 2) for i, cells in enumerate(rows))
    page = f"<div><style scoped>.dataframe {{}}</style><table>{row('th', ['', *titles])}{body}</table></div>"
    plain = "".join(
        f"{title}  \\\n" + "".join(f"{i} {r[k]}\n" for i, r in enumerate(rows)) for k, title in enumerate(titles)
    )
    return {"text/plain": plain, "text/html": page}


def test_a_data_frame_in_a_notebook_is_a_table(write):
    rows = [[p, r] for r, p in PAIRS]
    shown = frame(["hypothesis", "reference"], rows)
    wider = frame(["hypothesis", "reference", "clean"], [[*row, "x"] for row in rows])
    found = read_any(write(notebook("WER: 3\n", shown, shown, wider)))
    assert pairs(found) == PAIRS
    assert "a table among other lines; reference 'reference', prediction 'hypothesis'" in found.layout


def test_texts_that_pandas_cut_are_said(write):
    rows = [[f"{p} | {'and so on ' * 3}..."[:60], r] for r, p in PAIRS]
    found = read_any(write(notebook(frame(["hypothesis", "reference"], rows))))
    assert pairs(found) == [(r, p) for p, r in rows]
    assert any(note.startswith("6 cells end with '...'") for note in found.notes)


def test_the_header_of_a_data_frame_is_no_pair_of_labels(write):
    shown = frame(["hypothesis", "reference"], [[p, r] for r, p in PAIRS])
    for outputs in ([shown], [{"text/plain": shown["text/plain"]}], ["   hypothesis   reference\n0  a b  c d\n"]):
        path = write(notebook(*outputs))
        refusal(path, r"no pairs of lines begin with these labels", labels=["reference", "hypothesis"])


def test_labels_count_where_a_notebook_shows_the_head_of_a_table(write):
    shown = frame(["hypothesis", "reference"], [[p, r] for r, p in PAIRS[:2]])
    log = printed("True: {0}\nPred: {1}\n")
    assert texts(write(notebook(shown, log))) == PAIRS


def test_a_table_of_unknown_names_among_lines_is_proposed_and_read(write):
    path = write("# Title\n\n| COCO text | From the scan |\n|---|---|\n" + printed("| {0} | {1} |\n"))
    refusal(path, r"from line 5, a table among other lines .*'COCO text,From the scan'")
    found = read_any(path, columns=["COCO text", "From the scan"])
    assert pairs(found) == PAIRS
    assert "1 other lines are not used" in found.notes


@pytest.mark.parametrize("mark", [" || ", "\t", " -> "])
def test_lines_of_two_texts_among_others_are_proposed_and_read(write, mark):
    lines = [f"{p} {i}{mark}{r} {i}" for i in range(2) for r, p in PAIRS]
    path = write(notebook("Requirement already satisfied: a\nRequirement already satisfied: b\n", "\n".join(lines)))
    said = refusal(path, r"lines of two texts with .* between .*--columns=1,2 or --columns=2,1")
    assert "Requirement" not in said
    assert texts(path, columns=["2", "1"]) == [(f"{r} {i}", f"{p} {i}") for i in range(2) for r, p in PAIRS]


def test_numbered_labels_and_marks_are_offered(write):
    log = printed("[12:00] \nSENT {i}: x\nPRED {i}: {1}\nPRED SCORE: -1\nGOLD {i}: {0}\n")
    refusal(write(log), r"begin with 'SENT', 'PRED', 'PRED SCORE', 'GOLD'")
    assert texts(write(log), labels=["GOLD", "PRED"]) == PAIRS


def test_lines_of_source_target_and_output_marks_are_read(write):
    """As the tutorial of sequence-to-sequence models prints them; known labels count first."""
    lines = printed("> x\n= {0}\n< {1}\n\n")
    found = read_any(write(notebook(lines)))
    assert pairs(found) == PAIRS
    assert "lines of '>' are taken as sources, of '=' as targets, and of '<' as outputs" in found.notes
    refusal(write(notebook(lines.replace("> x", "< x", 1))), r"begin with '<', '=', '>'")
    other = printed("GT: {0} 1\nPR: {1} 2\n")
    assert texts(write(lines + other)) == [(f"{r} 1", f"{p} 2") for r, p in PAIRS]


def test_lines_of_texts_between_brackets_are_read_by_their_legend_or_columns(write):
    lines = printed("v{i}_x >> [{1}] ({0})\n")
    assert texts(write(notebook("Loading: 3\nExamples: key >> [generated] (ground_truth)\n" + lines))) == PAIRS
    twice = write(notebook(lines + "Examples: key >> [generated] (ground_truth)\n" + lines.replace("now", "then")))
    refusal(twice, "2 blocks: 1 is table of line 0 with 6 rows, 2 is table of line 7")
    legend = "Examples: key >> [generated] (ground_truth)\n"
    assert len(read_any(write(notebook((legend + lines) * 2)), block="all").predictions) == 12  # as often as printed
    path = write(notebook(lines))
    refusal(path, r"lines of texts with '>> \[ ... \] \( ... \)' between .* such as --columns=2,3")
    assert texts(path, columns=["3", "2"]) == PAIRS


def test_printed_lists_without_labels_are_offered_and_read(write):
    """Tokens of two texts below each other; tuples of two texts, also within another value."""
    tokens = "".join(f"{r.split()}\n{p.split()}\n\n" for r, p in PAIRS)
    tuples = "[" + ",\n ".join(map(repr, PAIRS)) + "]\n"
    inside = "".join(f"[Eval {i}] { {'loss': i, 'wrong': PAIRS[i : i + 2]} }\n" for i in range(0, len(PAIRS), 2))
    odd = tokens + "['alone']\n"
    for text, kind in ((odd, "lists of tokens below"), (tuples, "pairs of quoted"), (inside, "pairs of quoted")):
        path = write(notebook("loss 3\n", text))
        refusal(path, rf"{kind} .* name two with .* such as --columns=1,2 or")
        assert texts(path, columns=["1", "2"]) == PAIRS


@pytest.mark.parametrize(
    "form",
    [
        "=== SENTENCE 1 ===\n\nREF: it is a dog\nHYP: it * a **\n       D    \n\n",
        "12:00 Text Reference  :\tit is  a dog\n12:00 Text Hypothesis :\tit ** a *\n12:00 Text Alignment  :\t   D\n",
        '{"reference": "it is a dog", "prediction": "it ** a *"}\n',
    ],
    ids=["jiwer", "a log", "JSON"],
)
def test_asterisks_alone_stand_for_no_word(write, form):
    found = read_any(write(form * 3))
    assert pairs(found) == [("it is a dog", "it a")] * 3
    assert "in 3 rows asterisks alone ('***') stand for words of the other text; they are left out" in found.notes
    form = form.replace(" **", " *").replace("is  a", "is a").replace("*\n", "4\n").replace('*"', '4"')
    assert texts(write(form * 3)) == [("it is a dog", "it * a 4")] * 3


def test_asterisks_of_a_text_are_no_padding(write):
    """Of Markdown and of footnotes: in one row as in an alignment, in another not; nor do blanks change."""
    rows = [
        ("** the price of it", "* the price of it"),
        ("a **bold ** dog", "a ** dog"),
        ("a\u00a0cat * is  here", "a cat"),
    ]
    table = "reference\tprediction\n" + "".join(f"{r}\t{p}\n" for r, p in rows)
    read = read_any(write(table))
    assert pairs(read) == rows
    assert "asterisks" not in " ".join(read.notes)


def test_figures_behind_labels_and_between_marks_are_no_texts(write):
    """Labels of texts are proposed, not those of numbers beside them, and no columns of losses."""
    log = printed("Pred: {i}39, Target: {i}11\nTokens: [1, {i}]\nTarget Sequence:\n {0}\nDetokenized output:\n{1}\n")
    refusal(write(log), r"such as --labels='Target Sequence,Detokenized output'")
    assert texts(write(log), labels="Target Sequence,Detokenized output") == PAIRS
    losses = "".join(f"[Step {i}] batch loss: {i}.1063 | running avg loss: {i}.5\n" for i in range(20))
    said = refusal(write(notebook(losses)), "no samples of known labels")
    assert "--columns" not in said


def test_quotes_between_tabs_that_close_no_field_are_characters(write):
    rows = [('"Go', 'he said "go'), ('a 5 " board', '"it "is'), ("plain", "plain")]
    true = write("".join(f"x {i}\t{r}\n" for i, (r, _) in enumerate(rows)), "true.tsv")
    outputs = write("".join(f"x {i}\t{p}\n" for i, (_, p) in enumerate(rows)), "out.tsv")
    assert texts(outputs, reference=true, columns="2,2") == rows
    assert texts(write("reference\tprediction\n" + "".join(f"{r}\t{p}\n" for r, p in rows))) == rows


def test_several_references_by_id_in_lines_without_a_header(write):
    """In another order, and the ids of the outputs behind the name of a system."""
    references = "".join(f"vid{i}\t{r}\nvid{i}\t{r} again\n" for i, (r, _) in enumerate([*PAIRS, ("one more", "")]))
    outputs = "".join(f"beam\tvid{i}\t{p}\n" for i, (_, p) in [*enumerate(PAIRS)][::-1])
    read = read_any(write(outputs, "out.txt"), reference=write(references, "true.txt"))
    assert pairs(read) == PAIRS[::-1]
    assert f"{len(PAIRS)} ids have several references; the first of them counts" in read.notes
    assert "2 of them without a prediction" in read.layout


def cues(texts, mark):
    return "".join(
        f"{i}\n00:00:0{i}{mark}000 --> 00:00:0{i}{mark}900\n<i>{text}\nagain</i>\n\n" for i, text in enumerate(texts)
    )


@pytest.mark.parametrize(("head", "mark"), [("", ","), ("WEBVTT\n\n", ".")])
def test_subtitles_are_their_texts(write, head, mark):
    reference = write(head + cues([r for r, _ in PAIRS], mark), "true.srt")
    found = read_any(write(head + cues([p for _, p in PAIRS], mark), "out.srt"), reference=reference)
    assert pairs(found) == [(f"{r} again", f"{p} again") for r, p in PAIRS]


def test_label_files_of_htk_are_texts_by_id(write):
    def labels(texts, end, line):
        of = [f'"*/u{i}.{end}"\n' + "".join(line.format(w) for w in text.split()) + ".\n" for i, text in texts]
        return "#!MLF!#\n" + "".join(of)

    numbered = [*enumerate(PAIRS)]
    reference = write(labels([(i, r) for i, (r, _) in numbered], "lab", "{}\n"), "true.mlf")
    outputs = labels([(i, p) for i, (_, p) in numbered[::-1]], "rec", "100 200 {} -1.5\n")
    assert texts(write(outputs, "out.mlf"), reference=reference) == PAIRS[::-1]


NIST = {
    "a word a line": "u{i} 1 0.5 0.5 {text:.3} 0.9\n",
    "a digit a line": "u{i} 1 0.5 0.5 7 0.9\n",
    "a text a line": "talk 1 s{i} {i}.5 {i}.9 <o,f0> {text}\n",
}


@pytest.mark.parametrize("form", NIST.values(), ids=NIST)
def test_files_of_nist_are_refused_by_name(write, form):
    one, two = (";; a\n" + "".join(form.format(i=i, text=of[k]) for i, of in enumerate(PAIRS)) for k in (0, 1))
    refusal(write(one, "out"), r"a file of NIST .*write a text on each line", reference=write(two, "true"))


MARKED = {
    "WMT": '<seg id="{i}">{text} &amp;\n <b>so</b></seg>\n',
    "Moses": "{i} ||| {text} & so ||| F0= -1.5 ||| -0.3\n",
    "Whisper": "[00:0{i}.000 --> 00:0{i}.900]  {text} & so\n",
    "Audacity": "{i}.5 {i}.9 {text} & so\n",
}


@pytest.mark.parametrize("form", MARKED.values(), ids=MARKED)
def test_texts_among_marks_are_read(write, form):
    one, two = ("".join(form.format(i=i, text=of[k]) for i, of in enumerate(PAIRS)) for k in (0, 1))
    plain = write("".join(f"{r} & so\n" for r, _ in PAIRS), "plain.txt")
    for reference in (write(one, "true"), plain):
        found = read_any(write(two, "out"), reference=reference)
        assert pairs(found) == [(f"{r} & so", f"{p} & so") for r, p in PAIRS]


LINES = {
    "in quotes": '"{text}"\n',
    "a list of Python": "['', {text!r},\n",
    "id and bar": "u{i}|{text}\n",
    "id and comma": "u{i},{text}\n",
    "id and colon": "u{i}: {text}\n",
    "id and quotes": 'u{i}: "{text}"\n',
}


@pytest.mark.parametrize("form", LINES.values(), ids=LINES)
def test_marks_around_texts_are_no_part_of_them(write, form):
    def side(k):
        of = [form.format(i=i, text=of[k]) for i, of in enumerate(PAIRS)]
        return "[" + "".join(of).replace("['', ", " ") + "]" if "[" in form else "".join(of)

    assert texts(write(side(1), "out"), reference=write(side(0), "true")) == PAIRS


def test_a_page_is_a_table(write):
    def page(titles, rows):
        line = "".join(f"<th>{title}</th>" for title in titles)
        body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>\n" for row in rows)
        return f"<!DOCTYPE html><html><h1>A page</h1><table><tr>{line}</tr>\n{body}</table></html>"

    assert texts(write(page(["Reference", "Hypothesis"], PAIRS))) == PAIRS
    one, two = (page(["id", "text"], [[f"u{i}", of[k]] for i, of in enumerate(PAIRS)][:: 1 - 2 * k]) for k in (0, 1))
    assert texts(write(two, "out"), reference=write(one, "true")) == PAIRS[::-1]


def test_ids_and_the_names_of_sound_files_are_joined(write):
    manifest = "".join(
        json.dumps({"audio_filepath": f"/a/u-{i}.wav", "text": r}) + "\n" for i, (r, _) in enumerate(PAIRS)
    )
    outputs = write("".join(f"u-{i}\t{p}\n" for i, (_, p) in reversed([*enumerate(PAIRS)])), "out")
    assert texts(outputs, reference=write(manifest, "true")) == PAIRS[::-1]


def test_a_textgrid_is_refused_by_name(write):
    path = write('File type = "ooTextFile"\nObject class = "TextGrid"\n')
    refusal(path, "a TextGrid of Praat", reference=write("a\n", "true"))


def test_a_field_of_an_object_in_json_is_a_column(write):
    rows = [
        {"id": f"e{i}", "query": "what is it?", "answers": [{"text_en": t, "score": 1}, {"text_en": "x y", "score": 0}]}
        for i, (_, t) in enumerate(PAIRS)
    ]
    true = [
        {"id": f"e{i}", "query": "what is it?", "answers": [{"text_en": r, "score": 1}]}
        for i, (r, _) in enumerate(PAIRS)
    ]
    reference, outputs = write(json.dumps(true[::-1]), "true.json"), write(json.dumps(rows), "out.json")
    refusal(outputs, r"such as --columns=answers.text_en,answers.text_en", reference=reference)
    found = read_any(outputs, reference=reference, columns=["answers.text_en"] * 2)
    assert pairs(found) == PAIRS
    assert found.notes == ("in 6 rows predictions hold several texts; the first of them counts",)
    lines = [json.dumps({"id": i, "out": {"gt": {"text": r}, "pred": p}}) for i, (r, p) in enumerate(PAIRS)]
    assert texts(write("\n".join(lines)), columns=["out.gt.text", "out.pred"]) == PAIRS


def test_lists_by_key_of_two_sides_are_read(write):
    sides = {
        "gts": {f"{i}": [r, f"{r} x"] for i, (r, _) in enumerate(PAIRS)},
        "res": {f"{i}": [p] for i, (_, p) in enumerate(PAIRS)},
    }
    assert texts(write(json.dumps(sides))) == PAIRS


def test_ids_with_the_names_of_systems_are_said(write):
    reference = write("file,transcript\n" + printed("{i}.mp3,{0}\n"), "true.csv")
    systems = {f"{i}.mp3__{s}": {"transcript": p} for s in ("one", "two") for i, (_, p) in enumerate(PAIRS)}
    refusal(
        write(json.dumps(systems)),
        r"its ids are those of .* with '__one', '__two' behind them",
        reference=reference,
        id=["file", "key"],
    )


def test_two_files_of_unknown_names_get_a_proposal(write):
    def runs(place):
        rows = "".join(f"t{i}{k},GENHX of {k},{of[place]}\n" for k in (0, 1) for i, of in enumerate(PAIRS))
        return write("Test,Run1,Run2\n" + rows, f"{place}.csv")

    refusal(runs(1), r"columns without known names.*such as --columns=Run2,Run2", reference=runs(0))


def test_utf_7_is_decoded(write):
    text = "ground_truth,prediction\n" + printed('"{0}, é","{1}"\n')
    coded = text.replace('"', "+ACI-").replace("_", "+AF8-").replace("é", "+AOk-")
    assert texts(write(coded, "file.csv")) == [(f"{r}, é", p) for r, p in PAIRS]


def test_objects_of_a_log_among_those_of_samples_are_left_out(write):
    lines = [{"loss": 2.0, "step": 1}, *({"label": r, "prediction": p} for r, p in PAIRS), {"eval_loss": 1.0}]
    for form in (json.dumps, str):  # as JSON, and as the dicts that a trainer prints
        found = read_any(write("\n".join(map(form, lines))))
        assert pairs(found) == PAIRS
        assert found.notes == ("2 lines without two texts are not used, such as line 1",)


def test_two_columns_of_texts_are_proposed(write):
    table = "utterance,asr_system,human\n" + printed("u{i},{1},{0}\n")
    refusal(write(table), r"such as --columns=asr_system,human or --columns=human,asr_system")


def test_boxes_around_a_table_in_a_log_are_read(write):
    head = "┏━━━┳━━━┓\n┃ Reference ┃ Prediction ┃\n┡━━━╇━━━┩\n"
    assert texts(write(head + printed("│ {0} │ {1} │\n") + "└───┴───┘\n│   ├── a\n")) == PAIRS


def test_lists_of_bytes_are_texts(write):
    log = printed("target: [b'{0}' b'x y']\npred: [b'{1}']\n")
    assert texts(write(log)) == PAIRS


@pytest.mark.parametrize("mark", [" | ", "||", "<>"])
def test_of_several_references_in_a_cell_the_first_counts(write, mark):
    rows = [{"reference": f"{r}{mark}a man is out", "prediction": p} for r, p in PAIRS]
    found = read_any(write("\n".join(map(json.dumps, rows))))
    assert pairs(found) == PAIRS
    assert found.notes == ("in 6 rows references hold several texts; the first of them counts",)
    spoken = [{**row, "prediction": f"{row['prediction']}{mark}now"} for row in rows]
    assert texts(write("\n".join(map(json.dumps, spoken))))[0][0] == rows[0]["reference"]
    some = [dict(zip(row, pair, strict=True)) for row, pair in zip(rows[:3], PAIRS[:3], strict=True)] + rows[3:]
    left = PAIRS[3][0] if mark == "<>" else rows[3]["reference"]
    assert texts(write("\n".join(map(json.dumps, some))))[3][0] == left


def test_a_word_that_is_said_again_stays(write):
    """In a list of tokens; references that are equal texts are one."""
    rows = [
        {"reference": ["no", "no", "no"], "prediction": ["go"] * 3},
        {"reference": ["a dog"] * 2, "prediction": ["x", "y"]},
    ]
    assert texts(write("\n".join(map(json.dumps, rows)))) == [("no no no", "go go go"), ("a dog", "x y")]


def test_a_mark_in_one_reference_of_many_is_of_its_text(write):
    rows = [*PAIRS, ("from Ukrainian<>Czech to English", "to English")]
    assert texts(write("reference,prediction\n" + "".join(f"{r},{p}\n" for r, p in rows))) == rows


def test_fields_between_bars_behind_a_logger(write):
    """The input before both texts, figures behind them."""
    lines = printed("10:0{i} - INFO - Input: das | Output: {1} | Reference: {0} | BLEU: {i} | Time: 1s\n")
    assert texts(write("Log\n" + lines)) == PAIRS


def test_columns_of_codes_are_not_proposed_as_texts(write):
    """Names of readers share more letters than the texts."""
    some = enumerate(PAIRS)
    outputs = [{"who": f"U00{i}", "said_en": f"{r[4:8]} zz qq vv", "note": "xy, kk"} for i, (r, _) in some]
    true = [{"who": f"U00{i + 3}", "told_en": r, "query": "gh jj?"} for i, (r, _) in enumerate(PAIRS)]
    refusal(
        write(json.dumps(outputs), "out.json"),
        r"such as --columns=told_en,said_en",
        reference=write(json.dumps(true), "true.json"),
    )


def test_phonemes_with_bars_between_words_are_not_cut(write):
    spelled = [f"a b | c d e f g {c} i" for c in "abcdef"]
    found = read_any(write("reference,prediction\n" + "".join(f"{r},a b c\n" for r in spelled)))
    assert [row.reference for row in found.predictions] == spelled
    letters = read_any(write("reference,prediction\n" + "".join(f"{' '.join(r)},a b c d e f\n" for r, _ in 2 * PAIRS)))
    assert "the references are letters apart; each counts as a word" in describe(letters)
    empty = read_any(write("reference,prediction\n" + ",a b c d e f\n" * 20))
    assert "letters apart" not in describe(empty), "no references have no letters"


@pytest.mark.parametrize("mark", [",", ";", "|", "/"])
def test_marks_that_may_stand_between_references_in_a_cell_are_said(write, mark):
    rows = [{"reference": f"{r}{mark}{r.replace('the', 'a')}", "prediction": p} for r, p in PAIRS]
    said = described(write("\n".join(map(json.dumps, rows))))
    assert f"6 of 6 references hold {mark.strip()!r}, in 6 of them between texts that share most words" in said
    assert "write <> between them, or a list" in said
    spoken = [{**row, "prediction": f"{row['prediction']}{mark}now"} for row in rows]
    plain = [{"reference": f"{r}{mark}and so it went", "prediction": p} for r, p in PAIRS]
    for others in (spoken, plain):
        assert "several references" not in described(write("\n".join(map(json.dumps, others))))


def test_the_columns_that_are_most_alike_are_proposed(write):
    lines = ["datei,wort fuer wort,wahr,gehoert,n"]
    lines += [f"x{i}.wav,{' '.join(r)},{r.replace(' ', '')},{p.replace(' ', '')},{i}" for i, (r, p) in enumerate(PAIRS)]
    refusal(write("\n".join(lines) + "\n"), r"such as --columns=wahr,gehoert or --columns=gehoert,wahr if line 1")


def test_only_the_first_column_is_called_an_index(write):
    lines = [",reference,prediction,,"] + [f"{i},{r},{p},," for i, (r, p) in enumerate(PAIRS)]
    layout = read_any(write("\n".join(lines) + "\n")).layout
    assert "not used: the index (column 1), column 4 (no name), column 5 (no name)" in layout


@pytest.mark.parametrize("one_line", [False, True])
def test_two_systems_behind_one_known_name_are_asked_about(write, one_line):
    """The name of one system has a digit, as what may stand before a label, and was taken without a word."""
    mark = " | " if one_line else "\n"
    rows = [mark.join((f"True: {r}", f"Mri pred: {p}", f"Net2 pred: a {p}")) for r, p in PAIRS]
    refusal(write("\n".join(rows) + "\n"), r"(several labels may be meant|has a label several times).*name two with")
    for system, said in (("Mri pred", ""), ("Net2 pred", "a ")):
        found = read_any(write("\n".join(rows) + "\n"), labels=["True", system])
        assert pairs(found) == [(r, said + p) for r, p in PAIRS]


def test_lines_that_stand_apart_from_the_texts_are_no_texts(write):
    """As of sclite; a line directly below a text may go on there, and is asked about."""
    rows = [f"REF:  {r}\nHYP:  {p}\n" for r, p in PAIRS]
    found = read_any(write("\n".join(["\t\tDUMP OF ALL THIS\n", "Speakers:\n   0:  ll\n", *rows, "the end of it\n"])))
    assert pairs(found) == PAIRS
    assert "4 other lines are not used, such as line 1: 'DUMP OF ALL THIS'" in describe(found)
    path = write("".join(f"{row}and more of it\n" for row in rows))
    refusal(path, "found 'and more of it'; write each text on one line")


@pytest.mark.parametrize("mark", ["\t", " "])
def test_lines_of_a_log_that_begin_with_an_id_of_the_references_are_its_texts(write, mark):
    words = ["down", "left", "right", "stop"]
    log = "".join(f"s1_{word}_0{mark}{word[:3]}\nLOG (x): Log-like for s1_{word}_0 is 3\n" for word in words)
    reference = write("".join(f"s1_{word}_0\t{word}\n" for word in words[::-1]), "text")
    found = read_any(write(f"# Started at noon\nadd-deltas\n{log}"), reference=reference)
    assert pairs(found) == [(word, word[:3]) for word in words]
    assert "6 lines that do not begin with an id of the references are not used" in describe(found)
    plain = write("".join(f"s1_{word}_0\t{word[:3]}\n" for word in words), "plain")
    assert sorted(texts(plain, reference=reference)) == sorted(pairs(found))


def test_rows_with_commas_among_the_lines_of_a_log_are_proposed(write):
    rows = [*PAIRS, *((f"{r} and on", p) for r, p in PAIRS)]
    log = "Using custom data, as it is, here\n" + "".join(f"0.{i},{r},{p}\n" for i, (r, p) in enumerate(rows))
    path = write(f"{log}TOTAL,0.1,0.2,,\n")
    refusal(path, r"from line 2, lines of 3 cells with ',' between .* such as --columns=2,3")
    assert texts(path, columns=["2", "3"]) == rows


def test_ids_that_recur_in_the_references_alone_are_proposed(write):
    outputs = "file_name,prediction\n" + printed("v{i}.mp3,{1}\n")
    rows = [f"{k},v{i},{r}{' again' * k}\n" for i, (r, _) in enumerate(PAIRS) for k in (0, 1)]
    reference = write("cap,video,caption\n" + "".join(rows), "refs.csv")
    refusal(write(outputs, "out.csv"), "say --id=video,file_name to join by them", reference=reference)
    assert texts(write(outputs, "out.csv"), reference=reference, id=["video", "file_name"]) == PAIRS


@pytest.mark.parametrize("control", ["random", "shuffled", "zero"])
def test_a_column_of_a_control_beside_eeg_is_a_condition(write, control):
    rows = printed("{0},{1},{1} not\n")
    found = read_any(write(f"sentence,EEG,{control}\n{rows}")).predictions
    assert {row.eval_condition for row in found} == {"eeg", "noise" if control == "random" else control}
    assert len(found) == 2 * len(PAIRS)


def test_labels_in_angles_and_behind_hyphens(write):
    angles = printed('12:30:01,1 - INFO - <label> "{0}", <pred> "{1}"\n')
    assert texts(write(angles)) == PAIRS
    hyphens = printed("- ref > {0}\n- hyp > {1}\n")
    assert texts(write(hyphens)) == PAIRS


def test_utf_7_of_any_script_is_text(write):
    rows = [(f"\u0434\u0430 \u043d\u0435\u0442 {r}", p) for r, p in PAIRS]
    text = "reference,prediction\n" + "".join(f"{r},{p}\n" for r, p in rows)
    assert texts(write(text.encode("utf-7"))) == rows
    calls = [(f"call +4930123456{i} or +word and", p) for i, (_, p) in enumerate(PAIRS)]
    assert texts(write("reference,prediction\n" + "".join(f"{r},{p}\n" for r, p in calls))) == calls


def test_syllables_of_hangul_are_no_phonemes(write):
    first = "\uc74c\uc545 \uc88b\uc740 \uadf8\ub294"
    rows = [{"reference": f"{first}<>\ub3c4\uc2dc \uc804\uc7c1", "prediction": "\uc9d1 \ub3c4\uc2dc"}] * 6
    assert read_any(write(json.dumps(rows))).predictions[0].reference == first
