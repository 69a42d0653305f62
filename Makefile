# Everything runs in the project's own environment, .venv. Nothing but Python >= 3.11 with pip and venv is needed.
PYTHON ?= python3
BIN := .venv/bin
STDLIB := $(shell $(PYTHON) -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')
UV_VERSION := 0.13.8
PROCESSES ?= 2
TESTS ?= not chaos

# Tests of pure code: the language, the planner, formats, codec, shuffling, and state machines. They start no driver
# and no worker (test_evaluation.py does).
UNIT := tests/dsl --ignore tests/dsl/test_evaluation.py tests/orchestrator/planner tests/orchestrator/test_scheduler.py \
	tests/primitives/formats tests/primitives/shuffling tests/primitives/encoding tests/primitives/coordinator \
	tests/primitives/objects/test_state.py tests/primitives/objects/test_catalog.py \
	tests/primitives/traversal/test_machine.py tests/orchestrator/dispatcher/test_pool_machine.py \
	tests/triggers/test_machine.py tests/triggers/test_judge.py tests/triggers/test_positions.py

SYSTEM_PACKAGES := iproute2 iptables docker-compose default-jre-headless maven '^libpython3[.][0-9]+-testsuite$$'

.PHONY: demo unit test explore system-packages check compiled docs format chaos fuzz budgets bench workloads isolated pythons corners clean

## demo: count the words of Python's own standard library
demo: .venv/ready
	@$(BIN)/treadle run examples/wordcount/wordcount.yaml -i 'corpus=$(STDLIB)/*.py'
	@echo 'the ten most frequent words:'
	@$(BIN)/treadle result @last --stage top

## unit: the tests of pure code, in two processes, below a minute
unit: .venv/ready
	HYPOTHESIS_PROFILE=$${HYPOTHESIS_PROFILE:-quick} $(BIN)/pytest -q -m '$(TESTS)' -n 2 $(UNIT)

## test: everything but the chaos runs, in two processes: much of a test's time is waiting for servers
test: .venv/ready
	HYPOTHESIS_PROFILE=$${HYPOTHESIS_PROFILE:-default} $(BIN)/pytest -q -m '$(TESTS)' -n $(PROCESSES) --dist loadfile --no-loadscope-reorder

## explore: the property tests with other examples every time; `make test` has the same ones every time
explore: .venv/ready
	HYPOTHESIS_PROFILE=explore $(BIN)/pytest -q -m 'hypothesis and not chaos' -n $(PROCESSES) --dist loadfile --no-loadscope-reorder

## system-packages: programs without which some tests are skipped (Debian, Ubuntu)
system-packages:
	$(if $(filter 0,$(shell id -u)),,sudo) apt-get install --yes --no-install-recommends $(SYSTEM_PACKAGES)

## check: CI runs it before the tests: ruff, mypy, import-linter, plain English
check: .venv/ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tests/plain_english.py

## compiled: bytecode of what the tests import, also where Python is told to write none: they start a thousand interpreters
compiled: .venv/ready
	$(BIN)/python -m compileall -q primitives/src executors/src dsl/src orchestrator/src libraries/*/src
	-env -u PYTHONDONTWRITEBYTECODE $(BIN)/pytest -qq --collect-only >/dev/null

## docs: the site, in build/docs: from docs/, the other Markdown files and docstrings; a broken link or name fails it
docs: .venv-docs/ready
	.venv-docs/bin/sphinx-build --quiet --fail-on-warning --keep-going --fresh-env --builder html --conf-dir docs . build/docs
	@echo 'open build/docs/index.html'

## format: let ruff write the layout
format: .venv/ready
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

## chaos: kills at random moments and the long property tests
chaos: .venv/ready
	HYPOTHESIS_PROFILE=nightly $(BIN)/pytest -q -s -m chaos
	HYPOTHESIS_PROFILE=nightly $(BIN)/pytest -q tests/properties

## fuzz: mutates workflow documents for an hour (SECONDS=600: ten minutes), from a seed that it prints
fuzz: .venv/ready
	PYTHONPATH=tests $(BIN)/python tests/properties/mutations.py --seconds $(or $(SECONDS),3600)

## budgets: calls, system calls, memory and modules of the hot paths beside their budgets; TOP=PATH: where; RENEW=1: write
budgets: .venv/ready
	@PYTHONPATH=tests $(BIN)/python -m budgets $(if $(TOP),--top $(TOP)) $(if $(RENEW),--renew)

## bench: the figures of bench/RESULTS.md, a quarter of an hour; FULL=1: all sizes, an hour (bench/README.md)
bench: .venv/ready
	$(BIN)/python bench/environments.py
	$(BIN)/python bench/run.py $(if $(FULL),,--quick --minutes 12)
	$(BIN)/python bench/report.py

## workloads: eight workloads beside Ray, Dask, Spark and others, below twenty minutes: writes bench/WORKLOADS.md
workloads: .venv/ready
	cd bench && ../$(BIN)/python -m workloads --minutes 17 --seconds 16

## isolated: each member tested in an environment that holds it and what it depends on, no more
isolated: .venv/ready
	tests/isolated.sh

## pythons: a core of the tests on each supported Python, with the oldest and with the newest dependencies
pythons: .venv/ready
	tests/pythons.sh matrix

## corners: of `pythons` the oldest with the oldest and the newest with the newest
corners: .venv/ready
	tests/pythons.sh corners

.venv/ready: pyproject.toml uv.lock $(wildcard */pyproject.toml libraries/*/pyproject.toml)
	test -x $(BIN)/uv || ($(PYTHON) -m venv .venv && $(BIN)/pip install --quiet --disable-pip-version-check uv==$(UV_VERSION))
	$(BIN)/uv sync --quiet --frozen --all-packages --all-extras
	@touch $@

.venv-docs/ready: .venv/ready
	UV_PROJECT_ENVIRONMENT=.venv-docs $(BIN)/uv sync --quiet --frozen --all-packages --no-default-groups --group docs
	@touch $@

clean:
	rm -rf .venv .venv-docs build/docs .mypy_cache .ruff_cache .pytest_cache .hypothesis
