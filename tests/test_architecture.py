"""Who may import whom: the contracts of setup.cfg hold, and they do notice a breach."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
HEAVY = ("flask", "genai_prices", "gunicorn", "openai", "rich", "toktok")


def lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The package and its contracts, to be broken."""
    shutil.copytree(ROOT / "xgw", tmp_path / "xgw", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "setup.cfg", tmp_path)
    return tmp_path


def test_the_contracts_are_kept() -> None:
    linted = lint_imports(ROOT)
    assert linted.returncode == 0, linted.stdout + linted.stderr
    assert "0 broken" in linted.stdout


def test_every_folder_is_a_package() -> None:
    """A folder without `__init__.py` would be invisible to the contracts."""
    folders = {module.parent for module in (ROOT / "xgw").rglob("*.py")}
    assert [folder for folder in folders if not (folder / "__init__.py").is_file()] == []


def test_a_new_module_must_be_placed(copy: Path) -> None:
    (copy / "xgw" / "drawer.py").write_text('"""Owns nothing."""\n')
    linted = lint_imports(copy)
    assert linted.returncode == 1
    assert "xgw.drawer" in linted.stdout


@pytest.mark.parametrize(
    ("module", "imported"),
    [
        ("errors", "clock"),
        ("values", "events"),
        ("store/database", "hub"),
        ("providers/__init__", "accounting"),
        ("exchange/__init__", "gateway"),
        ("web/__init__", "cli"),
    ],
)
def test_importing_upwards_or_sideways_is_noticed(copy: Path, module: str, imported: str) -> None:
    with (copy / "xgw" / f"{module}.py").open("a") as file:
        file.write(f"\ndef reach() -> None:\n    import xgw.{imported}\n")
    linted = lint_imports(copy)
    assert linted.returncode == 1
    room = module.partition("/")[0]
    assert f"xgw.{room} is not allowed to import xgw.{imported}" in linted.stdout


def test_a_migration_must_not_import_the_models(copy: Path) -> None:
    migration = copy / "xgw" / "store" / "migrations" / "9999_careless.py"
    migration.write_text("from xgw.store.models import Turn\n")
    linted = lint_imports(copy)
    assert linted.returncode == 1
    assert "9999_careless -> xgw.store.models" in linted.stdout


def test_help_loads_no_heavy_library() -> None:
    script = (
        "import json, sys\n"
        "from xgw.cli import main\n"
        "main(['--help'], standalone_mode=False)\n"
        f"print(json.dumps([name for name in {HEAVY!r} if name in sys.modules]))\n"
    )
    command = [sys.executable, "-c", script]
    output = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    assert "serve" in output
    assert json.loads(output.splitlines()[-1]) == []
