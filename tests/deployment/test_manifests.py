"""What deploy/ states beside the image: manifests by Kubernetes' own schemas, systemd units, and one port, user and
volume in all of them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipelines.fleet.fleet_file import load_fleet
from pipelines.fleet.places import PROJECT
from tests.optional import required

DEPLOY = PROJECT / "deploy"
MANIFESTS = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
UNITS = sorted((DEPLOY / "systemd").iterdir())


def documents(*names: str) -> dict[str, Any]:
    """Kind -> the resource of these manifests."""
    texts = ((DEPLOY / "kubernetes" / name).read_text(encoding="utf-8") for name in names)
    return {one["kind"]: one for text in texts for one in yaml.safe_load_all(text)}


def containerfile(word: str) -> str:
    """The last line of the Containerfile that begins with a word."""
    text = (DEPLOY / "Containerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    return re.findall(rf"^{word} (.*)$", text, re.MULTILINE)[-1]


@pytest.mark.needs("kubernetes")
@pytest.mark.parametrize("version", ["1.30", "1.37"])
def test_kubernetes_takes_the_manifests(version: str) -> None:
    (validate,) = required("kubernetes")
    done = subprocess.run(
        [validate, "--strict", "-k", version, *MANIFESTS], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(re.findall(" passed for resource ", done.stdout + done.stderr)) == 5


@pytest.mark.needs("kubernetes")
def test_a_mistyped_key_is_refused(tmp_path: Path) -> None:
    (validate,) = required("kubernetes")
    wrong = tmp_path / "wrong.yaml"
    text = (DEPLOY / "kubernetes" / "wattledger.yaml").read_text(encoding="utf-8")
    wrong.write_text(text.replace("readOnlyRootFilesystem", "readonlyRootFilesystem"))
    assert subprocess.run([validate, "--strict", wrong], capture_output=True, check=False).returncode != 0


def test_one_port_user_and_volume_everywhere(tmp_path: Path) -> None:
    of_pods = documents("wattledger.yaml")
    pod = of_pods["Deployment"]["spec"]["template"]["spec"]
    night = documents("cronjob.yaml")["CronJob"]["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))["services"]["wattledger"]
    port = containerfile("EXPOSE")
    assert (
        pod["containers"][0]["ports"][0]["containerPort"] == of_pods["Service"]["spec"]["ports"][0]["port"] == int(port)
    )
    assert compose["ports"] == [f"127.0.0.1:{port}:{port}"]
    user = int(containerfile("USER").partition(":")[0])
    assert {pod["securityContext"]["runAsUser"], night["securityContext"]["runAsUser"]} == {user}
    volume = containerfile("VOLUME")
    for mounted in (pod, night):
        assert volume in {one["mountPath"] for one in mounted["containers"][0]["volumeMounts"]}
        assert mounted["containers"][0]["securityContext"]["readOnlyRootFilesystem"] is True
    assert f"data:{volume}" in compose["volumes"]
    # Two writers would wait for each other: one pod, and the old one ends first.
    assert (of_pods["Deployment"]["spec"]["replicas"], of_pods["Deployment"]["spec"]["strategy"]["type"]) == (
        1,
        "Recreate",
    )
    assert of_pods["PersistentVolumeClaim"]["spec"]["accessModes"] == ["ReadWriteOncePod"]
    # The fleet file of the manifest is one.
    written = tmp_path / "fleet.yaml"
    written.write_text(of_pods["ConfigMap"]["data"]["fleet.yaml"])
    assert load_fleet(written, {"WATTLEDGER_DATA": str(tmp_path)}).fleet == "cluster"


@pytest.mark.needs("systemd")
def test_systemd_takes_the_units(tmp_path: Path) -> None:
    """The program is at another place here: all else of the units is checked as it is."""
    for unit in UNITS:
        text = re.sub(r"/opt/wattledger/bin/\S+", "/bin/true", unit.read_text(encoding="utf-8"))
        (tmp_path / unit.name).write_text(text.replace("User=wattledger", "User=root"))
    done = subprocess.run(
        ["systemd-analyze", "verify", *sorted(tmp_path.iterdir())], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    (tmp_path / "wattledger.service").write_text(
        (DEPLOY / "systemd" / "wattledger.service").read_text() + "[Nonsense\n"
    )
    done = subprocess.run(
        ["systemd-analyze", "verify", tmp_path / "wattledger.service"], capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
