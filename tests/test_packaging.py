"""What a user installs is complete: wheel, sdist and editable, the Procfile, the Makefile."""

from __future__ import annotations

import configparser
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

import xgw

ROOT = Path(__file__).resolve().parent.parent
RESOURCES = ("static", "templates")
BINARIES = "Scripts" if os.name == "nt" else "bin"
PIP_INSTALL = ("install", "--quiet", "--no-deps", "--no-index", "--no-build-isolation")
UNPACKAGED = shutil.ignore_patterns(
    ".git",
    ".venv",
    ".node",
    ".*_cache",
    "__pycache__",
    "*.egg-info",
    "build",
    "dist",
    "node_modules",
    "*.db*",
)


def files_below(folder: Path) -> list[str]:
    return sorted(f.relative_to(folder).as_posix() for f in folder.rglob("*") if f.is_file())


def run(*command: str | Path, cwd: Path) -> str:
    """The command's output, in an environment that knows nothing of this checkout."""
    hidden = ("PYTHONPATH", "VIRTUAL_ENV", "MAKEFLAGS", "MAKELEVEL", "MFLAGS", "PYTHON")
    clean = {name: value for name, value in os.environ.items() if name not in hidden}
    done = subprocess.run(
        command, cwd=cwd, env=clean, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, f"{command}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


def make(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """`make` as someone types it, also where the tests themselves run under make."""
    hidden = ("MAKEFLAGS", "MAKELEVEL", "MFLAGS", "PYTHON")
    clean = {name: value for name, value in os.environ.items() if name not in hidden}
    command = ["make", *arguments]
    return subprocess.run(command, cwd=cwd, env=clean, capture_output=True, text=True, timeout=60)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the checkout, as building writes into the folder that it builds."""
    folder = tmp_path_factory.mktemp("source") / "xgw"
    shutil.copytree(ROOT, folder, ignore=UNPACKAGED)
    return folder


@pytest.fixture(scope="module")
def built(source: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The sdist, the wheel made from that sdist, and the folder for an editable installation."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, source, cwd=folder)
    (wheel,) = folder.glob("*.whl")
    (sdist,) = folder.glob("*.tar.gz")
    return {"wheel": wheel, "sdist": sdist, "editable": source}


def test_every_folder_of_the_package_is_listed() -> None:
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg", encoding="utf-8")
    modules = (ROOT / "xgw").rglob("*.py")
    folders = {".".join(module.parent.relative_to(ROOT).parts) for module in modules}
    expected = folders | {f"xgw.{name}" for name in RESOURCES}
    assert set(config["options"]["packages"].split()) == expected


def test_the_wheel_holds_every_module_and_resource(built: dict[str, Path]) -> None:
    names = zipfile.ZipFile(built["wheel"]).namelist()
    modules = (module.relative_to(ROOT) for module in (ROOT / "xgw").rglob("*.py"))
    resources = (f"xgw/{name}/{file}" for name in RESOURCES for file in files_below(ROOT / name))
    assert sorted({*(m.as_posix() for m in modules), *resources} - set(names)) == []
    assert [
        n for n in names if not n.startswith(("xgw/", f"xgw-{xgw.__version__}.dist-info/"))
    ] == []


def test_the_sdist_holds_the_whole_source(built: dict[str, Path], source: Path) -> None:
    with tarfile.open(built["sdist"]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert [
        file for file in files_below(source) if file not in names and ".egg-info" not in file
    ] == []


@pytest.mark.parametrize("kind", ["wheel", "sdist", "editable"])
def test_an_installation_runs_and_finds_its_resources(
    kind: str, built: dict[str, Path], tmp_path: Path
) -> None:
    environment = tmp_path / "venv"
    run(sys.executable, "-m", "venv", "--without-pip", environment, cwd=tmp_path)
    python = environment / BINARIES / "python"
    # The libraries come from the environment of this test run: nothing is downloaded.
    packages = run(
        python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=tmp_path
    )
    libraries = f"{sysconfig.get_path('purelib')}\n{sysconfig.get_path('platlib')}\n"
    Path(packages.strip(), "libraries.pth").write_text(libraries)
    what = ("--editable", built[kind]) if kind == "editable" else (built[kind],)
    run(sys.executable, "-m", "pip", "--python", python, *PIP_INSTALL, *what, cwd=tmp_path)

    assert xgw.__version__ in run(environment / BINARIES / "xgw", "--version", cwd=tmp_path)
    assert xgw.__version__ in run(python, "-m", "xgw", "--version", cwd=tmp_path)
    script = (
        "import json, xgw.resources as r\n"
        f"print(json.dumps({{n: str(r.resource_folder(n)) for n in {RESOURCES!r}}}))"
    )
    found = {n: Path(p) for n, p in json.loads(run(python, "-c", script, cwd=tmp_path)).items()}
    assert {n: files_below(p) for n, p in found.items()} == {
        n: files_below(ROOT / n) for n in RESOURCES
    }
    home = built["editable"] if kind == "editable" else environment
    assert all(path.is_relative_to(home.resolve()) for path in found.values())


def test_the_procfile_serves_on_the_given_port() -> None:
    assert (ROOT / "Procfile").read_text() == "web: xgw serve --host 0.0.0.0 --port $PORT\n"


def test_ci_runs_the_same_command_as_a_developer() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    assert script.read_text().splitlines()[-1] == "make test"


@pytest.mark.parametrize(
    ("lacking", "sentence"),
    [
        ("version_info", "xgw needs Python 3.11 or newer and {python} is older"),
        ("ensurepip", "{python} has no venv module: install it"),
        (None, "xgw needs Python 3.11 or newer and there is no {python} here"),
    ],
)
def test_make_says_in_one_sentence_what_python_lacks(
    lacking: str | None, sentence: str, tmp_path: Path
) -> None:
    for name in ("Makefile", "setup.cfg", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "xgw").mkdir()
    shutil.copy(ROOT / "xgw" / "__init__.py", tmp_path / "xgw")
    python = tmp_path / "python"
    if lacking:
        python.write_text(f'#!/bin/sh\ncase "$2" in *{lacking}*) exit 1;; esac\n')
        python.chmod(0o755)
    done = make("serve", f"PYTHON={python}", cwd=tmp_path)
    assert done.returncode == 2
    said = [line for line in done.stderr.splitlines() if not line.startswith("make")]
    assert len(said) == 1
    assert said[0].startswith(sentence.format(python=python))
    assert not (tmp_path / ".venv").exists()
