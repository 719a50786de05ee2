# One command each: the first run makes .venv and installs into it, later ones start at once.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
WORKERS ?= auto
# The tests of a file share their servers; the files are taken in the order in which they stand.
SHARED_BY_FILE := --maxprocesses 4 --dist loadfile --no-loadscope-reorder
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

.DEFAULT_GOAL := help
.PHONY: help serve test lint format bench screenshots venv

help:
	@echo "make serve    run xgw here (ARGS='--port 9000' for other options)"
	@echo "make test     every check: format, lint, types, architecture, tests (ARGS='-k name' for some, WORKERS=0 for one process)"
	@echo "make lint     the checks without the tests"
	@echo "make format   format the code and mend what can be mended"
	@echo "make bench    measure xgw beside direct calls"
	@echo "make screenshots    take the documentation's pictures anew"

serve: $(VENV)/.serve
	@$(BIN)/xgw serve $(ARGS)

test: lint
	$(BIN)/python -m pytest --numprocesses $(WORKERS) $(SHARED_BY_FILE) $(ARGS)

lint: $(VENV)/.dev
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m ruff check .
	$(BIN)/python -m mypy
	$(BIN)/lint-imports

format: $(VENV)/.dev
	$(BIN)/python -m ruff format .
	$(BIN)/python -m ruff check --fix .

bench: $(VENV)/.serve
	$(BIN)/python -m bench $(ARGS)

screenshots: $(VENV)/.dev
	@$(PIP) install --editable '.[pictures]'
	PYTHONPATH=tests $(BIN)/python docs/screenshots.py $(ARGS)

# A .venv that is missing, half made or whose Python is gone is made anew, and the stamps with it.
READY := $(shell $(BIN)/python -c 'import pip' >/dev/null 2>&1 && echo yes)
$(VENV)/.serve $(VENV)/.dev: setup.cfg pyproject.toml xgw/__init__.py $(if $(READY),,venv)

$(VENV)/.serve:
	@echo "Installing xgw into $(VENV) ..."
	@$(PIP) install --editable .
	@touch $@

$(VENV)/.dev:
	@echo "Installing xgw and the tools of its tests into $(VENV) ..."
	@$(PIP) install --editable '.[dev]'
	@touch $@ $(VENV)/.serve

venv:
	@command -v $(PYTHON) >/dev/null || { echo "xgw needs Python 3.11 or newer and there is no $(PYTHON) here: install it, or name another with make PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "xgw needs Python 3.11 or newer and $(PYTHON) is older: name a newer one with make PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { echo "$(PYTHON) has no venv module: install it (Debian, Ubuntu: apt-get install python3-venv) and run make again." >&2; exit 1; }
	@$(PYTHON) -m venv --clear $(VENV)
