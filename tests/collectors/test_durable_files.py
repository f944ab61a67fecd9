"""Who may read what a command writes: what is not published its user alone, whatever the umask."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import os, sys
from pathlib import Path
from collectors import durable_files as files
folder = Path(sys.argv[2])
os.umask(int(sys.argv[1], 8))
files.private_from_here()
files.private_from_here()
files.open_way(folder / "data" / "mine")
(folder / "data" / "mine" / "published").mkdir()
for name in ("ledger", "published/report", "published/database"):
    files.write_whole(folder / "data" / "mine" / name, b"")
(folder / "data" / "mine" / "published" / "database").chmod(0o400)
files.opened(*(folder / "data" / "mine").rglob("published*"), *(folder / "data" / "mine" / "published").iterdir())
os.system(f"touch {folder}/data/mine/of_a_child")
"""


@pytest.mark.parametrize(
    ("umask", "modes"),
    [
        ("022", {"": 0o711, "published": 0o755, "published/report": 0o644, "published/database": 0o444}),
        ("027", {"": 0o710, "published": 0o750, "published/report": 0o640, "published/database": 0o440}),
        ("077", {"": 0o700, "published": 0o700, "published/report": 0o600, "published/database": 0o400}),
    ],
)
def test_only_what_is_opened_is_open_as_far_as_the_umask_lets(
    tmp_path: Path, umask: str, modes: dict[str, int]
) -> None:
    subprocess.run([sys.executable, "-c", PROGRAM, umask, str(tmp_path)], check=True, timeout=60)
    mine = tmp_path / "data" / "mine"
    private = {"ledger": 0o600, "of_a_child": 0o600}
    found = {name: (mine / name).stat().st_mode & 0o777 for name in modes | private}
    assert found == modes | private
    assert mine.parent.stat().st_mode & 0o777 == modes[""]
