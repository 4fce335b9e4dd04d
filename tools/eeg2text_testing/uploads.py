"""Files as visitors of the page upload them."""

import csv
import io
import zipfile
from collections.abc import Iterable, Sequence


def table(rows: Iterable[Sequence[str]], header: Sequence[str] = ("truth", "pred")) -> bytes:
    """A CSV file."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([header, *rows])
    return out.getvalue().encode()


def zipped(content: bytes, name: str = "xl/workbook.xml") -> bytes:
    """A zip archive of one file."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, content)
    return out.getvalue()
