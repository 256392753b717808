# Each target first creates what it needs: a virtual environment in .venv with the versions pinned in constraints.txt,
# and the compiled modules. Another interpreter (PYTHON=python3.12) gets its own environment, .venv-3.12.
# Downloads of the compatibility tests (Apache Kafka's jars) and the archive of Spark's classes go to ~/.cache/headrace,
# or HEADRACE_CACHE.

PYTHON ?= python3
VERSION_OF = $(shell $(1) -c 'import sys; print("%d.%d" % sys.version_info[:2])')
ifeq ($(PYTHON),python3)
VENV := .venv
else
VERSION := $(call VERSION_OF,$(PYTHON))
VENV := .venv$(if $(filter-out $(call VERSION_OF,python3),$(VERSION)),-$(VERSION))
endif
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
KERNEL := $(shell find src -name "*.pyx" -o -name "*.pxd")

.DEFAULT_GOAL := help
TARGETS := help build run tour cluster test quick check mutants bench soak jepsen endurance docs screenshots site dist clean
.PHONY: $(TARGETS)

help:  ## show this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-11s %s\n", $$1, $$2}'

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Headrace needs Python 3.11 or newer; set PYTHON=/path/to/python3.11"; exit 1; }
	@echo "==> creating a virtual environment in $(VENV)"
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: $(BIN)/python pyproject.toml constraints.txt setup.py
	@echo "==> installing pinned dependencies (about a minute the first time)"
	@$(PIP) install --constraint constraints.txt --upgrade setuptools Cython
	@echo "==> building and installing headrace"
	@$(PIP) install --constraint constraints.txt --no-build-isolation --editable '.[dev]'
	@touch $@ $(VENV)/.built

$(VENV)/.built: $(VENV)/.installed $(KERNEL)
	@if [ -n "$$(find $(KERNEL) -newer $@ 2>&1)" ]; then \
	  echo "==> building the compiled modules"; $(BIN)/python setup.py -q build_ext --inplace; fi
	@touch $@

build: $(VENV)/.built  ## create the virtual environment and build the compiled modules: PYTHON=python3

EVENTS ?= 100000
MASTER ?= local[*]
HOST ?= 127.0.0.1
run: $(VENV)/.built  ## demo: a shop's events through two Spark pipelines, with console and audit: EVENTS=100000 MASTER=local[*] HOST=127.0.0.1 KEEP=1
	@java_home=$$(sh tools/ensure_java) && JAVA_HOME=$$java_home $(BIN)/python examples/shop_demo.py \
	  --events $(EVENTS) --master '$(MASTER)' --host $(HOST) --chart build/traffic.html $(if $(KEEP),--keep)

tour: $(VENV)/.built  ## demo: other projects' clients on a broker that is killed twice; checks that no record is lost
	@$(BIN)/python examples/broker_tour.py

RECORDS ?= 1000
# Together with `bench`, `cluster` is the name of a benchmark.
ifeq ($(filter bench,$(MAKECMDGOALS)),)
cluster: $(VENV)/.built  ## demo: three brokers on ZooKeeper, a killed leader and a rolling restart; prints what clients saw: RECORDS=1000 per second
	@java_home=$$(sh tools/ensure_java) && JAVA_HOME=$$java_home \
	  $(BIN)/python examples/cluster_tour.py --rate $(RECORDS)
endif

# Tests wait more than they compute, so there are more workers than cores. WORKERS=0 runs everything in one process.
CORES := $(shell nproc 2>/dev/null || echo 2)
WORKERS ?= $(shell expr $(CORES) '*' 2)
PYTEST = $(BIN)/python -m pytest -n $(WORKERS) --max-worker-restart=0 --durations=25 --durations-min=1

test: $(VENV)/.built  ## run all tests: unit, property, integration and compatibility: WORKERS=4
	@$(PYTEST)

quick: $(VENV)/.built  ## run unit and property tests, in under two minutes: PYTHON=python3.12
	@$(PYTEST) -n $(CORES) tests/unit tests/property  # which compute more than they wait

check: $(VENV)/.built  ## check formatting, lint, types, import rules and the layout of the tests
	@echo "==> ruff"
	@$(BIN)/ruff format --check --quiet . && $(BIN)/ruff check --quiet .
	@echo "==> mypy"
	@$(BIN)/mypy
	@echo "==> import rules"
	@$(BIN)/lint-imports --no-cache
	@echo "==> tests/unit mirrors src"
	@$(BIN)/python tools/check_test_layout.py

