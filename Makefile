# Two commands matter: `make demo` and `make test`. Both do all of their own set-up and say what they are doing.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
# A second node costs less than a second and 0.3 GiB, and some tests cut one off.
NODES  ?= $(or $(TASKFOLD_CLUSTER_NODES),2)
# Test processes beside each other on the cluster, each with an operator and namespaces of its own: most tests wait. 0: one.
WORKERS ?= 3
# Tests start hundreds of Python processes: what they compile is kept, also where the environment says otherwise.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test soak scenarios chaos lint pure unit conformance helper tools cluster images down bench generate lock clean

help:  ## this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

demo: $(STAMP)  ## a cluster, the operator by Helm, a TaskRun, its reward on the screen
	TASKFOLD_CLUSTER_NODES=$(NODES) $(BIN)/python hack/demo.py

test: lint helper unit conformance  ## lint, unit tests, fakes, and the conformance tests on a real cluster

lint: $(STAMP) tools  ## formatters, type checks, import layers, shell scripts, generated files
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python hack/generate.py --check
	$(BIN)/python hack/lint_shell.py

pure: $(STAMP)  ## the quick part of unit: contract, decisions, builders, the conformance table; less than a minute
	$(BIN)/pytest -n auto --dist worksteal -m "not cluster" tests/contract tests/api tests/protocol tests/decide tests/build \
		tests/conformance

unit: $(STAMP) tools  ## tests that need no cluster
	$(BIN)/pytest -n auto --dist worksteal -m "not cluster and not cluster_lifecycle"

helper:  ## the sandbox helper: vet and its own tests
	cd helper && go vet ./... && go test ./...

conformance: $(STAMP) images  ## tests on the real cluster, bulk cases at a tenth; PROFILE=userns: the table alone, under it
ifdef PROFILE
	TASKFOLD_TEST_PROFILE=$(PROFILE) $(BIN)/pytest tests/conformance/test_table.py
else
	$(BIN)/pytest -n $(WORKERS) --dist loadfile -m "cluster and not (alone or chaos)"
	$(BIN)/pytest -m "alone or chaos or cluster_lifecycle"
endif

soak: $(STAMP) images  ## the same with bulk cases whole
	TASKFOLD_SOAK=1 $(BIN)/pytest -m "cluster or cluster_lifecycle"

scenarios: $(STAMP)  ## every crash point of every scenario, and COUNT random worlds from SEED on
	TASKFOLD_SCENARIOS=$(or $(COUNT),20000) TASKFOLD_SEED=$(or $(SEED),20) $(BIN)/pytest tests/world/test_crashes.py \
		tests/world/test_fencing.py tests/world/test_random.py

chaos: $(STAMP) images  ## runs go on while operator and cluster are hurt: every fault, 40 runs each
	TASKFOLD_CHAOS=full $(BIN)/pytest tests/chaos

tools:
	@$(PYTHON) hack/tools.py

cluster:  ## the local cluster (or the one named in TASKFOLD_KUBECONFIG)
	$(PYTHON) hack/cluster up --nodes $(NODES)

images: cluster $(STAMP)  ## stand-in images and our own, in the local registry
	$(BIN)/python hack/images --all

down:  ## end the local cluster and leave nothing behind
	$(PYTHON) hack/cluster down

bench: $(STAMP) images  ## what a run costs over bare pods, and copies; see docs/benchmarks.md
	$(BIN)/python -m bench.run_speed
	$(BIN)/python -m bench.copy

generate: $(STAMP)  ## write the CRDs and the reference pages from the code
	$(BIN)/python hack/generate.py

lock: $(STAMP)  ## renew requirements.lock
	$(BIN)/python hack/lock.py

clean:  ## remove the virtual environment and caches of this checkout
	rm -rf $(VENV) build .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis

$(STAMP): pyproject.toml requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed, this is " + sys.version.split()[0] + "; name another: make PYTHON=python3.12") if sys.version_info < (3, 11) else None'
	@echo "making the virtual environment $(VENV)"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --requirement requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	@touch $@
