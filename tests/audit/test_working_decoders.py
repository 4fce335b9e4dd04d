"""Published outputs of decoders that work (speech, captions, typing): no rule refuses them; clones lie elsewhere.

`DECODERS=FOLDER` names the folder of clones, `owner+name` each.
"""

import os
from pathlib import Path

import pytest
from working_decoders import SOURCES, Clones, judged, wanted

CLONES = Path(os.environ.get("DECODERS", "none"))
pytestmark = pytest.mark.skipif(not CLONES.is_dir(), reason="DECODERS names no folder of clones")


@pytest.mark.parametrize("kind", SOURCES)
def test_all_are_judged_and_use_the_recording_as_stated(kind):
    found = {path: tuple(judged(pairs)[0]) for path, pairs in SOURCES[kind](Clones(CLONES))}
    assert found
    assert {path: said for path, said in found.items() if said != wanted(path)} == {}
