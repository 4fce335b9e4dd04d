"""Files as visitors of the page upload them."""

import csv
import io
import zipfile
from collections.abc import Iterable, Sequence


def table(rows: Iterable[Sequence[str]], header: Sequence[str] = ("truth", "pred")) -> bytes:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([header, *rows])
    return out.getvalue().encode()


def zipped(content: bytes, *names: str) -> bytes:
    """A zip archive of files with one content; without names, of what an Excel file has."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names or ("xl/workbook.xml",):
            archive.writestr(name, content)
    return out.getvalue()
