# One command each: the first run makes .venv and installs into it, later ones start at once.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
WORKERS ?= auto
# The tests of a file share their servers; the files are taken in the order in which they stand.
SHARED_BY_FILE := --maxprocesses 5 --dist loadfile --no-loadscope-reorder
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

.DEFAULT_GOAL := help
.PHONY: help serve test lint compiled format bench screenshots zipapp binary clean venv

help:
	@echo "make serve    run xgw here (ARGS='--port 9000' for other options)"
	@echo "make test     every check: format, lint, types, architecture, tests (ARGS='-k name' for some, WORKERS=0 for one process)"
	@echo "make lint     the checks without the tests"
	@echo "make format   format the code and mend what can be mended"
	@echo "make bench    measure xgw beside direct calls"
	@echo "make screenshots    take the documentation's pictures anew"
	@echo "make zipapp   dist/xgw.pyz: all of xgw in one file, for a Python of this version"
	@echo "make binary   dist/xgw: the same with Python inside"
	@echo "make clean    take away what was built"

serve: $(VENV)/.serve
	@$(BIN)/xgw serve $(ARGS)

test: $(VENV)/.dev
	@$(MAKE) --no-print-directory --jobs 2 lint compiled
	$(BIN)/python -m pytest --numprocesses $(WORKERS) $(SHARED_BY_FILE) $(ARGS)

# Beside the checks, so that the processes of the tests need not each compile them all; whatever is
# wrong with them these will say.
compiled: $(VENV)/.dev
	@$(BIN)/python -m pytest --collect-only -qq $(ARGS) >/dev/null 2>&1 || true

lint: $(VENV)/.dev
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m ruff check .
	$(BIN)/python -m mypy
	$(BIN)/lint-imports

format: $(VENV)/.dev
	$(BIN)/python -m ruff format .
	$(BIN)/python -m ruff check --fix .

bench: $(VENV)/.bench
	$(BIN)/python -m bench $(ARGS)

screenshots: $(VENV)/.dev
	@$(PIP) install --editable '.[pictures]'
	PYTHONPATH=tests $(BIN)/python docs/screenshots.py $(ARGS)

# Without what pip notes of the folder that it was installed from; with mcp if it is here.
zipapp: $(VENV)/.onefile
	@rm -rf build/zipapp build/lib build/bdist.* dist/xgw.pyz
	@mkdir -p dist
	@echo "Installing xgw into build/zipapp ..."
	@with=$$($(BIN)/python -c 'import mcp' 2>/dev/null && echo '[mcp]'); \
	$(PIP) install --no-compile --target build/zipapp ".$$with"
	@rm -rf build/zipapp/bin build/zipapp/xgw-*.dist-info/direct_url.json
	@sed -i.bak '/direct_url.json/d' build/zipapp/xgw-*.dist-info/RECORD
	@rm -f build/zipapp/xgw-*.dist-info/RECORD.bak
	@$(BIN)/shiv --site-packages build/zipapp --console-script xgw --python '/usr/bin/env python3' --reproducible --output-file dist/xgw.pyz
	@ls -l dist/xgw.pyz

binary: $(VENV)/.onefile
	@rm -rf build/binary dist/xgw
	@echo "Putting xgw and Python together ..."
	@$(BIN)/pyinstaller --noconfirm --log-level ERROR --workpath build/binary --distpath dist onefile/xgw.spec
	@ls -l dist/xgw

clean:
	rm -rf build dist

# A .venv that is missing, half made or whose Python is gone is made anew, and the stamps with it.
READY := $(shell $(BIN)/python -c 'import pip' >/dev/null 2>&1 && echo yes)
$(VENV)/.serve $(VENV)/.dev $(VENV)/.onefile $(VENV)/.bench: setup.cfg pyproject.toml xgw/__init__.py $(if $(READY),,venv)

$(VENV)/.serve:
	@echo "Installing xgw into $(VENV) ..."
	@$(PIP) install --editable .
	@touch $@

$(VENV)/.dev:
	@echo "Installing xgw and the tools of its tests into $(VENV) ..."
	@$(PIP) install --editable '.[dev]'
	@touch $@ $(VENV)/.serve

$(VENV)/.onefile:
	@echo "Installing xgw and what makes one file of it into $(VENV) ..."
	@$(PIP) install --editable '.[onefile]'
	@touch $@ $(VENV)/.serve

$(VENV)/.bench:
	@echo "Installing xgw and what its load generator runs on into $(VENV) ..."
	@$(PIP) install --editable '.[bench]'
	@touch $@ $(VENV)/.serve

venv:
	@command -v $(PYTHON) >/dev/null || { echo "xgw needs Python 3.11 or newer and there is no $(PYTHON) here: install it, or name another with make PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "xgw needs Python 3.11 or newer and $(PYTHON) is older: name a newer one with make PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { echo "$(PYTHON) has no venv module: install it (Debian, Ubuntu: apt-get install python3-venv) and run make again." >&2; exit 1; }
	@$(PYTHON) -m venv --clear $(VENV)
