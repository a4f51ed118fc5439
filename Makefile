# `make demo` and `make test` need Python 3.11+ with venv (Debian: apt-get install python3-venv).
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check

.PHONY: demo test check format bench clean

demo: $(VENV)/installed
	$(BIN)/counterpoint demo

test: $(VENV)/installed-dev
	$(BIN)/python -m pytest -n 2

check: $(VENV)/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Speeds, as ratios measured in one run; never part of the tests.
bench: $(VENV)/installed-dev
	for script in bench/*.py; do echo "== $$script"; $(BIN)/python $$script || exit 1; done

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Counterpoint needs Python 3.11 or newer; say which: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)

# The install takes two to four minutes: torch from the package index brings its CUDA libraries.
$(VENV)/installed: $(VENV)/bin/python pyproject.toml constraints.txt
	@echo "installing (torch is large: two to four minutes)"
	$(PIP) install --quiet -c constraints.txt -e .
	touch $@

$(VENV)/installed-dev: $(VENV)/installed
	$(PIP) install --quiet -c constraints.txt -e '.[dev]'
	touch $@
