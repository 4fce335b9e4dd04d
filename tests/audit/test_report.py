"""The report stands alone, shows everything and lets nothing of a prediction through as markup."""

from html.parser import HTMLParser

import pytest
from rows import changed, simulated_rows

from eeg2text_jax.auditing.audit import audit
from eeg2text_jax.auditing.page import Section, markdown_html
from eeg2text_jax.auditing.report import write_report

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
    for expected in (result.verdict.value, result.sentence, "Warnings", "Examples", "noise <b>", "<script>alert("):
        assert expected in page.text
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


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
