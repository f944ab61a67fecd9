"""The image is built from a bare Debian and run as its own user, without rights, on a root that is read-only."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from pipelines.fleet.places import PROJECT

NEEDED_BY = {"image": ("buildah", "mmdebstrap", "root", "git")}
pytestmark = pytest.mark.long
MOST_BYTES = 1_200_000_000
DEMO = ("env", "-u", "WATTLEDGER_FLEET")  # the image names the fleet file that a user mounts

# What a container runtime does, with what Linux has: its own mounts, a root that is read-only, a user without rights.
CONTAINED = """
set -e
root=$1 data=$2 place=$3
shift 3
mount --bind "$root" "$place"
mount -o remount,bind,ro "$place"
mount --bind "$data" "$place/data"
mount -t tmpfs tmpfs "$place/tmp"
mount -t proc proc "$place/proc"
mount --rbind /dev "$place/dev"
exec chroot "$place" setpriv --reuid 10001 --regid 10001 --clear-groups --no-new-privs --bounding-set=-all \\
  --inh-caps=-all "$@"
"""


@dataclass(frozen=True)
class Image:
    """The root of a container of the image, an empty folder to mount it at, and the variables that it sets."""

    root: Path
    place: Path
    variables: Mapping[str, str]

    def command(self, data: Path, *words: str) -> list[str]:
        """The words in the container, with `data` as its volume."""
        variables = [f"{name}={value}" for name, value in self.variables.items()]
        inside = ["env", "-i", *variables, *words]
        return ["unshare", "--mount", "bash", "-c", CONTAINED, "contained", self.root, data, self.place, *inside]  # type: ignore[list-item]

    def run(self, data: Path, *words: str) -> subprocess.CompletedProcess[str]:
        """What the words print in the container."""
        return subprocess.run(self.command(data, *words), capture_output=True, text=True, check=False, timeout=600)


def buildah(storage: Path, *words: str | Path) -> str:
    """What buildah prints, with images of its own in `storage` and no other privileges than ours."""
    variables = {**os.environ, "STORAGE_DRIVER": "vfs", "BUILDAH_ISOLATION": "chroot"}
    options = ["--root", storage / "root", "--runroot", storage / "run"]
    done = subprocess.run(
        ["buildah", *options, *words], env=variables, cwd=PROJECT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout.strip()


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Image]:
    folder = tmp_path_factory.mktemp("image")
    base = folder / "base.tar"
    packages = "--include=python3,python3-venv,ca-certificates"
    # The release of this machine, whose keys it has.
    suite = platform.freedesktop_os_release()["VERSION_CODENAME"]
    subprocess.run(["mmdebstrap", "--quiet", "--variant=minbase", packages, suite, base], check=True, timeout=900)
    bare = buildah(folder, "from", "scratch")
    buildah(folder, "add", "--quiet", bare, base, "/")
    buildah(folder, "commit", "--quiet", bare, "localhost/base")
    base.unlink()
    # How this machine reaches the package index: its configuration and its certificates.
    own = ("/etc/pip.conf", "/etc/ssl/certs")
    volumes = [word for path in own if Path(path).exists() for word in ("--volume", f"{path}:{path}:ro")]
    containerfile = ["--file", "deploy/Containerfile", "--ignorefile", ".containerignore"]
    buildah(
        folder, "bud", "--quiet", *containerfile, *volumes, "--build-arg", "BASE=localhost/base", "--tag", "tried", "."
    )
    container = buildah(folder, "from", "tried")
    stated = buildah(folder, "inspect", "--format", "{{range .OCIv1.Config.Env}}{{println .}}{{end}}", container)
    variables = dict(line.split("=", 1) for line in stated.splitlines() if line)
    place = folder / "place"
    place.mkdir()
    try:
        yield Image(Path(buildah(folder, "mount", container)), place, variables)
    finally:
        buildah(folder, "rm", container)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    os.chown(folder, 10001, 10001)
    # Folders of tests are the owner's alone.
    for parent in (tmp_path, *tmp_path.parents):
        if parent.stat().st_uid == os.getuid() and parent.stat().st_mode & 0o001 == 0:
            parent.chmod(parent.stat().st_mode | 0o011)
    return folder


def test_the_image_is_small_and_has_no_checkout(image: Image) -> None:
    printed = subprocess.run(["du", "-sb", image.root], capture_output=True, text=True, check=True).stdout
    assert int(printed.split()[0]) <= MOST_BYTES
    assert not (image.root / "source").exists()
    # What an installed wheel has beside its packages.
    (bundled,) = image.root.glob("opt/wattledger/lib/python3*/site-packages/pipelines/bundled")
    assert {path.name for path in bundled.iterdir()} == {"bi", "dbt_project", "docs", "fleets"}


def test_it_books_a_day_without_rights_on_a_root_that_is_read_only(image: Image, data: Path) -> None:
    refused = image.run(data, "touch", "/etc/wattledger/fleet.yaml")
    assert (refused.returncode, "Read-only file system" in refused.stderr) == (1, True)
    assert image.run(data, "id", "-u").stdout == "10001\n"
    done = image.run(data, *DEMO, "wattledger", "run", "--start", "2026-10-01", "--end", "2026-10-02")
    assert done.returncode == 0, done.stdout + done.stderr
    shown = image.run(data, *DEMO, "wattledger", "sql", "select count(*) as dates from marts.fleet_daily")
    assert shown.stdout.split()[-1] == "1"
    assert {path.stat().st_uid for path in data.rglob("*")} == {10001}


def test_it_serves_and_its_probe_of_compose_answers(image: Image, data: Path) -> None:
    """What compose.yaml asks inside the container; SIGTERM then ends it within the time that it is given."""
    token = "WATTLEDGER_METRICS_TOKEN=s3cret"
    serve = ["wattledger", "serve", "--host", "127.0.0.1", "--port", "9469", "--bearer-env", "WATTLEDGER_METRICS_TOKEN"]
    command = image.command(data, *DEMO, token, *serve)
    probe = (
        "import time, urllib.error, urllib.request\n"
        "for _ in range(240):\n"
        "    try: print(urllib.request.urlopen('http://127.0.0.1:9469/-/healthy', timeout=5).status); break\n"
        "    except urllib.error.URLError: time.sleep(0.5)\n"
        "try: urllib.request.urlopen('http://127.0.0.1:9469/metrics', timeout=5)\n"
        "except urllib.error.HTTPError as refused: print(refused.code)\n"
    )
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as running:
        try:
            asked = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=False)
        finally:
            running.terminate()
        printed, _ = running.communicate(timeout=60)
    assert asked.stdout.split() == ["200", "401"], asked.stderr + printed
    assert running.returncode == 0, printed
