"""What lies in docs/deploy is right: it parses, names what there is, and does what it says where the tool is there."""

from __future__ import annotations

import configparser
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.server.api.asking import ask, scrape
from tests.server.process import Process
from tests.server.wire.places import open_site
from topics.cli.config.settings import TABLE
from topics.server.settings import ServerSettings

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "docs" / "deploy"
VARIABLES = {setting.variable for setting in TABLE.values()}
NAME = re.compile(r"\b(?:topics|process)_[a-z_]+")
RULES = yaml.safe_load((DEPLOY / "alerts.yml").read_text())["groups"][0]["rules"]
DASHBOARD = json.loads((DEPLOY / "grafana.json").read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
INSTRUCTION = re.compile(r"^([A-Z]+) ((?:.*\\\n)*.*)", re.MULTILINE)
RECIPE = INSTRUCTION.findall((DEPLOY / "Dockerfile").read_text())


class Unit(dict):
    """A unit file may give a key twice."""

    def __setitem__(self, key, value):
        super().__setitem__(key, self[key] + value if key in self and isinstance(value, list) else value)


def unit():
    parser = configparser.ConfigParser(dict_type=Unit, strict=False, interpolation=None)
    parser.optionxform = str
    parser.read(DEPLOY / "topics.service")
    return parser


# Metrics.


@pytest.mark.trio
async def test_every_metric_that_alerts_and_dashboard_name_is_one_of_ours():
    async with open_site() as site:
        await ask(site, "PUT", "/v0/topics/q", {"type": "queue"})
        await ask(site, "POST", "/v0/topics/q", {"records": [{"data": 1}]})
        await ask(site, "PUT", "/v0/topics/a", {})
        await ask(site, "PUT", "/v0/topics/a/consumers/c", {})
        await ask(site, "PUT", "/v0/routers/r", {"source": "a", "dest": "b"})
        await ask(site, "POST", "/v0/topics/a/diff", {"from_seq": 0, "epoch": 99})
        names = {key[0] for key in await scrape(site)}
    asked = [rule["expr"] for rule in RULES] + [
        target["expr"] for panel in PANELS for target in panel["targets"]
    ]
    asked += [one["query"] for one in DASHBOARD["templating"]["list"]]
    named = {name for expression in asked for name in NAME.findall(expression)}

    assert len(named) > 30
    assert named <= names
    assert {"topics_router_lag", "topics_router_forwarded_total", "topics_pressure"} <= named


def test_each_alert_says_how_bad_it_is_and_what_to_do():
    assert len({rule["alert"] for rule in RULES}) == len(RULES) > 10
    for rule in RULES:
        assert rule["labels"]["severity"] in {"page", "ticket"}, rule["alert"]
        assert rule["annotations"]["summary"], rule["alert"]
        assert rule["annotations"]["description"].endswith("."), rule["alert"]


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_prometheus_takes_the_alerts():
    subprocess.run(["promtool", "check", "rules", DEPLOY / "alerts.yml"], check=True, capture_output=True)


def test_the_dashboard_has_each_panel_once_and_in_its_place():
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    taken = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert place["x"] + place["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells
    for panel in PANELS:
        assert panel["title"]
        assert panel["targets"], panel["title"]
        assert panel["datasource"]["uid"] == "${datasource}"
        for target in panel["targets"]:
            assert 'instance=~"$instance"' in target["expr"]
            assert target["expr"].count("(") == target["expr"].count(")")


# systemd.


@pytest.mark.rule("O7.2")
def test_the_unit_starts_the_server_as_it_is():
    service = unit()["Service"]

    assert service["Type"] == "notify"
    assert service["ExecStart"].split()[1:] == ["serve"]
    assert "-HUP" in service["ExecReload"]
    variables = set(re.findall(r"TOPICS_[A-Z_]+", (DEPLOY / "topics.service").read_text()))
    assert {"TOPICS_DATA_DIR", "TOPICS_HOST", "TOPICS_PORT"} <= variables <= VARIABLES
    assert int(service["TimeoutStopSec"].removesuffix("s")) * 1000 > ServerSettings().drain_ms


@pytest.mark.rule("O7.2")
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_takes_the_unit(tmp_path):
    """With the command of this environment in the place of the installed one, which systemd looks for."""
    text = (DEPLOY / "topics.service").read_text()
    here = tmp_path / "topics.service"
    here.write_text(text.replace("/opt/topics/bin/topics", str(Path(sys.executable).with_name("topics"))))
    done = subprocess.run(["systemd-analyze", "verify", here], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout + done.stderr) == (0, "")


# Containers.


def given(instruction):
    return [text for name, text in RECIPE if name == instruction]


@pytest.mark.rule("O7.2")
def test_the_recipe_ends_as_a_user_without_rights_with_a_volume_and_a_check():
    last = [name for name, _ in RECIPE][max(i for i, (name, _) in enumerate(RECIPE) if name == "FROM") :]

    assert len(given("FROM")) == 2
    assert given("USER") == ["topics"]
    assert last.index("USER") < last.index("ENTRYPOINT")
    assert given("VOLUME") == ["/data"]
    assert (json.loads(given("ENTRYPOINT")[0]), json.loads(given("CMD")[0])) == (["topics"], ["serve"])
    assert set(re.findall(r"TOPICS_[A-Z_]+", (DEPLOY / "Dockerfile").read_text())) <= VARIABLES
    copied = [source for text in given("COPY") if "--from" not in text for source in text.split()[:-1]]
    assert all((ROOT / source).exists() for source in copied)
    ignored = (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
    assert {f"!{source}" for source in copied} <= set(ignored)


def test_the_packages_of_the_recipe_are_those_of_the_lock():
    (found,) = re.findall(r"sed -n '(.*?)' ci/lock.txt", "".join(given("RUN")))
    text = subprocess.run(
        ["sed", "-n", found, ROOT / "ci" / "lock.txt"], capture_output=True, text=True, check=True
    ).stdout

    assert "quart==" in text
    assert "flit-core==" in text
    assert "pytest==" not in text


@pytest.mark.rule("O7.2")
def test_the_check_of_the_recipe_knows_a_server_that_is_ready_from_none(tmp_path):
    check = json.loads(given("HEALTHCHECK")[0].partition("CMD ")[2])
    assert check[0] == "python"
    with Process("--port", 0, "--data", "data", cwd=tmp_path) as server:
        server.ready()
        asked = [sys.executable, *check[1:]]
        port = {"TOPICS_PORT": str(server.port)}
        assert subprocess.run(asked, env=port, capture_output=True, check=False).returncode == 0
    assert subprocess.run(asked, env=port, capture_output=True, check=False).returncode == 1


def has_docker():
    return (
        shutil.which("docker") is not None
        and not subprocess.run(["docker", "info"], capture_output=True, check=False, timeout=20).returncode
    )


@pytest.mark.slow
@pytest.mark.skipif(not has_docker(), reason="no docker that runs")
def test_the_recipe_builds_and_its_image_is_well():
    build = ["docker", "build", "-q", "-f", DEPLOY / "Dockerfile", ROOT]
    image = subprocess.run(build, capture_output=True, text=True, check=True).stdout.strip()
    run = ["docker", "run", "--rm", "-e", "TOPICS_ALLOW_INSECURE_NO_AUTH=1", image]
    assert subprocess.run([*run, "version"], capture_output=True, check=True).stdout.startswith(b"topics ")
    without = subprocess.run(["docker", "run", "--rm", image], capture_output=True, text=True, check=False)
    assert "there are no keys" in without.stderr
