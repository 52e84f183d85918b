# Everything lives in .venv; the stamps say what is installed there.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SOURCES := pyproject.toml CMakeLists.txt $(wildcard src/kernel/*)

.PHONY: demo test lint types unit study bench-engine clean

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

# INSTANCES is a folder of .npz files; by default the library of the paper's sizes.
INSTANCES ?= out/instances
LIMIT ?= 60
SOLVERS ?= highs scip gurobi
bench-engine: $(VENV)/test
	test -d $(INSTANCES) || $(BIN)/ennopt instances make $(INSTANCES)
	$(BIN)/python benchmarks/engine.py $(INSTANCES) --limit $(LIMIT) --solvers $(SOLVERS)

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
