# On a fresh machine `make demo` and `make test` do their own set-up. `make help` lists the rest.
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
SHELL := /bin/bash

PYTHON := .venv/bin/python
ENV    := .venv/.installed
JAVA   := .venv/.java-home
CLASSES := .venv/.spark-classes
CODE   := laminar_dagster tests infra $(wildcard definitions.py) \
          $(patsubst %/__init__.py,%,$(wildcard bench/__init__.py examples/__init__.py soak/__init__.py))
# For example: make test PYTEST_ARGS='-k s3 -x'
PYTEST_ARGS ?=
# Run the tests in random order: ORDER=random, or ORDER=SEED for the same order again.
ORDER ?=
ORDER_ARGS := $(if $(ORDER),--random-order=$(ORDER))
TEST_PROCESSES ?= 3
BENCH_ARGS ?=
UI_ARGS ?=
KAFKA_DEMO_ARGS ?=
SOAK_ARGS ?=

# A Java that has been removed since is looked for again.
$(shell test -x "$$(cat $(JAVA) 2>/dev/null)/bin/java" || rm -f $(JAVA))
# Spark takes the Java that the set-up found, which need not be on the PATH.
with_java = export JAVA_HOME="$$(cat $(JAVA))";

.PHONY: help setup demo kafka-demo ui test proof check format lint types imports unit unit-core lock docs audit services-up services-down bench bench-kafka soak clean

help:  ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  \033[1m%-14s\033[0m %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(ENV) $(JAVA)  ## Create .venv from the lock and find or install Java

demo: setup  ## Kill a pipeline of a million events in a commit, recover it, compare with the answer
	@$(with_java) $(PYTHON) -m examples.clickstream

kafka-demo: setup  ## Kafka in: a broker, a producer, lag on the screen; KAFKA_DEMO_ARGS='--seconds 20'
	@$(with_java) $(PYTHON) -m examples.kafka_orders $(KAFKA_DEMO_ARGS)

ui: setup  ## Open Dagster on two pipelines that have run a few epochs; UI_ARGS='--anew --port 3001'
	@$(with_java) $(PYTHON) -m examples.ui $(UI_ARGS)

IN_PARALLEL := -n $(TEST_PROCESSES) --dist loadfile --no-loadscope-reorder

# Core's tests run by themselves first, since they have to cover it without the help of others; what
# they cover counts for the package as well. Whoever chooses tests has them all in one run.
ifeq ($(strip $(PYTEST_ARGS)),)
test: unit-core
BUT_CORE := --ignore=tests/unit/core --cov-append
endif

test: setup $(CLASSES)  ## Run every test, real services included; coverage of the package >= 85 %
	@$(PYTHON) -m infra install || echo "Its tests cannot run." >&2
	@# The long files come first, and many short ones fill the end: tests/services/order.py.
	@# More processes than cores: most of the time a test waits, for a server or for a disk.
	@$(with_java) $(PYTHON) -m pytest tests $(IN_PARALLEL) --cov --cov-report= $(BUT_CORE) \
		$(ORDER_ARGS) $(PYTEST_ARGS)
	@$(PYTHON) -m coverage report --fail-under=85

# The counts of the proofs come last.
proof: export CI = true
# Other examples each time.
proof: export HYPOTHESIS_PROFILE = dev
proof: setup $(CLASSES)  ## Soak, sinks on every server, every proof at full length; hours, for nights
	@$(PYTHON) -m infra install
	@$(with_java) $(PYTHON) -m soak $(SOAK_ARGS)
	@$(with_java) LAMINAR_EVERY_SERVER=1 $(PYTHON) -m pytest tests/integration/sinks/databases \
		$(IN_PARALLEL) $(ORDER_ARGS) $(PYTEST_ARGS)
	@$(with_java) LAMINAR_PROOF=full $(PYTHON) -m pytest tests -m 'proof or long_lane' \
		$(IN_PARALLEL) $(ORDER_ARGS) $(PYTEST_ARGS)

check: lint types imports unit  ## All that needs no service, in three minutes

format: $(ENV)  ## Format the code and fix what can be fixed
	@$(PYTHON) -m ruff check --fix-only --quiet .
	@$(PYTHON) -m ruff format .

lint: $(ENV)  ## Style: ruff check and ruff format --check
	@$(PYTHON) -m ruff check .
	@$(PYTHON) -m ruff format --check .

types: $(ENV)  ## Types: mypy --strict on the package and all that surrounds it
	@$(PYTHON) -m mypy $(CODE)

imports: $(ENV)  ## Layers: import-linter
	@.venv/bin/lint-imports --no-logo

unit-core: setup  ## Unit tests of core alone; its branch coverage >= 95 %
	@$(PYTHON) -m pytest tests/unit/core $(BUT_SLOW) -n 2 --cov=laminar_dagster/core --cov-report= \
		$(ORDER_ARGS) $(PYTEST_ARGS)
	@$(PYTHON) -m coverage report --include='laminar_dagster/core/*' --fail-under=95

unit: BUT_SLOW := -m 'not slow'
unit: unit-core  ## Unit tests but the slow ones
	@$(PYTHON) -m pytest tests/unit --ignore=tests/unit/core $(BUT_SLOW) -n 2 \
		--dist loadfile --no-loadscope-reorder $(ORDER_ARGS) $(PYTEST_ARGS)

lock:  ## Resolve the dependencies anew into requirements.lock
	@infra/bootstrap.sh lock

docs: $(ENV)  ## Build the documentation as a site; a link that leads nowhere is an error
	@$(PYTHON) -m infra.docs_site && infra/bootstrap.sh docs
	@echo "Open .laminar/site/html/index.html"

audit: $(ENV)  ## Known vulnerabilities of the locked packages; says so where advisories cannot be reached
	@infra/bootstrap.sh audit | $(PYTHON) -m infra.audit

services-up: $(ENV)  ## Start the services and print the variables to export
	@$(PYTHON) -m infra up

services-down: $(ENV)  ## Stop the services that services-up started
	@$(PYTHON) -m infra down

bench: setup  ## Run the benchmarks; BENCH_ARGS='throughput --full' chooses
	@$(with_java) $(PYTHON) -m bench $(BENCH_ARGS)

bench-kafka: setup  ## Kafka beside its peers, which it installs; more than an hour; BENCH_ARGS='--quick'
	@$(with_java) $(PYTHON) -m bench kafka $(BENCH_ARGS)

soak: setup  ## Random faults for minutes, then every sink beside the answer; SOAK_ARGS='--minutes 2 --seed 7'
	@$(with_java) $(PYTHON) -m soak $(SOAK_ARGS)

clean:  ## Remove the environment, caches and results (not the cache of installed services)
	@if [ -x $(PYTHON) ]; then $(PYTHON) -m infra down; fi
	@rm -rf .venv .laminar .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(ENV): requirements.lock pyproject.toml infra/bootstrap.sh infra/native_build.py \
		$(wildcard laminar_dagster/sources/native/*.[ch])
	@infra/bootstrap.sh sync
	@touch $@

$(JAVA): $(ENV)
	@$(PYTHON) -m infra.java > $@

# Without the archive, which is in the user's cache, the tests take longer.
$(CLASSES): $(JAVA) laminar_dagster/spark/class_archive.py
	@$(with_java) .venv/bin/laminar warm-up && touch $@ || echo "Spark's classes could not be kept." >&2
