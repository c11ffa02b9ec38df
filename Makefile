# From One-Hot to BERT. `make help` lists what there is to do.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV   := .venv
BIN    := $(VENV)/bin
SPHINX_OUT := _build/html
JOBS   ?= 2
PORT   ?= 8000

NOTEBOOKS := $(wildcard chapters/*.ipynb)
PAGES     := $(wildcard chapters/*.md chapters/*.bib chapters/images/* chapters/src/*.md \
             assignments/*.md assignments/pages/*.md) $(NOTEBOOKS)

.DEFAULT_GOAL := help

include assignments/course.mk

.PHONY: help book test lint notebooks lab serve benchmarks url lock clean distclean

help:  ## list these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-17s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo "  Options: CH=03 (chapters), PORT=8000 (serve), PYTHON=python3.11, JOBS=2 (test workers)"

# The set-up: done once, and again when the lock or the package description changes.
$(VENV)/.ready: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; assert sys.version_info[:2] == (3, 11), sys.version' || \
	  { echo "The lock is made for Python 3.11. Install it, or name it: make PYTHON=/path/to/python3.11 ..."; exit 1; }
	@# A half-made environment, or one of another Python, is made anew.
	@$(BIN)/python -m pip --version >/dev/null 2>&1 && \
	  test "$$($(BIN)/python -VV)" = "$$($(PYTHON) -VV)" || $(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check -q -r requirements.lock
	$(BIN)/python -m pip install --disable-pip-version-check -q --no-build-isolation --no-deps -e .
	@touch $@

book: $(SPHINX_OUT)/.built  ## set up, then build the HTML book (warnings are errors)
	@echo "The book is in $(SPHINX_OUT)/index.html; make serve shows it."

# Always from clean: an incremental build hides the warnings of pages it does not read again.
$(SPHINX_OUT)/.built: $(VENV)/.ready $(PAGES) _config.yml _toc.yml $(wildcard lib/book/static/* lib/book/*.py)
	$(BIN)/python -m book.notebooks --check
	rm -rf _build
	$(BIN)/jupyter-book build . -W -n --keep-going -q
	$(BIN)/python -m book.guards --html $(SPHINX_OUT)
	@touch $@

test: $(VENV)/.ready  ## set up, then run every test: library, guards, and each notebook against its saved outputs
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile tests chapters \
	  --nbval --nbval-current-env --nbval-sanitize-with tests/sanitize.cfg --nbval-cell-timeout=300

lint: $(VENV)/.ready  ## format and lint the code
	$(BIN)/ruff format lib tests benchmarks chapters/experiments assignments
	$(BIN)/python -m book.sources
	$(BIN)/ruff check --fix lib tests benchmarks chapters assignments
	$(BIN)/mypy

notebooks: $(VENV)/.ready  ## make chapters from chapters/src, execute, clean and save them (CH=03 for one)
	$(BIN)/python -m book.notebooks $(CH)

lab: $(VENV)/.ready  ## open JupyterLab on the chapters
	$(BIN)/jupyter lab chapters

serve: book  ## serve the built book at http://localhost:8000 (PORT=8001 if that is taken)
	@echo "Open http://localhost:$(PORT) in a browser; Ctrl-C ends the server."
	$(BIN)/python -m http.server $(PORT) --bind 127.0.0.1 --directory $(SPHINX_OUT)

benchmarks: $(VENV)/.ready  ## our code beside the libraries', as ratios measured in one run (about ten minutes)
	@for script in benchmarks/*.py; do echo "== $$script"; $(BIN)/python $$script || exit 1; done

url: $(VENV)/.ready  ## write the repository address of _config.yml wherever else it stands
	$(BIN)/python -m book.repository

lock:  ## renew requirements.lock from pyproject.toml (needs a network)
	rm -rf _build/lock && $(PYTHON) -m venv _build/lock
	_build/lock/bin/python -m pip install -q "torch==2.13.0" setuptools wheel
	_build/lock/bin/python -m pip install -q --no-build-isolation ".[book,course,test]"
	PYTHONPATH=lib _build/lock/bin/python -m book.lock > requirements.lock.new && mv requirements.lock.new requirements.lock

clean:  ## remove what was built and cached; the environment stays
	rm -rf _build .pytest_cache .mypy_cache .ruff_cache chapters/.ruff_cache .hypothesis build
	find . -name __pycache__ -not -path './.venv/*' -exec rm -rf {} +
	find . -name .ipynb_checkpoints -not -path './.venv/*' -exec rm -rf {} +

distclean: clean  ## remove the environment as well
	rm -rf $(VENV)
