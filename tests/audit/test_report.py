"""The report stands alone, shows everything and lets nothing of a prediction through as markup."""

import html
import re
import types
from html.parser import HTMLParser

import numpy as np
import pytest
from rows import changed, row, simulated_rows

from eeg2text_jax.auditing.align import align
from eeg2text_jax.auditing.audit import audit
from eeg2text_jax.auditing.collapse import measure_collapse
from eeg2text_jax.auditing.page import Section, markdown_html, write_page
from eeg2text_jax.auditing.report import _collapse_part, _method_part, write_report

VOID = {"meta", "img", "br", "hr"}


class Page(HTMLParser):
    """Checks that tags are balanced; collects sources, tags and text."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.sources, self.alts, self.text = [], [], [], [], ""
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.alts += [value for name, value in attrs if name == "alt"]
        self.sources += [value for name, value in attrs if name in ("src", "href")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


@pytest.fixture(scope="module")
def result():
    eeg, noise = simulated_rows(information=0.2, seeds=3, sentences=20)
    eeg = changed(eeg, prediction=lambda r: f"<script>alert('{r.prediction}')</script> & so")
    return audit(eeg, {"noise <b>": noise}, resamples=150)


def test_report_is_self_contained_and_complete(result, tmp_path):
    (tmp_path / "loss.png").write_bytes(b"\x89PNG not looked into")
    sections = [Section("Scores", "| model | BLEU |\n| --- | ---: |\n| **x** | 1.0 |", [tmp_path / "loss.png"])]
    write_report(result, tmp_path / "report.html", sections=sections)
    page = Page((tmp_path / "report.html").read_text(encoding="utf8"))
    assert "script" not in page.tags
    assert page.sources
    assert all(source.startswith("data:image/") for source in page.sources)
    assert len(set(page.alts)) == 5
    assert all(len(alt) >= len("loss") for alt in page.alts)
    assert page.tags.count("img") == 5  # effect, null, subjects, seeds, loss
    headings = ("Warnings", "What the outputs look like", "Examples", "Method")
    for expected in (result.verdict.value, result.sentence, *headings, "noise <b>", "<script>alert("):
        assert expected in page.text
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


def test_a_title_is_shown_to_the_letter(tmp_path):
    """In the tab and above the page; the parts below it are markup already."""
    title, part = "EEG <-> text & <b>noise</b> &amp; so", "<p>1 &lt; <i>2</i></p>"
    write_page(tmp_path / "page.html", title, [part, part])
    text = (tmp_path / "page.html").read_text(encoding="utf8")
    shown = re.findall("<(title|h1)>(.*?)</(?:title|h1)>", text)
    assert [(tag, html.unescape(inner)) for tag, inner in shown] == [("title", title), ("h1", title)]
    assert f"</h1>{part}{part}<" in text
    page = Page(text)
    assert "b" not in page.tags
    assert page.text.count(title) == 2


def test_report_of_one_file(tmp_path):
    eeg, _ = simulated_rows(sentences=20)
    write_report(audit(eeg, {}, resamples=100), tmp_path / "report.html")
    assert Page((tmp_path / "report.html").read_text(encoding="utf8")).tags.count("img") == 2


def test_markdown():
    text = "# Title\n\nOne **bold** & <u>low</u> line.\n\n| a | b\\|c |\n|---|---:|\n| **x** | &lt;i&gt; \\* |"
    page = Page(markdown_html(text))
    assert page.tags.count("td") == 2
    assert {"h3", "p", "b", "u", "table"} <= set(page.tags)
    assert "i" not in page.tags
    assert "b|c" in page.text
    assert "<i> *" in page.text


def test_cells_repeat_their_heading_as_plain_text():
    shown = markdown_html("| **A** of <u>all</u> **B** | c < d |\n|---|---|\n| **1** | 2 |\n| 3 | 4 |")
    assert re.findall('data-label="([^"]*)"', shown) == ["A of all B", "c &lt; d"] * 2


def test_the_method_says_what_was_drawn_and_with_which_seed(result):
    """Training seeds are drawn, too, where there are three or more."""
    three = _method_part(result)
    eeg, noise = simulated_rows(seeds=2, sentences=20)
    two = _method_part(audit(eeg, {"noise": noise}, resamples=100, seed=7, margin=2.5))
    for said in ("150 permutations", "bootstrap draws over sentences and seeds. ", "±1.", "Random seed 0."):
        assert said in three
    for said in ("100 permutations", "bootstrap draws over sentences. ", "±2.5.", "Random seed 7."):
        assert said in two


def test_the_table_of_outputs_has_every_figure_of_every_condition():
    said = [*["it is it is"] * 8, "go", "", "number 5", "number 5"]  # of six sentences, each with two readers
    rows = [row(i // 2, sample_id=f"{i}", subject="AB"[i % 2], prediction=text) for i, text in enumerate(said)]
    aligned, rng = align({"eeg": rows, "noise": changed(rows, prediction="go")}), np.random.default_rng(0)
    looks = [(c.name, measure_collapse(c, aligned.references, rng)) for c in aligned.conditions]
    shown = _collapse_part(
        types.SimpleNamespace(conditions=[types.SimpleNamespace(name=a, collapse=b) for a, b in looks])
    )
    assert re.findall("<th>(.*?)</th>", shown) == ["", "eeg", "noise"]
    cells = re.findall("<td[^>]*>(.*?)</td>", shown)
    found = dict(zip(cells[::3], zip(cells[1::3], cells[2::3], strict=True), strict=True))
    # Two of six references share five of their seven words.
    assert found.pop("words two outputs share")[1] == "100% (references 71%)"
    assert found == {
        "distinct outputs": ("4 of 12", "1 of 12"),
        "most frequent output": ("67%: it is it is", "100%: go"),
        "most frequent beginning": ("67%: it is", "100%: go"),
        "same for all readers": ("5 of 6 sentences", "6 of 6 sentences"),
        "words repeated within an output": ("33%", "0%"),
        "vocabulary": ("5 (references 11)", "1 (references 11)"),
        "words per output": ("3.1", "1.0"),
        "length follows reference, r": ("–", "–"),
        "empty outputs": ("1", "0"),
    }


def test_the_claim_stands_alone_and_reasons_once_in_the_box(result, tmp_path):
    """The figures follow below; the best examples are of different sentences."""

    def box(found):
        write_report(found, tmp_path / "report.html")
        whole = (tmp_path / "report.html").read_text(encoding="utf8")
        return whole[whole.index('<section class="verdict') : whole.index('<div class="numbers"')]

    assert "one-sided" not in box(result)
    eeg, noise = simulated_rows(information=0.2, sentences=40)
    copied = audit(changed(eeg, prediction=lambda r: r.reference), {"noise": noise}, resamples=150)
    assert box(copied).count("hold their reference to the letter") == 1
    best = [e.reference for e in copied.examples if e.best]
    assert len(set(best)) == len(best) == 4
    alone = audit(noise, {}, resamples=150)
    box(alone)
    page = Page((tmp_path / "report.html").read_text(encoding="utf8")).text
    assert "Score under permuted references" in page
    assert "Score gap" not in page
    assert "minimum detectable effectthe smallest effect" in page.replace("MDE, ", "")
