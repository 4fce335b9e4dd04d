"""Hosts with a workdir in a bucket, one of which is killed: the restart ends with the bytes of an undisturbed run."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("moto", reason="the extra `test` brings a server of S3")
ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_a_killed_host(tmp_path):
    """`tools/simulate.py` does the same on gs://, with hosts that are stopped, and as often as one likes."""
    command = [sys.executable, "tools/simulate.py", str(tmp_path), "--kills=1", "--stops=0"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1200)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "SIGKILL 1 times and SIGSTOP 0 times on s3: 0 failures" in ended.stdout
    assert "struck_1: the bytes of one process" in ended.stdout
