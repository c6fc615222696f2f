# anneal: two commands that need only Python (3.11 or newer) and a way to PyPI.
#   make train ARGS="--steps 500"     make test ARGS="-k settings"

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ARGS ?=
WORKERS ?= 2

.DEFAULT_GOAL := help
.PHONY: help train test check format clean

help: ## say what there is
	@echo "anneal: make TARGET [ARGS=...]"
	@sed -n 's/^\([a-z]*\):.*## /  \1\t/p' $(MAKEFILE_LIST)

train: $(VENV)/train.stamp ## train the Shakespeare model; ARGS go to `anneal train nanogpt`
	$(BIN)/anneal train nanogpt $(ARGS)

test: $(VENV)/test.stamp ## run every check, then the tests; ARGS go to pytest
	@failed=0; $(MAKE) --no-print-directory check || failed=1; \
	OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) -q $(ARGS) || failed=1; exit $$failed

check: $(VENV)/test.stamp ## lint, formatting, types, layers, generated files; all of them, whatever fails
	@failed=0; \
	for tool in "ruff check ." "ruff format --check ." "mypy" "lint-imports" "python -m anneal.rewrite.generate --check"; do \
	  echo "+ $$tool"; $(BIN)/$$tool || failed=1; \
	done; exit $$failed

format: $(VENV)/test.stamp ## let ruff rewrite the files
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## remove the virtual environment and the caches
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

# A Debian Python without python3-venv can still make an environment, but not put pip into it;
# then pip's own wheel, fetched from PyPI, installs itself.
$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "anneal needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) -V 2>&1). Try: make PYTHON=python3.12" >&2; exit 1; }
	@if $(PYTHON) -c 'import ensurepip' 2>/dev/null; then $(PYTHON) -m venv $(VENV); \
	else $(PYTHON) -m venv --without-pip $(VENV) && $(BIN)/python tools/fetch_pip.py; fi

$(VENV)/train.stamp: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install -q --disable-pip-version-check -e .
	@touch $@

$(VENV)/test.stamp: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[test]'
	@touch $@ $(VENV)/train.stamp
