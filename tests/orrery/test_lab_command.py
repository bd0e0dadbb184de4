"""``orrery lab``: what it prints, and that nothing is left."""

import json
import subprocess

import pytest

from executor.lab.tools import require_lab
from groundwork.errors import ConfigError
from orrery.cli import app
from orrery.terminal.exit_codes import run_app


def obstacle():
    try:
        require_lab()
    except ConfigError as error:
        return str(error)
    return ""


def namespaces():
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True)
    return {line.split()[0] for line in listed.stdout.splitlines()}


@pytest.mark.lab
@pytest.mark.skipif(bool(obstacle()), reason=obstacle() or "a lab can be made")
def test_up_status_down(capsys):
    before = namespaces()
    assert run_app(app, ["lab", "up", "lab-4", "--json"]) == 0
    try:
        made = json.loads(capsys.readouterr().out)
        assert len(made["hosts"]) == 4
        assert {host["namespace"] for host in made["hosts"]} <= namespaces()
        assert run_app(app, ["lab", "up", "lab-4"]) == 2
        assert "a lab is up already" in capsys.readouterr().err
        assert run_app(app, ["lab", "status", "--json"]) == 0
        assert json.loads(capsys.readouterr().out) == made
    finally:
        assert run_app(app, ["lab", "down", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"removed": True}
    assert namespaces() == before


def test_what_the_lab_cannot_make_is_refused(capsys):
    assert run_app(app, ["lab", "up", "dgx1-p100"]) == 2
    assert "a host has one device" in capsys.readouterr().err
