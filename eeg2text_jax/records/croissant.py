"""Croissant metadata: a JSON description of an exported Parquet file for catalogues of data sets.

The format is version 1.0 of docs.mlcommons.org/croissant.
"""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from eeg2text_jax.data.datafile import DataFile
from eeg2text_jax.files import file_digest, write_text

_TERMS = (
    "citeAs column equivalentProperty extract field fileProperty fileObject fileSet format includes isLiveDataset "
    "jsonPath key md5 parentField path recordSet references regex repeated replace samplingRate separator "
    "source subField transform"
)
_CONTEXT = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "sc": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "dct": "http://purl.org/dc/terms/",
    "conformsTo": "dct:conformsTo",
    **{term: f"cr:{term}" for term in _TERMS.split()},
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
}
_COLUMNS = {
    "sentence": ("sc:Text", "The sentence that was read."),
    "subject": ("sc:Text", "The subject who read the sentence."),
    "task": ("sc:Text", "The task in which the sentence was read."),
    "sentence_index": ("sc:Integer", "Number of the sentence within its task, the same for every subject."),
}
_TIME = {
    "recording": ("sc:Text", "Name of the recording, one run of one subject."),
    "onset": ("sc:Float", "Seconds on the clock of the recorder."),
    "duration": ("sc:Float", "Duration of the sample in seconds."),
    "order": ("sc:Integer", "Place of the sample in its recording."),
}


def write_croissant(data: DataFile, parquet: Path, out: Path, name: str, licence: str = "", cite: str = "") -> None:
    """Write the file `out`, which describes the Parquet file that `write_parquet` made of `data`.

    `licence` is a name or a URL, `cite` preferably BibTeX; empty: not stated.
    """
    times = {} if data.clock is None else _TIME
    fields = [
        {"@type": "cr:Field", "@id": f"samples/{column}", "name": column, "description": meaning, "dataType": kind}
        | {"source": {"fileObject": {"@id": "parquet"}, "extract": {"column": column}}}
        for column, (kind, meaning) in (_COLUMNS | times).items()
    ]
    about: dict[str, Any] = {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "name": name,
        "description": (
            f"{len(data)} samples, each one subject reading one sentence. Beside the columns below, `features` holds a "
            f"list of {data.n_features} numbers for every word: {data.features_are}."
        ),
        "version": "1.0.0",
        "datePublished": datetime.now(UTC).strftime("%Y-%m-%d"),
        "isLiveDataset": False,
        "distribution": [
            {
                "@type": "cr:FileObject",
                "@id": "parquet",
                "name": parquet.name,
                "contentUrl": parquet.name,
                "contentSize": f"{parquet.stat().st_size} B",
                "encodingFormat": "application/x-parquet",
                "sha256": file_digest(parquet),
            }
        ],
        "recordSet": [{"@type": "cr:RecordSet", "@id": "samples", "name": "samples", "field": fields}],
    }
    about |= {key: value for key, value in {"license": licence, "citeAs": cite}.items() if value}
    write_text(out, json.dumps(about, indent=1, ensure_ascii=False) + "\n")
