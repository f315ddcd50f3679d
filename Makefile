# The Next Token: the same commands for readers, writers and CI. `make` alone lists them.
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
READY := $(VENV)/.ready
PINS := requirements.txt requirements-dev.txt requirements-assets.txt constraints.txt pyproject.toml
PIP := $(RUN) -m pip install --disable-pip-version-check

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help book test lab lint train clean

help: ## list the commands
	@grep -E '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /  make \1@/' | awk -F@ '{printf "%-14s%s\n", $$1, $$2}'

book: $(READY) ## build the book, running what changed, and print the page to open
	@$(RUN) book/build.py

test: lint ## all that CI runs: lint, unit tests, notebooks, strict build from clean, browser tests
	@echo "== Unit tests"
	@$(RUN) -m pytest
	@echo "== Notebooks and book"
	@$(RUN) book/build.py --clean
	@echo "== The built book in a browser"
	@$(RUN) -m pytest tests/browser

lab: $(READY) ## open the notebooks in JupyterLab
	@$(RUN) -m jupyterlab notebooks

lint: $(READY) ## check style and format of code and notebooks, and that notebooks carry no outputs
	@echo "== Lint"
	@$(RUN) -m ruff check .
	@$(RUN) -m ruff format --check .
	@$(VENV)/bin/nbstripout --keep-id --verify notebooks/*.ipynb

train: $(READY) ## train the shipped model again (about half an hour on two cores)
	@$(RUN) -m minigpt.train

clean: ## delete what was built (the environment stays; `rm -r .venv` deletes that)
	rm -rf _build .executing .pytest_cache .ruff_cache .hypothesis book/assets/mathjax minigpt/explorers/js/distributions.js minigpt/explorers/js/shakespeare*.js

# One stamp, written last: a set-up that was interrupted, or whose pins changed, is done again.
$(READY): $(PINS)
	@echo "== Setting up $(VENV) (once; a few minutes, mostly downloads)"
	@$(RUN) -m pip --version >/dev/null 2>&1 || { \
	    $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	        echo "Python 3.11 or newer is needed; '$(PYTHON)' is" `$(PYTHON) --version 2>&1` ; \
	        echo "Name another one:  make book PYTHON=python3.12"; exit 1; }; \
	    $(PYTHON) -m venv --clear $(VENV); }
	@$(PIP) -r requirements.txt -r requirements-dev.txt -c constraints.txt
	@$(PIP) --no-deps -r requirements-assets.txt
	@$(PIP) --no-deps --no-build-isolation -e .
	@touch $@
