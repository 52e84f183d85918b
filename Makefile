# Everything lives in .venv; the stamps say what is installed there.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SOURCES := pyproject.toml CMakeLists.txt $(wildcard src/kernel/*)

.PHONY: demo test lint types unit docs figures package study bench-engine bench-gate bench-inputs bench-sets bench-decisions bench-embedding bench-soak bench-certificates bench-peers torture conformance clean

demo: $(VENV)/demo
	mkdir -p out
	$(BIN)/python examples/peaks.py out/peaks.png

test: lint types unit

lint: $(VENV)/test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/test
	$(BIN)/python -m mypy

unit: $(VENV)/test
	KERAS_BACKEND=torch $(BIN)/python -m pytest -n 2

# The site, out/site/index.html, with every example run. Warnings and dead links are errors.
docs: $(VENV)/test
	rm -rf docs/gallery docs/generated out/site
	KERAS_BACKEND=torch MPLBACKEND=agg $(BIN)/python -m sphinx -q -W --keep-going -b html -c docs . out/site
	@echo "out/site/index.html"

# Numbers that README and docs quote, from the tables in benchmarks/.
figures: $(VENV)/test
	$(BIN)/python benchmarks/figures.py

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

# What limits on predictions and risks cost, relative to the plain box.
bench-decisions: $(VENV)/test
	test -d $(INSTANCES) || $(BIN)/ennopt instances make $(INSTANCES)
	$(BIN)/python benchmarks/decisions.py $(INSTANCES) --out benchmarks/decisions.md

# A predictor inside a solver's model, beside the calls of other packages, which live in
# an environment of their own.
PEERS := out/peers
bench-embedding: $(PEERS)/ready
	$(PEERS)/bin/python benchmarks/embedding.py --out benchmarks/embedding.md

$(PEERS)/ready: $(SOURCES)
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip install --quiet --upgrade pip
	$(PEERS)/bin/python -m pip install --quiet ".[scip,gurobi,pyomo,sklearn]" \
	  gurobi-machinelearning pyscipopt-ml omlt
	touch $@

# A thousand random problems on every kind of feasible set, each solved in four ways, a
# thousand with limits and risks beside a MILP solver, and a thousand tiny networks that
# must end within a number of nodes.
conformance: $(VENV)/test
	ENNOPT_CONFORMANCE=1000 $(BIN)/python -m pytest -n 2 --timeout 0 tests/conformance \
	  tests/engine/test_turns.py

# Small problems with every certificate checked and compared with enumeration.
TORTURE ?= 10000
torture: $(VENV)/test
	$(BIN)/python benchmarks/torture.py $(TORTURE)

# Size of certificates, and the checker's time beside the search's.
bench-certificates: $(VENV)/test
	test -d $(INSTANCES) || $(BIN)/ennopt instances make $(INSTANCES)
	$(BIN)/python benchmarks/certificates.py $(INSTANCES) --only '*_L2_n20_*'

# Other packages beside ours, in an environment of their own. NOTE is a sentence about the
# machine for the file, PEERS the names of the ensembles.
PEERS ?= '*_e3_L2_n20_r0' '*_e5_L2_n20_r0'
bench-peers: out/peers/done
	out/peers/bin/python benchmarks/peers.py experiments/instances --only $(PEERS) \
	  --limit 60 --note "$(NOTE)" --out benchmarks/peers.md

out/peers/done: $(SOURCES)
	$(PYTHON) -m venv out/peers
	out/peers/bin/python -m pip install --quiet ".[sklearn,scip,gurobi,pyomo]" \
	  "scikit-learn<1.8" omlt pyscipopt-ml gurobi-machinelearning
	touch $@

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
