# The commands that README.md names. Each does its own set-up: a virtual environment with everything in it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
ONLY ?=

.PHONY: run test lint types format bench prove clean

run: $(INSTALLED)  ## the whole pipeline, on a local broker unless HOOKLINE_BOOTSTRAP_SERVERS is set
	@exec $(BIN)/hookline run --apply-topology

test: $(INSTALLED) lint types  ## lint, types and every test, with a broker of its own
	@echo "hookline: running the tests"
	@$(BIN)/python -m pytest

lint: $(INSTALLED)
	@echo "hookline: checking style"
	@$(BIN)/ruff check . && $(BIN)/ruff format --check --quiet .

types: $(INSTALLED)
	@echo "hookline: checking types"
	@$(BIN)/mypy --no-error-summary

format: $(INSTALLED)  ## put the code into our form
	@$(BIN)/ruff check --fix-only --quiet . ; $(BIN)/ruff format .

bench: $(INSTALLED)  ## speed, beside limits measured in the same run; ONLY=name for some
	@$(BIN)/python -m bench $(if $(ONLY),--only $(ONLY))

prove: $(INSTALLED)  ## the fault runs at full size, about half an hour; ONLY=name for some
	@$(BIN)/python -m tests.prove $(if $(ONLY),--only $(ONLY))

clean:  ## forget the virtual environment and the local broker's data
	rm -rf $(VENV) .hookline

$(INSTALLED): pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "hookline: $(PYTHON) is missing. Install Python 3.11 or newer: apt-get install python3 python3-venv" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "hookline: Python 3.11 or newer is needed. Name one: make PYTHON=python3.11" >&2; exit 1; }
	@echo "hookline: making a virtual environment in $(VENV)"
	@$(PYTHON) -m venv $(VENV) || { echo "hookline: the venv module is missing: apt-get install python3-venv" >&2; exit 1; }
	@echo "hookline: installing what pyproject.toml names (about a minute, once)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $(INSTALLED)
