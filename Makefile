# labkit: `make` alone lists what there is. GNU make 3.81 or later and a POSIX shell.
SHELL = /bin/sh
.DEFAULT_GOAL = help
.DELETE_ON_ERROR:

# What one may set: PYTHON=/path/to/python3.12, BACKEND=cpu or cuda13.
BACKEND ?= auto
PYTHON ?=
VENV = .venv
BIN = $(VENV)/bin
STAMP = $(VENV)/.installed-$(BACKEND)
TEST_ARGS ?=
# Whole files go to one of at most four processes; each holds a model or two in memory.
SHARED_OUT = -n auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder
LAB_ARGS ?=
NEXT = next: . $(BIN)/activate    once per terminal; then labkit doctor, labkit demo or make lab

.PHONY: help setup demo test lab check lint docs

help:
	@echo "make demo    set-up and the main job: model, paired experiments, verdicts, frontier picture"
	@echo "make test    every check and every test"
	@echo "make lab     JupyterLab on notebooks/"
	@echo "make setup   the set-up alone: $(VENV), packages, bundled model"
	@echo "make check   the fast checks: ruff, pyright, import contracts, file sizes, labkit check, unit tests"
	@echo "make docs    the documentation, examples executed, in docs/_build/html"

$(STAMP): pyproject.toml constraints.txt
	@python=$$(PYTHON='$(PYTHON)' sh tools/find_python.sh) && \
		"$$python" -m tools.bootstrap --backend $(BACKEND) --stamp $@

setup: $(STAMP)
	@$(BIN)/labkit models get smollm2
	$(if $(filter setup,$(MAKECMDGOALS)),@echo "$(NEXT)")

demo: setup
	@$(BIN)/labkit demo

test: setup lint
	@$(BIN)/labkit check
	@$(BIN)/labkit models get gemma3-270m
	@$(BIN)/python -m pytest $(SHARED_OUT) $(TEST_ARGS)

lab: setup
	@PATH="$(CURDIR)/$(BIN):$$PATH" JUPYTER_PREFER_ENV_PATH=1 $(BIN)/python -m jupyterlab \
		$$([ "$$(id -u)" = 0 ] && echo --allow-root) --LabApp.default_url=/lab/tree/notebooks/00_start_here.ipynb $(LAB_ARGS)

check: $(STAMP) lint
	@$(BIN)/labkit check
	@$(BIN)/python -m pytest -q $(SHARED_OUT) tests/unit -m "not slow" $(TEST_ARGS)

lint: $(STAMP)
	@$(BIN)/python -m ruff check --quiet .
	@$(BIN)/python -m ruff format --check --quiet .
	@$(BIN)/python -m pyright
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/python tools/check_size.py labkit

docs: $(STAMP)
	@$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"
