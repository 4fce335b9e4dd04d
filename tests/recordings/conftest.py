"""One simulated study, written once in each format."""

import pytest
from simulated_study import Study, make_content

from configs.default import get_config
from eeg2text_testing.zuco_files import write_v5, write_v73


@pytest.fixture(scope="session")
def study(tmp_path_factory):
    root = tmp_path_factory.mktemp("study")
    made = Study(make_content(0), root / "v5", root / "v7", root / "v73")
    for folder in (made.v5, made.v7, made.v73):
        folder.mkdir()
    write_v5(made.v5 / "resultsZAB_SR.mat", made.content)
    write_v5(made.v7 / "resultsZAB_SR.mat", made.content, compress=True)
    write_v73(made.v73 / "resultsZAB_SR.mat", made.content)
    return made


@pytest.fixture
def data_config():
    return get_config().data
