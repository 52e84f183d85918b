# Everything lives in .venv; the stamps say what is installed there.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PEERS := out/peers
SOURCES := pyproject.toml CMakeLists.txt $(wildcard src/kernel/*)

.PHONY: demo test lint types unit docs figures package study bench-engine bench-gate bench-inputs bench-deep bench-trees bench-scale bench-sets bench-decisions bench-embedding bench-soak bench-certificates bench-peers torture fuzz conformance clean

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

# Wheel and sdist, checked, and the wheel tried in an empty environment for each of PYTHONS.
# There CC and CXX cannot compile, as on a machine without a compiler; the sdist is
# installed there, too, and must do without the kernel.
PYTHONS ?= $(PYTHON)
NO_COMPILER := CC=/bin/false CXX=/bin/false
package: $(VENV)/test
	rm -rf out/dist out/clean
	$(BIN)/python -m build --sdist --outdir out/dist .
	set -e; for python in $(PYTHONS); do \
	  rm -rf out/clean && $$python -m venv out/clean && \
	  out/clean/bin/python -m pip wheel --quiet --no-deps --wheel-dir out/dist . && \
	  tag=$$(out/clean/bin/python -c "import sys; print('cp%d%d' % sys.version_info[:2])") && \
	  $(NO_COMPILER) out/clean/bin/python -m pip install --quiet out/dist/ennopt-*-$$tag-*.whl && \
	  (cd out/clean && bin/python ../../.ci/wheel_check.py); \
	done
	$(BIN)/python -m twine check --strict out/dist/*
	rm -rf out/clean && $(PYTHON) -m venv out/clean
	$(NO_COMPILER) out/clean/bin/python -m pip install --quiet out/dist/ennopt-*.tar.gz
	cd out/clean && bin/python ../../.ci/wheel_check.py --plain

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

# Ensembles deeper and wider than the paper's.
bench-deep: $(VENV)/test
	$(BIN)/ennopt instances make out/deep --profile deep
	$(BIN)/python benchmarks/engine.py out/deep --limit $(LIMIT) --out benchmarks/deep.md

# How many nodes the proofs will take of ensembles that take long, from samples.
bench-trees: $(VENV)/test
	$(BIN)/ennopt instances make out/deep --profile deep
	$(BIN)/python benchmarks/tree_size.py out/deep/*_e5_L6_n40_*.npz \
	  experiments/instances/wine_e?_L4_*.npz --out benchmarks/tree_size.md

# How cost grows with members, layers, width, inputs and threads; goes on where it was.
bench-scale: $(VENV)/test
	$(BIN)/python benchmarks/scale.py out/scale --limit 60 --out benchmarks/scale.md

# What each kind of feasible set costs, relative to the plain box.
bench-sets: $(VENV)/test
	test -d $(INSTANCES) || $(BIN)/ennopt instances make $(INSTANCES)
	$(BIN)/python benchmarks/sets.py $(INSTANCES) --jobs 2 --out benchmarks/sets.md

# What limits on predictions and risks cost, relative to the plain box.
bench-decisions: $(VENV)/test
	$(BIN)/python benchmarks/decisions.py experiments/instances --out benchmarks/decisions.md

# A predictor inside a solver's model, beside the calls of other packages.
bench-embedding: $(PEERS)/ready
	$(PEERS)/bin/python benchmarks/embedding.py --out benchmarks/embedding.md

# A thousand random problems on every kind of feasible set, each solved in four ways, a
# thousand with limits and risks beside a MILP solver, and a thousand tiny networks that
# must end within a number of nodes.
conformance: $(VENV)/test
	ENNOPT_CONFORMANCE=1000 $(BIN)/python -m pytest -n 2 --timeout 0 tests/conformance \
	  tests/engine/test_turns.py

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

# Size of certificates, and the checker's time beside the search's. NOTE as below.
bench-certificates: $(VENV)/test
	$(BIN)/python benchmarks/certificates.py experiments/instances \
	  --only '*_e[35]_L2_n20_*' '*_e3_L2_n40_*' '[bps]*_e5_L2_n40_*' 'concrete_e5_L2_n40_*' \
  '[bps]*_e[35]_L4_*' 'concrete_e[35]_L4_n20_*' 'concrete_e3_L4_n40_*' \
	  --note "$(NOTE)" --out benchmarks/certificates.md

# Other packages beside ours, on the ensembles of ONLY. NOTE is a sentence about the machine
# for the file.
ONLY ?= '*_e3_L2_n20_r0' '*_e5_L2_n20_r0'
bench-peers: $(PEERS)/ready
	$(PEERS)/bin/python benchmarks/peers.py experiments/instances --only $(ONLY) \
	  --limit 60 --note "$(NOTE)" --out benchmarks/peers.md

# Other packages live in an environment of their own.
$(PEERS)/ready: $(SOURCES)
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip install --quiet --upgrade pip
	$(PEERS)/bin/python -m pip install --quiet ".[sklearn,scip,gurobi,pyomo]" \
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
