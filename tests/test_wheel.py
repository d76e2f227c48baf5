"""What a built wheel holds besides code."""

import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"


def test_the_files_of_the_package_are_in_the_wheel(tmp_path: Path) -> None:
    """Models, presets and tables alike; hatchling builds it as an installer would, without a network."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    [wheel] = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        held = {name: archive.getinfo(name).file_size for name in archive.namelist()}
    wanted = [path for path in (SOURCE / "rankspace").rglob("*") if path.is_file() and path.suffix != ".pyc"]
    assert {path.relative_to(SOURCE).as_posix(): path.stat().st_size for path in wanted}.items() <= held.items()
    for name in ("craft-small", "craft-small-hmm"):
        assert held[f"rankspace/shipped/{name}/checkpoints/best/model.safetensors"] > 100_000
    assert "rankspace/shipped/README.md" in held
