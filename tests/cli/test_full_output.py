"""What commands say where nothing more can be written to stdout."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cli.tiny_runs import GRAMMAR, make_run

FULL = Path("/dev/full")
SOURCE = Path(__file__).parents[2] / "src"
MESSAGE = "error: standard output: No space left on device.\n"

pytestmark = pytest.mark.skipif(not FULL.exists(), reason="this system has no /dev/full")


def said(*arguments: str, given: str = "", unbuffered: bool) -> tuple[int, str]:
    """The exit code and the lines on stderr of a command whose results go to a full disk."""
    path = os.pathsep.join([str(SOURCE), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1" if unbuffered else ""}
    command = [sys.executable, "-m", "rankspace", *arguments]
    with FULL.open("w") as full:
        ran = subprocess.run(
            command, env=environment, input=given, stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    return ran.returncode, ran.stderr


@pytest.mark.parametrize("unbuffered", [True, False])
@pytest.mark.parametrize("arguments", [["--help"], ["show"], ["info", "--presets"], ["experiment", "--list"]])
def test_a_full_disk(arguments: list[str], unbuffered: bool) -> None:
    """In the middle of much text, as of the presets, or when all is said."""
    assert said(*arguments, unbuffered=unbuffered) == (2, MESSAGE)


@pytest.mark.parametrize("num_sentences", [1, 3000])
def test_parses_and_runs(tmp_path: Path, num_sentences: int) -> None:
    run = str(make_run(tmp_path / "run", "direct", of="rank-pcfg", **GRAMMAR))
    given = "the dog sees the dog\n" * num_sentences
    assert said("parse", run, "-q", "--device", "cpu", given=given, unbuffered=False) == (2, MESSAGE)
    assert said("info", run, unbuffered=False) == (2, MESSAGE)
