"""What is built and how it is set up: wheel contents, pinned versions, the two commands."""

import contextlib
import email
import os
import re
import shutil
import subprocess
import sysconfig
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("groundwork", "hwprofiles", "simulator", "planner", "studies", "executor", "reports", "orrery")


@pytest.fixture(scope="session")
def project():
    """The contents of pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def pinned():
    """Names of constraints.txt, spelled as indexes compare them, with their versions."""
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    return {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in (line.split("==") for line in lines)}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel that is published."""
    from hatchling.build import build_wheel

    folder = tmp_path_factory.mktemp("wheel")
    with contextlib.chdir(ROOT), zipfile.ZipFile(folder / build_wheel(str(folder))) as opened:
        yield opened


def test_wheel_holds_code_and_data(wheel):
    """Every file of the packages is in the wheel: clusters, profiles, templates, py.typed."""
    packed = set(wheel.namelist())
    files = (path for package in PACKAGES for path in (ROOT / package).rglob("*") if path.is_file())
    wanted = {str(path.relative_to(ROOT)) for path in files if "__pycache__" not in path.parts}

    assert wanted <= packed
    assert {f"{package}/py.typed" for package in PACKAGES} <= packed


@pytest.fixture(scope="module")
def environment_beside_a_user(wheel, tmp_path_factory):
    """A virtual environment with the wheel, and a folder with modules of a user that have names of packages."""
    root = tmp_path_factory.mktemp("installed")
    venv.create(root, with_pip=False)
    site = Path(sysconfig.get_path("purelib", "venv", vars={"base": root}))
    wheel.extractall(site)
    for name in PACKAGES:  # the same files again, as compiled modules and kernels go by the times of their sources
        shutil.copytree(ROOT / name, site / name, dirs_exist_ok=True)
    (site / "libraries.pth").write_text(str(Path(pytest.__file__).parents[1]))
    user = root / "user"
    for name in PACKAGES:
        (user / name).mkdir(parents=True)
        if name != "orrery":
            (user / name / "__init__.py").write_text("raise SystemExit('a module of the user')")
    (user / "net.py").write_text("import torch, executor, reports\n\nmade = torch.nn.Linear(4, 2)\n")
    return root / "bin/python", user


@pytest.mark.parametrize(
    ("path", "lines"),
    [
        ("", ["compare lenet5 --cluster titanx-4 --batch 256 --out out"]),
        (
            ".",
            [
                "plan lenet5 --cluster lab-4:nodes=1 --batch 8 --strategy data --out plan.json",
                "run plan.json --steps 1",
                "import net:made --input 3x4 --out net.yaml",
            ],
        ),
    ],
)
def test_modules_of_a_user_stand_in_no_way(environment_beside_a_user, path, lines):
    """The installed command works in a folder that holds modules named as its packages, and with it in PYTHONPATH."""
    python, user = environment_beside_a_user
    environment = {**os.environ, "PYTHONPATH": path}

    for line in lines:
        command = [python, "-m", "orrery", *line.split()]
        ended = subprocess.run(command, cwd=user, env=environment, capture_output=True, text=True, check=False)

        assert ended.returncode == 0, ended.stderr


def test_metadata_says_what_a_stranger_must_know(wheel, project):
    """Name, version, licence and authors, once each; the command and the package keep their name."""
    info = f"orrery_training-{project['project']['version']}.dist-info"
    metadata = email.message_from_bytes(wheel.read(f"{info}/METADATA"))
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())

    assert metadata["Name"] == "orrery-training"
    assert metadata["License-Expression"] == citation["license"] == "Apache-2.0"
    assert wheel.read(f"{info}/licenses/LICENSE") == (ROOT / "LICENSE").read_bytes()
    assert [metadata["Author"]] == [author["name"] for author in citation["authors"]]
    assert metadata["Version"] == citation["version"]
    assert f"\n## {metadata['Version']}" in (ROOT / "CHANGELOG.md").read_text()
    assert "orrery = orrery.entry:main" in wheel.read(f"{info}/entry_points.txt").decode()
    assert set(metadata.get_all("Provides-Extra")) == set(project["project"]["optional-dependencies"])


def test_changes_are_by_version_and_kind():
    """Each version that was published says in four headings, on two pages at most, what it means for its users."""
    for section in re.split(r"^## ", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)[1:]:
        headings = re.findall(r"^### (.+)$", section, re.MULTILINE)
        assert headings == ["Added", "Changed", "Fixed", "Removed"] or "Never published" in section
        assert len(section.splitlines()) < 150


def test_every_extra_that_a_text_names_exists(project):
    """Users are told to install this distribution, not its namesake, with extras that there are."""
    texts = [*ROOT.glob("*.md"), *sorted((ROOT / "docs").rglob("*.md"))]
    texts += [path for package in PACKAGES for kind in ("*.py", "*.html") for path in (ROOT / package).rglob(kind)]
    named = [pair for path in texts for pair in re.findall(r"\b([\w-]*orrery[\w-]*)\[([a-z,]+)\]", path.read_text())]
    installed = [name for path in texts for name in re.findall(r"pip install '?([\w-]*orrery[\w-]*)", path.read_text())]

    assert len(named) > 10
    assert {name for name, _ in named} | set(installed) == {"orrery-training"}
    assert {extra for _, extras in named for extra in extras.split(",")} <= set(
        project["project"]["optional-dependencies"]
    )


def test_every_dependency_is_pinned(project):
    """constraints.txt names each requirement, by name and exact version only."""
    groups = [project["project"]["dependencies"], *project["project"]["optional-dependencies"].values()]
    required = {re.match(r"[\w-]+", requirement)[0].lower() for group in groups for requirement in group}

    assert required <= pinned().keys()
    assert all(re.fullmatch(r"[\w.]+", version) for version in pinned().values())


def test_readme_begins_with_the_two_commands():
    """The first example of the README is all the set-up there is."""
    first = re.search(r"```sh[^\n]*\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)[1]

    assert [line.partition("#")[0].strip() for line in first.splitlines()] == ["make demo", "make test"]


def make(*words):
    """Run make in the project's folder with a virtual environment of its own."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    return subprocess.run(["make", "-C", ROOT, *words], capture_output=True, text=True, check=False, env=environment)


@pytest.mark.parametrize("target", ["demo", "test", "lint", "docs"])
def test_old_python_is_refused_with_the_way_out(tmp_path, target):
    """An interpreter that fails the version check is named, and nothing is made."""
    old = tmp_path / "python3.9"
    old.write_text('#!/bin/sh\n[ "$1" = --version ] && echo "Python 3.9.2" && exit 0\nexit 1\n')
    old.chmod(0o755)

    ended = make(target, f"PYTHON={old}", f"VENV={tmp_path}/venv")

    assert ended.returncode != 0
    assert f"PYTHON must name Python 3.11 or newer, got {old} (Python 3.9.2)" in ended.stderr
    assert not (tmp_path / "venv").exists()


@pytest.mark.parametrize(("target", "stamp"), [("demo", "demo.stamp"), ("test", "all.stamp"), ("docs", "docs.stamp")])
def test_installed_environment_is_not_installed_again(tmp_path, target, stamp):
    """With fresh stamps a command goes straight to work; without them it makes all that it needs."""
    fresh = make("--dry-run", target, f"VENV={tmp_path}").stdout
    for name in ("venv.stamp", stamp):
        (tmp_path / name).touch()
    again = make("--dry-run", target, f"VENV={tmp_path}").stdout

    assert "-m venv" in fresh
    assert "pip install" in fresh
    assert "-c constraints.txt -e" in fresh
    assert "pip install" not in again
    assert "-m venv" not in again
