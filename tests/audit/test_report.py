"""The report stands alone, shows everything and lets nothing of a prediction through as markup."""

import dataclasses
import html
import re
from html.parser import HTMLParser

import pytest
from rows import changed, row, simulated_rows

from eeg2text_jax.instrument.auditing import report
from eeg2text_jax.instrument.auditing.audit import audit
from eeg2text_jax.instrument.auditing.notices import Judged, JudgedFile, Notice, Origin, Provenance
from eeg2text_jax.instrument.auditing.report import Section, markdown_html, write_page, write_report
from eeg2text_jax.instrument.auditing.result import columns_text, limits_of, result_text
from eeg2text_jax.instrument.auditing.table import BY_NAME
from eeg2text_jax.instrument.auditing.verdict import Carrier, Level, Ruling, Time, Verdict, p_text

VOID = {"meta", "img", "br", "hr", "input"}


class Page(HTMLParser):
    """Checks that tags are balanced; collects tags, sources, alternative texts and text."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.sources, self.alts, self.text = [], [], [], [], ""
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.alts += [value for name, value in attrs if name == "alt"]
        self.sources += [value for name, value in attrs if name in ("src", "href")]
        assert not any(name.startswith("on") for name, _ in attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


@pytest.fixture(scope="module")
def result():
    """Three seeds, groups, a further endpoint, texts that are markup."""
    eeg, noise = simulated_rows(information=0.2, seeds=3, sentences=60, seed_sd=0.3)
    eeg = changed(eeg, prediction=lambda r: f"<script>alert('{r.prediction}')</script> & so")
    groups = {"class": {row.reference: "AB"[len(row.reference) % 2] for row in eeg}}
    return audit(eeg, {"noise <b>": noise}, secondary=[BY_NAME["rouge-1"]], groups=groups, margin=2.5)


@pytest.fixture(scope="module")
def null():
    eeg, noise = simulated_rows(seed=1, sentences=60)
    return audit(eeg, {"noise": noise})


@pytest.fixture
def written(tmp_path):
    def write(found, **options):
        write_report(found, tmp_path / "report.html", **options)
        assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
        return (tmp_path / "report.html").read_text(encoding="utf8")

    return write


def head(text):
    return text.partition("<details")[0]


def cells(text, title):
    (part,) = re.findall(rf"<summary>{re.escape(title)}</summary>(.*?)</details>", text, re.DOTALL)
    return [html.unescape(cell) for cell in re.findall("<td[^>]*>(.*?)</td>", part)]


def test_nothing_comes_from_outside_and_no_text_is_markup(result, written, tmp_path):
    (tmp_path / "loss.png").write_bytes(b"\x89PNG not looked into")
    sections = [Section("Scores", "| model | BLEU |\n| --- | ---: |\n| **x** | 1.0 |", [tmp_path / "loss.png"])]
    text = written(result, sections=sections)
    page = Page(text)
    assert page.tags.count("script") == 1  # the search
    assert page.sources
    assert all(source.startswith("data:image/") for source in page.sources)
    assert not re.search(r"@import|url\(|<link|fetch\(", text)
    assert page.tags.count("img") == len(set(page.alts)) == 3  # sentences, comparisons, loss
    assert all(len(alt) >= len("loss") for alt in page.alts)
    assert "noise <b>" in page.text
    assert "<script>alert(" in page.text


def test_the_head_has_the_verdict_four_figures_and_one_picture(result, null, written):
    for found in (result, null):
        top = head(written(found))
        page = Page(top + "</main></body></html>")
        assert page.text.count(found.verdict.headline) == 1
        assert html.unescape(top).replace("\xa0", " ").count(found.sentence) == 1
        assert f'class="verdict {found.verdict.color}"' in top
        assert page.tags.count("img") == page.tags.count("figure") == 1
        assert top.count("<div><b>") <= 4
        assert page.tags.count("li") <= 5
        assert "table" not in page.tags
    assert "margin 2.5 (default 1)" in head(written(result))
    assert f"{result.deciding.contrast.effect:+.2f}" in head(written(result))


def test_more_rows_than_can_be_shown_are_counted(null, written, monkeypatch):
    monkeypatch.setattr(report, "MOST_ROWS", 100)
    assert len(cells(written(null), "Every row")) == 700
    where = "All are in the files that were judged; <code>eeg2text score FILE --rows=OUT</code> scores each."
    assert f"The first 100 of {len(null.rows)} rows. {where}" in written(null)


def test_a_report_of_many_rows_has_the_first_of_them_and_its_picture(written):
    eeg = [row(i, subject=f"S{s}", sample_id=f"{i} {s}") for i in range(30) for s in range(700)]
    text = written(audit(eeg))
    assert len(cells(text, "Every row")) == 7 * 5000
    assert "The first 5000 of 21000 rows" in text
    assert "nan" not in head(text)


def test_what_is_folded_below_the_head(result, written):
    file = JudgedFile("a <file>.csv", "0123abcd", 7, ("layout F & so",))
    text = written(dataclasses.replace(result, judged=Judged((file,), command="eeg2text audit", date="today")))
    below = html.unescape(text.partition("<details")[2])
    main = result.deciding.contrast
    for expected in (
        f"{main.p_seeds:.3f}" if main.p_seeds >= 0.001 else "p < 0.001",
        *(f"{effect:+.2f}" for effect in main.seed_effects),
        *(r.label for r in result.reported),
        *(f"{r.scores[0]:.2f} ({r.nulls[0]:.2f})" for r in result.reported),
        "ROUGE-1 F",
        "class (2)",
        result.time,
        result.provenance.sentence,
        "0123abcd",
        "a <file>.csv",
        "Layout F & so",
        "docs/method.md",
        result.signature,
        "Are {EEG}-to-Text Models Working?",
    ):
        assert expected in below, expected
    assert "Over sentences and training seeds, for these readers" in below
    assert "sentences (540 rows in each condition, 3 readers)" in head(text)
    assert f"t test over seeds {p_text(main.p_seeds)}; the larger p decides" in below
    two = written(dataclasses.replace(result, seeds=(0, 1)))
    assert "Over sentences, for these readers" in two
    readers = cells(text, "What the content is about, and who carries it")
    assert {row.subject for row in result.rows} <= set(readers)


def test_without_a_verdict_there_are_no_figures_but_its_reasons(written):
    eeg, noise = simulated_rows(sentences=40)
    found = audit(changed(eeg, mode="teacher_forced"), {"noise": changed(noise, mode="teacher_forced")})
    top = head(written(found))
    assert "not judgeable" in top
    assert "teacher-forced" in top
    assert "<img" not in top
    assert 'class="numbers"' not in top


def test_a_better_control_is_told_with_the_p_of_less(written):
    eeg, noise = simulated_rows(information=0.2, sentences=60)
    found = audit(noise, {"noise": eeg})
    (contrast,) = (c.contrast for c in found.comparisons)
    assert (found.verdict.base, contrast.p) == (Verdict.CONTROL_BETTER, 1.0)
    text = html.unescape(written(found))
    p = f"{contrast.p_less:.3f}" if contrast.p_less >= 0.001 else "< 0.001"
    told = "p: share of random pairings of outputs and sentences that give at most this"
    assert f"<b>{p}</b><span>{told}" in text
    assert f"<b>{contrast.effect:+.2f}</b><span>content difference in points" in text
    assert cells(text, "Against each control")[:4] == [
        "noise", f"{contrast.effect:+.2f}", "{:+.2f} to {:+.2f}".format(*contrast.interval()), f"{p} (less)"
    ]  # fmt: skip
    assert "Holm" not in text, "the adjusted p is one of more content"
    assert "half is left" not in text


def test_what_limits_a_verdict_in_its_order():
    notices = [Notice("a", "plain", (), (("r0", "p0"),)), Notice("odd", "odd one"), Notice("time", "a warning")]
    barring = [Notice("b", "barred by this", ("",), (("r1", "p1"), ("r2", "p2"))), Notice("c", "and this", ("noise",))]
    origin = Provenance(Origin.STATED, "by somebody")
    several = (Carrier("reader A", 0.25), Carrier("class B", -0.5))
    ruling = Ruling(Verdict.USES_EEG, Level.UNKNOWN, Time.UNKNOWN, several)
    assert limits_of(ruling, notices, origin, "Time is not excluded.", {"odd"}) == [
        "Carried by reader A: without it +0.25.",
        "Carried by class B: without it -0.50.",
        "Origin of the outputs: stated: by somebody.",
        "Unusual, as a decoder or a target may make it: odd one.",
        "Time is not excluded.",
        "Not tested: whether content is about the sentence or about its kind; --groups=COLUMN tells.",
        "plain.",
        "a warning.",
    ]
    beyond = Ruling(Verdict.USES_EEG, Level.SENTENCE, Time.BEYOND)
    assert limits_of(beyond, [], origin, "Content goes beyond.", set()) == [origin.sentence]
    unjudged = Ruling(Verdict.NOT_JUDGEABLE, reason="why")
    found = limits_of(unjudged, [*notices, *barring], origin, "Time.", {"odd"})
    assert found == ["Barred by this.", "And this.", "  'r1' -> 'p1'", "  'r2' -> 'p2'"]


def test_the_console_shows_four_conditions_and_three_limits_and_with_v_all(null):
    limits = [f"Limit {n}." for n in range(5)]
    found = dataclasses.replace(null, conditions=null.conditions * 3, limits=limits, notes=["a note"], reported=[])
    short, whole = result_text(found).splitlines(), result_text(found, verbose=True).splitlines()
    assert sum(line.startswith(("eeg ", "noise ")) for line in short) == 4
    assert short[6] == "and 2 more"
    assert [line for line in short if line in limits] == limits[:3]
    assert len(short) <= 17
    shown = whole[: whole.index("")]
    assert sum(line.startswith(("eeg ", "noise ")) for line in shown) == 6
    assert [line for line in whole if line in limits] == limits
    assert "A note." in whole
    assert columns_text(("a", "bb", ""), ("ccc", "d", "e")) == "a    bb\nccc  d   e"


def test_a_p_of_equivalence_is_not_adjusted(written):
    eeg, noise = simulated_rows(seed=1, sentences=60)
    found = audit(eeg, {"noise": noise}, margin=50, secondary=[BY_NAME["rouge-1"]])
    assert (found.verdict.base, found.adjusted_p > found.deciding.contrast.p) == (Verdict.EQUIVALENT, True)
    assert "Deciding comparison, p" not in written(found)


def test_who_carries_a_claim_or_that_nobody_does(written):
    eeg, noise = simulated_rows(information=0.4, sentences=60)
    one = [r for r in eeg if r.subject == "subject 1"]
    groups = {"class": {row.reference: "AB"[len(row.reference) % 2] for row in eeg}}
    title = "What the content is about, and who carries it"
    for rows, options, who in (
        (eeg, {}, "any one reader or the strongest 2 % of the sentences"),
        (one, {}, "the strongest 2 % of the sentences"),
        (one, {"groups": groups}, "any one group or the strongest 2 % of the sentences"),
        (eeg, {"groups": groups}, "any one reader or any one group or the strongest 2 % of the sentences"),
    ):
        text = written(
            audit(rows, {"noise": [r for r in noise if r.subject in {row.subject for row in rows}]}, **options)
        )
        assert f"<li>Without {who}, half is left or more.</li>" in text
    several = (Carrier("reader A", 0.25), Carrier("class B", -0.5))
    carried = dataclasses.replace(audit(eeg, {"noise": noise}), verdict=Ruling(Verdict.USES_EEG, carriers=several))
    (part,) = re.findall(rf"<summary>{title}</summary>(.*?)</details>", written(carried), re.DOTALL)
    assert "<li>Carried by reader A: without it +0.25.</li><li>Carried by class B: without it -0.50.</li>" in part
    assert "half is left" not in part


def test_limits_notices_and_notes_are_all_there(null, written):
    notices = [
        Notice("one", "first: it holds rows", (), (("true 1", "said 1"),)),
        Notice("two", "second: it holds others", (), (("true 2", "said 2"), ("true 3", ""))),
        Notice("three", "third: it holds none"),
    ]
    limits = ["first: it holds rows.", *(f"Limit {n}." for n in range(4))]
    found = dataclasses.replace(null, notices=notices, limits=limits, notes=["a note", "another note"])
    text = written(found)
    (part,) = re.findall(r"<summary>What limits the verdict, and notes</summary>(.*?)</details>", text, re.DOTALL)
    lines = re.findall("<li>(.*?)</li>", part)
    said = [*limits, null.provenance.sentence, "second: it holds others.", "third: it holds none."]
    assert lines == [*said, "A note.", "Another note."]
    assert cells(text, "What limits the verdict, and notes") == ["true 1", "said 1", "true 2", "said 2", "true 3", ""]
    assert part.index("first: it holds rows:") < part.index("true 1") < part.index("second: it holds others:")
    assert re.findall("<li>(.*?)</li>", head(text)) == [
        *limits[:3],
        "More below, under “What limits the verdict, and notes”.",
    ]
    bars = [dataclasses.replace(notices[0], bars=("",)), *notices[1:]]
    barred = dataclasses.replace(found, notices=bars, verdict=Ruling(Verdict.NOT_JUDGEABLE, reason="why"))
    top = head(written(barred))
    assert ("said 1" in top, "said 2" in top) == (True, False), "rows that show why there is no verdict"


def test_the_signal_has_its_name(written):
    eeg, noise = simulated_rows(sentences=60, information=0.4)
    found = audit(eeg, {"noise": noise}, recording="meg")
    text = written(found)
    assert "Does the model use the MEG?" in text
    assert "EEG" not in head(text)
    assert cells(text, "Against each control")[-1] == found.to_frame()["verdict"][0] == "uses MEG"
    assert found.to_json()["comparisons"][0]["verdict"] == "uses MEG"
    shown = result_text(found, verbose=True) + found._repr_html_()
    assert "EEG" not in shown.replace("eeg2text_jax", "")


def test_one_file_has_one_panel_and_no_control(written):
    eeg, _ = simulated_rows(sentences=60)
    text = written(audit(eeg))
    assert Page(text).tags.count("img") == 2
    assert "sentences (180 rows, 3 readers)" in head(text)
    assert "<span>content in points of 100" in head(text)
    assert "sentences (180 rows)" in head(written(audit(changed(eeg, subject=""))))
    assert "about the difference" not in head(text)


def test_a_title_is_shown_to_the_letter(tmp_path):
    """In the tab and above the page; the parts below it are markup already."""
    title, part = "EEG <-> text & <b>noise</b> &amp; so", "<p>1 &lt; <i>2</i></p>"
    write_page(tmp_path / "page.html", title, [part, part])
    text = (tmp_path / "page.html").read_text(encoding="utf8")
    shown = re.findall("<(title|h1)>(.*?)</(?:title|h1)>", text)
    assert [(tag, html.unescape(inner)) for tag, inner in shown] == [("title", title), ("h1", title)]
    assert f"</h1>{part}{part}<" in text
    assert Page(text).text.count(title) == 2


def test_markdown():
    text = "One **bold** & <u>low</u> line.\n\n| a | b\\|c |\n|---|---:|\n| **x** | &lt;i&gt; \\* |"
    page = Page(markdown_html(text))
    assert page.tags.count("td") == 2
    assert {"p", "b", "u", "table"} <= set(page.tags)
    assert "i" not in page.tags
    assert "b|c" in page.text
    assert "<i> *" in page.text


def test_cells_repeat_their_heading_as_plain_text():
    shown = markdown_html("| **A** of <u>all</u> **B** | c < d |\n|---|---|\n| **1** | 2 |\n| 3 | 4 |")
    assert re.findall('data-label="([^"]*)"', shown) == ["A of all B", "c &lt; d"] * 2
