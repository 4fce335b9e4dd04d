"""A run whose data and workdir are in a bucket, killed twice and resumed, ends with the results of one in a folder."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("moto", reason="the extra `test` brings a server of S3")
ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_killed_twice_and_resumed_equals_a_run_in_a_folder(tmp_path):
    """`tools/faults.py` does the same with other commands, on gs://, and as often as one likes.

    tests/test_resume.py ends a run by SIGTERM and begins it again on another machine.
    """
    command = [sys.executable, "tools/faults.py", str(tmp_path), "--cases=run", "--stores=s3", "--kills=2"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout.count("run on s3, ") >= 2
    assert " faults, 0 failures" in ended.stdout
