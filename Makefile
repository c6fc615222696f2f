# anneal: two commands that need only Python (3.11 or newer) and a way to PyPI.
#   make train ARGS="--steps 500"     make test ARGS="-k settings"

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ARGS ?=
WORKERS ?= 2

.DEFAULT_GOAL := help
.PHONY: help train web web-build docs docs-build pictures quick test deep check format clean
# One thread of BLAS in each worker; and the many processes that tests start find compiled what the first one compiled.
RUN := OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(BIN)/python -m

help: ## say what there is
	@echo "anneal: make TARGET [ARGS=...]"
	@sed -n 's/^\([a-z-]*\):.*## /  \1\t/p' $(MAKEFILE_LIST)

train: $(VENV)/train.stamp ## train the Shakespeare model; ARGS go to `anneal train nanogpt`
	$(BIN)/anneal train nanogpt $(ARGS)

web: $(VENV)/web.stamp ## set up and start the studio; ARGS go to `anneal web`
	$(BIN)/anneal web $(ARGS)

web-build: ## bundle the studio's page from its TypeScript, which needs node and npm; the result is committed
	@cd anneal/web/app && npm ci --silent --no-audit --no-fund && npm run --silent build

docs: $(VENV)/docs.stamp ## serve the site of the documents at http://127.0.0.1:8000, made anew when one changes
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs serve $(ARGS)

docs-build: $(VENV)/docs.stamp ## write the site to build/site; a warning is an error
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet $(ARGS)

pictures: $(VENV)/test.stamp ## take the documents' pictures of the studio anew, into docs/studio; ARGS: the names of some
	@$(BIN)/python -m tools.pictures $(ARGS)

quick: $(VENV)/test.stamp ## run the tests that need no GPU and no process, in less than a minute; ARGS go to pytest
	@$(RUN) pytest -n $(WORKERS) --dist worksteal -q --tier quick $(ARGS)

# What the checks say comes in one piece, between pytest's lines; the last line is pytest's.
test: $(VENV)/test.stamp ## run every check, then the tests; ARGS go to pytest
	@failed=0; said=$$(mktemp); \
	{ $(MAKE) --no-print-directory check >"$$said" 2>&1; code=$$?; echo; cat "$$said"; rm "$$said"; exit $$code; } & checks=$$!; \
	$(RUN) pytest -n $(WORKERS) --dist worksteal -q $(ARGS) || failed=1; \
	wait $$checks || failed=1; exit $$failed

deep: $(VENV)/test.stamp ## run the long tables whole too, which takes hours, and write tests/DEEP.md; ARGS: only a part
	@$(RUN) tests.deep -n$(WORKERS) $(ARGS)

check: $(VENV)/test.stamp ## lint, formatting, types, layers, generated files; all of them, whatever fails
	@failed=0; \
	for tool in "ruff check ." "ruff format --check ." "mypy" "lint-imports --no-cache" "python -m anneal.rewrite.generate --check" "python -m tools.names --check"; do \
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

$(VENV)/web.stamp: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[web]'
	@touch $@ $(VENV)/train.stamp

$(VENV)/docs.stamp: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[docs]'
	@touch $@ $(VENV)/train.stamp

$(VENV)/test.stamp: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[test]'
	@touch $@ $(VENV)/train.stamp
