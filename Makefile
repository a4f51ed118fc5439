# `make demo` and `make test` need Python 3.11+ with venv (Debian: apt-get install python3-venv).
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
INSTALL := $(PIP) install --quiet -c constraints.txt

.PHONY: demo test test-fast check docs format bench clean browser

demo: $(VENV)/installed
	$(BIN)/counterpoint demo

test: $(VENV)/installed-dev browser
	$(BIN)/python -m pytest -n 2

# What a change usually breaks, in two minutes on two cores (a third of it is importing).
test-fast: $(VENV)/installed-dev
	$(BIN)/python -m pytest -n 2 -m "not slow and not browser and not faults and not ray"

# Tests of pages need the system's Chromium. Where it cannot be installed they are skipped.
browser:
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || \
	{ command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ] && apt-get install -qq -y chromium >/dev/null; } || \
	echo "no Chromium here: the tests of pages will be skipped (Debian: apt-get install chromium)"

check: $(VENV)/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	PYTHONPATH=scripts $(BIN)/lint-imports
	$(MAKE) --no-print-directory docs

# The site of docs/, in site/. A broken link is an error (not with --quiet, which hides it).
docs: $(VENV)/installed-dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

format: $(VENV)/installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Speeds, as ratios measured in one run; never part of the tests. peers.py needs a data folder.
bench: $(VENV)/installed-dev
	for script in $(filter-out bench/peers.py,$(wildcard bench/*.py)); do echo "== $$script"; $(BIN)/python $$script || exit 1; done

clean:
	rm -rf $(VENV) site .mypy_cache .pytest_cache .ruff_cache .hypothesis

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Counterpoint needs Python 3.11 or newer; say which: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)

# The package alone: the bundled models run without torch.
$(VENV)/installed: $(VENV)/bin/python pyproject.toml constraints.txt
	@echo "installing (about half a minute)"
	$(INSTALL) --no-compile -e .  # compiling takes half of the time, and the demo imports little
	touch $@

# With everything: torch from the package index brings its CUDA libraries.
$(VENV)/installed-dev: $(VENV)/installed
	@echo "installing what the tests need (torch is large: two to four minutes)"
	$(BIN)/python -m compileall -qq -j 0 $(VENV)/lib || true  # what the demo left uncompiled
	$(INSTALL) -e '.[dev]'
	touch $@
