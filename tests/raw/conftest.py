"""What `eeg2text prepare` refuses."""

import pytest


@pytest.fixture
def refusal(refused, tmp_path):
    """Prepare recordings that cannot be; return the sentence. Nothing is left behind."""

    def run(*arguments) -> str:
        before = sorted(tmp_path.rglob("*"))
        sentence = refused(["prepare", *map(str, arguments), f"--out={tmp_path / 'out.h5'}"], alone=False)
        assert sorted(tmp_path.rglob("*")) == before
        return sentence

    return run