# Words after `bench` that are no targets are names of benchmarks: make bench hostile
ifneq ($(filter bench,$(MAKECMDGOALS)),)
BENCHMARKS := $(filter-out $(filter-out cluster,$(TARGETS)),$(MAKECMDGOALS))
.PHONY: $(BENCHMARKS)
$(BENCHMARKS): bench ; @:
endif

SEED ?= 1
SAMPLE ?= 200
MODULES ?=
mutants: $(VENV)/.built  ## report small changes of critical code that no test detects: SEED=1 SAMPLE=200 MODULES='storage/*.py'
	@$(BIN)/python -m tools.mutants --seed $(SEED) --sample $(SAMPLE) $(foreach module,$(MODULES),'$(module)')

bench: $(VENV)/.built  ## run the benchmarks against peers, or only those named: make bench hostile
	@$(BIN)/python -m bench $(BENCHMARKS)

soak: $(VENV)/.built  ## run the long versions of the crash, power-loss and model tests (hours)
	@HEADRACE_KILL_ROUNDS=500 HEADRACE_POWER_SEEDS=20000 HEADRACE_MODEL_EXAMPLES=20000 HEADRACE_FUZZ_ROUNDS=100000 \
	  HEADRACE_CODEC_EXAMPLES=300 HEADRACE_HOSTILE_ROUNDS=500 HEADRACE_HOSTILE_SEED=0 HEADRACE_HOSTILE_CONNECTIONS=10000 \
	  HEADRACE_CONTROLLER_SEEDS=20000 HEADRACE_CLUSTER_SEEDS=10000 HEADRACE_BROKER_KILL_ROUNDS=200 \
	  HEADRACE_TRANSACTION_ROUNDS=200 \
	  HEADRACE_PIPELINE_KILLS=all HEADRACE_CLUSTER_ROUNDS=50 HEADRACE_MIXED_ROUNDS=20 \
	  HEADRACE_REASSIGNED_PARTITIONS=1000 HEADRACE_JEPSEN_MINUTES=60 \
	  $(BIN)/python -m pytest --timeout 0 tests/integration tests/sim tests/property tests/jepsen \
	  tests/compat/broker/test_kill_restart.py tests/compat/broker/test_exactly_once.py tests/compat/mixed
	@HEADRACE_COMPAT_BROKER=cluster HEADRACE_BROKER_KILL_ROUNDS=20 HEADRACE_TRANSACTION_ROUNDS=20 \
	  $(BIN)/python -m pytest --timeout 0 tests/compat/broker tests/compat/client

SYSTEM ?= headrace
FAULTS ?=
jepsen: MINUTES = 5
jepsen: SEED =
jepsen: $(VENV)/.built  ## random transactions under faults, judged as by Jepsen: MINUTES=5 SEED=1 FAULTS=kill,partition SYSTEM=headrace|kafka
	@$(BIN)/python -m tests.jepsen.run --minutes $(MINUTES) --system $(SYSTEM) \
	  $(if $(SEED),--seed $(SEED)) $(if $(FAULTS),--faults $(FAULTS))

RATE ?= 20000
MINUTES ?= 60
endurance: $(VENV)/.built  ## run ods-dwd for an hour at a fixed rate; judges memory, lag, latency and an audit: RATE=20000 MINUTES=60
	@java_home=$$(sh tools/ensure_java) && JAVA_HOME=$$java_home $(BIN)/python -m bench.long_pipeline \
	  --rate $(RATE) --minutes $(MINUTES)

docs: $(VENV)/.built  ## regenerate the reference pages
	@$(BIN)/python tools/generate_client_config.py
	@$(BIN)/python docs/generate.py

screenshots: $(VENV)/.built  ## write docs/images: pages of the console on desktop and phone, light and dark
	@$(BIN)/python -m tools.console_screenshots docs/images

$(VENV)/.site: $(VENV)/.installed
	@$(PIP) install --constraint constraints.txt 'mkdocs-material' 'mkdocstrings[python]'
	@touch $@

site: $(VENV)/.site  ## build the documentation as a site, with search and an API reference, in build/site
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet && echo "==> open build/site/index.html"

dist: $(VENV)/.built  ## build sdist and wheel, and check them in an empty environment without a compiler
	@rm -rf dist && mkdir -p build
	@echo "==> building sdist and wheel"
	@$(BIN)/python -m build --no-isolation --outdir dist . > build/dist.log 2>&1 || { cat build/dist.log; exit 1; }
	@$(BIN)/python tools/check_dist.py dist

clean:  ## delete everything that other targets created
	rm -rf .venv .venv-* build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .bench-data
	find src -name "*.so" -delete
	find src -name "*.pyx" | sed 's/pyx$$/c/' | xargs rm -f
	rm -rf src/*.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
