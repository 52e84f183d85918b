# Everything lives in .venv; the stamps say what is installed there.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SOURCES := pyproject.toml CMakeLists.txt $(wildcard src/kernel/*)

.PHONY: demo test lint types unit study bench-engine bench-gate bench-inputs bench-sets bench-soak bench-certificates torture fuzz conformance clean

demo: $(VENV)/demo
	$(BIN)/python examples/peaks.py

test: lint types unit

lint: $(VENV)/test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/test
	$(BIN)/python -m mypy

unit: $(VENV)/test
	KERAS_BACKEND=torch $(BIN)/python -m pytest -n 2

study: $(VENV)/test
	$(BIN)/ennopt study run experiments/paper.toml --profile smoke

# INSTANCES is a folder of .npz files; by default the library of the paper's sizes. Three
# tables: the engine on all cores, then beside the solvers with one core each.
INSTANCES ?= out/instances
LIMIT ?= 600
BENCH = $(BIN)/python benchmarks/engine.py $(INSTANCES)
BESIDE = --threads 1 --jobs 2 --solvers
bench-engine: $(VENV)/test
	test -d $(INSTANCES) || $(BIN)/ennopt instances make $(INSTANCES)
	$(BENCH) --limit $(LIMIT)
	$(BENCH) --only '*_L2_n20_*' --limit 300 --solver-limit 300 $(BESIDE) highs scip gurobi \
	  --out benchmarks/solvers.md
	$(BENCH) --limit 60 --solver-limit 60 $(BESIDE) gurobi --out benchmarks/gurobi.md

# Two installations in turn on the same ensembles: nodes, bounds, nodes per second.
# OLD is the Python of the other one.
bench-gate: $(VENV)/test
	test -d $(INSTANCES) || $(BIN)/ennopt instances make $(INSTANCES)
	$(BIN)/python benchmarks/gate.py $(INSTANCES) --old $(OLD) --new $(BIN)/python

# The rule of method="auto" rests on this table.
bench-inputs: $(VENV)/test
	$(BIN)/python benchmarks/many_inputs.py out/many-inputs
	$(BIN)/python benchmarks/engine.py out/many-inputs --limit 15 --solver-limit 15 \
	  --engine neurons $(BESIDE) box highs scip --out benchmarks/many_inputs.md

# What each kind of feasible set costs, relative to the plain box.
bench-sets: $(VENV)/test
	test -d $(INSTANCES) || $(BIN)/ennopt instances make $(INSTANCES)
	$(BIN)/python benchmarks/sets.py $(INSTANCES) --jobs 2 --out benchmarks/sets.md

# A thousand random problems on every kind of feasible set, each solved in four ways, and
# a thousand with limits and risks beside a MILP solver.
conformance: $(VENV)/test
	ENNOPT_CONFORMANCE=1000 $(BIN)/python -m pytest -n 2 --timeout 0 tests/conformance

# Problems over the whole language by every method, their certificates checked.
TORTURE ?= 10000
torture: $(VENV)/test
	$(BIN)/python benchmarks/torture.py $(TORTURE)

# Damaged files for every reader: FUZZ files each, with SEED as the beginning.
FUZZ ?= 20000
SEED ?= 1
fuzz: $(VENV)/test
	ENNOPT_FUZZ=$(FUZZ) ENNOPT_FUZZ_SEED=$(SEED) KERAS_BACKEND=torch \
	  $(BIN)/python -m pytest -n 2 --timeout 0 tests/fuzz

# Size of certificates, and the checker's time beside the search's.
bench-certificates: $(VENV)/test
	test -d $(INSTANCES) || $(BIN)/ennopt instances make $(INSTANCES)
	$(BIN)/python benchmarks/certificates.py $(INSTANCES) --only '*_L2_n20_*'

# Half an hour on one hard ensemble: SOAK is its file.
bench-soak: $(VENV)/test
	$(BIN)/python benchmarks/soak.py $(SOAK)

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

$(VENV)/demo: $(BIN)/python $(SOURCES)
	$(BIN)/python -m pip install --quiet --editable ".[sklearn,plot]"
	touch $@

$(VENV)/test: $(BIN)/python $(SOURCES)
	$(BIN)/python -m pip install --quiet "torch==2.13.0"
	$(BIN)/python -m pip install --quiet --editable ".[test]"
	touch $@ $(VENV)/demo

clean:
	rm -rf $(VENV) build out
