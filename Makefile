# `make synth` and `make test` are all a new machine needs: Python 3.11 or newer, and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.stamp
PLANNER_STAMP := $(VENV)/.planner
# Tests wait for servers, Node and CDK about half of the time, so there are two for each core.
WORKERS ?= $(shell $(PYTHON) -c 'import os; print(2 * (os.cpu_count() or 1))')
# Synthesis never calls AWS: no instance metadata, no look-ups, no notices.
export PATH := $(CURDIR)/$(BIN):$(PATH)
export AWS_EC2_METADATA_DISABLED := true
export CDK_DISABLE_CLI_TELEMETRY := true
export PYTHONDONTWRITEBYTECODE :=

COMPILE := uv pip compile pyproject.toml --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header

.PHONY: help setup planner synth test lint types unit docs bench engine-lists engine-parser rehearse lock clean

help:  ## What can be made
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## /\1\t/' | expand -t 15

setup: $(STAMP)  ## The virtual environment and the CDK command line, from the lock files

$(STAMP): requirements.lock package-lock.json pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; found " + sys.version.split()[0])'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	$(BIN)/npm ci --silent --no-audit --no-fund
	ln -sf ../../node_modules/.bin/cdk $(BIN)/cdk
	@touch $(STAMP)

planner: $(PLANNER_STAMP)  ## Add the simulator and the pictures of dpd plan (1 GB; the simulator on Linux only)

$(PLANNER_STAMP): $(STAMP) requirements-planner.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-planner.lock
	@touch $(PLANNER_STAMP)

synth: setup  ## Check and synthesize every environment; warnings of the CDK are errors
	cdk synth --strict --quiet --no-notices
	@echo "Templates: cdk.out/   Manifests: cdk.out/manifests/<environment>/<endpoint>/"

# Types are checked beside the tests: each alone leaves a core idle part of the time.
test: planner lint  ## Everything that CI runs
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target types unit

lint: setup
	ruff check .
	ruff format --check .

types: planner
	mypy

unit: planner
	pytest -n $(WORKERS) --dist loadscope

docs: setup  ## Write the generated parts of the docs again
	python -m commands.docs

bench: planner  ## Measure speed and memory beside their yardsticks
	python -m bench

engine-lists: setup  ## Read the flags, keys and metrics of vLLM, LMCache and router from their wheels again, and show what changed
	python -m scripts.engine_lists
	git --no-pager diff --stat -- dpd/catalog/data/engines

engine-parser: setup  ## Let the real parsers of vLLM and LMCache read every example (the same installation as for make rehearse)
	python -m scripts.engine_parser

rehearse: setup  ## Run the examples on this CPU: prefiller, decoder, router, and the gate as judge (installs 4 GB outside of the project, once)
	pytest -m rehearsal tests/rehearsal

lock:  ## Resolve the lock files again (needs uv)
	$(COMPILE) --extra doctor --extra deploy --extra test -o requirements.lock
	$(COMPILE) --extra pages --extra sim -c requirements.lock -o requirements-planner.lock
	npm install --package-lock-only --silent

clean:  ## Remove what was made
	rm -rf $(VENV) node_modules cdk.out build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
