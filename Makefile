# firstdrift from a fresh clone. Needs python3 (3.11 or newer) with venv and pip, git and make; `make` lists what there is.

PYTHON ?= python3
PORT ?= 8765
DATA ?= .firstdrift
# Tests wait much, for workers, browsers and leases: more processes than two cores pay off.
JOBS ?= 3
# --any-torch takes the build of PyTorch that the package index offers, whatever its hash is.
TORCH ?=
# The tests write some hundred thousand small files: into memory, where there is room for them.
MEMORY := $(shell df -Pk /dev/shm 2>/dev/null | awk 'NR == 2 && $$4 > 6000000 { print "/dev/shm" }')

BIN := .venv/bin
PEER := .venv-interop/bin
PINS := $(wildcard requirements/*.txt) requirements/install.py
SERVE := $(BIN)/firstdrift serve examples --port $(PORT) --data-dir $(DATA)
PIP := -m pip install --quiet --disable-pip-version-check
CHROMIUM := $(shell command -v chromium-headless-shell chromium chromium-browser google-chrome 2>/dev/null | head -n 1)

NODE := $(shell command -v node 2>/dev/null)
NPM := $(shell command -v npm 2>/dev/null)

.PHONY: help install demo serve test security-oldest lint messages pins audit interop interop-venv bench soak truth examples clean
.DELETE_ON_ERROR:

help:
	@echo "make demo     compare the sample dumps, and say which address to open, at port $(PORT)"
	@echo "make serve    serve the examples without comparing anything first"
	@echo "make test     run the whole test suite"
	@echo "make security-oldest  run the attacks with the oldest web packages that are allowed"
	@echo "make lint     style, types, and who may import whom"
	@echo "make messages collect the texts of the pages for translators"
	@echo "make pins     write the lists of versions and hashes in requirements/ anew"
	@echo "make audit    ask whether a fault is known of any package that is pinned"
	@echo "make interop  compare with the real msprobe, on dumps that it writes now (a heavy package, in a venv of its own)"
	@echo "make bench    time firstdrift against msprobe"
	@echo "make soak     try all promises of docs/reliability.md as often as it says, and write that page (hours)"
	@echo "make truth    measure how right the answers are, on a fresh sample of models and faults"
	@echo "make clean    remove the virtual environments and everything else that make made"

install: .venv/.installed

.venv/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "firstdrift needs Python 3.11 or newer: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)"; exit 1; }
	@$(PYTHON) -m venv .venv \
	  || { echo "Python cannot make virtual environments; on Debian and Ubuntu: apt install python3-venv"; exit 1; }
	@touch $@

.venv/.installed: .venv/.made pyproject.toml $(PINS)
	@echo "Installing firstdrift and what it needs into .venv (a minute or two, once) ..."
	@$(BIN)/python requirements/install.py $(TORCH)
	@$(BIN)/python $(PIP) --no-deps --no-build-isolation -e .
	@$(BIN)/python -m compileall -q firstdrift server worker frontend
	@$(BIN)/python -m firstdrift.tables
	@$(BIN)/python -m firstdrift.metrics.elementwise.compiled
	@touch $@

.venv/.installed-dev: .venv/.installed
	@echo "Installing what tests and checks need into .venv ..."
	@$(BIN)/python requirements/install.py --dev $(TORCH)
	@touch $@

.venv-interop/.installed: tests/interop/requirements.txt
	@echo "Installing msprobe and what it needs into .venv-interop (some minutes, once) ..."
	@$(PYTHON) -m venv .venv-interop
	@$(PEER)/python $(PIP) -r $<
	@touch $@

interop-venv: .venv-interop/.installed

demo: install
	@$(BIN)/python examples/unpack.py
	@echo "for later, a rollout against its trainer: $(rollout-address)"
	@$(SERVE) \
	  --compare examples/msprobe-llama-tensor/golden examples/msprobe-llama-tensor/target \
	  --compare examples/msprobe-llama-statistics/golden examples/msprobe-llama-statistics/target \
	  --compare examples/msit-llama12/llama12_golden_fp32 examples/msit-llama12/llama12_bf16_bad_L7_T2

rollout-address = http://127.0.0.1:$(PORT)/rollout?rollout=$(CURDIR)/examples/rollout/rollout.jsonl&trainer=$(CURDIR)/examples/rollout/trainer.jsonl

serve: install
	@$(BIN)/python examples/unpack.py
	@$(SERVE)

test: .venv/.installed-dev
ifeq ($(CHROMIUM),)
	@echo "The browser tests need Chromium and will fail without it. On Debian: apt install chromium-headless-shell;"
	@echo "on Ubuntu: snap install chromium; elsewhere: $(BIN)/playwright install chromium"
endif
ifeq ($(NODE),)
	@echo "The modules of the pages are NOT tested by themselves, only through the browser: that needs node (apt install nodejs)"
else ifeq ($(ARGS),)
	$(NODE) --test --test-reporter=dot tests/frontend/*.test.mjs
endif
	$(if $(MEMORY),TMPDIR=$(MEMORY)) $(BIN)/pytest -n $(JOBS) $(ARGS)

# Only what requests pass through is old: it lies in front of what is in .venv. What is old may warn of what is newer.
.venv-oldest/.installed: tests/security/oldest.txt .venv/.installed-dev
	@echo "Installing the oldest web packages that are allowed into .venv-oldest ..."
	@rm -rf .venv-oldest
	@$(BIN)/python $(PIP) --no-deps --target .venv-oldest -r $<
	@touch $@

# Readers of dumps know nothing of the web packages: their tests would find what `make test` has found.
security-oldest: .venv-oldest/.installed
	$(if $(MEMORY),TMPDIR=$(MEMORY)) PYTHONPATH=$(CURDIR)/.venv-oldest $(BIN)/pytest -W ignore::DeprecationWarning -n $(JOBS) tests/security \
	  --ignore=tests/security/test_ceilings.py --ignore=tests/security/test_files.py

frontend/node_modules/.installed: frontend/package.json frontend/package-lock.json
	@echo "Installing what checks the types of scripts into frontend/node_modules ..."
	@cd frontend && $(NPM) ci --silent --ignore-scripts --no-audit --no-fund
	@touch $@

lint: .venv/.installed-dev $(if $(NPM),frontend/node_modules/.installed)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tests/contracts/measures.py
ifeq ($(NPM),)
	@echo "The types of the scripts are NOT checked: that needs npm (apt install nodejs npm)"
else
	frontend/node_modules/.bin/tsc --project frontend
endif

LOCALE := frontend/firstdrift_frontend/locale
messages: .venv/.installed-dev
	PYTHONPATH=frontend $(BIN)/pybabel -q extract --mapping=frontend/messages.cfg --keywords=say --no-wrap --omit-header \
	  --sort-by-file --add-location=file --output=$(LOCALE)/firstdrift.pot .
	$(BIN)/pybabel -q update --input-file=$(LOCALE)/firstdrift.pot --output-dir=$(LOCALE) --domain=firstdrift --no-wrap \
	  --no-fuzzy-matching --ignore-obsolete --omit-header
	@rm $(LOCALE)/firstdrift.pot

# WHEELS: CPU builds of PyTorch, whose hashes are to be added.
pins:
	@$(PYTHON) -m venv .venv-pins
	@.venv-pins/bin/python $(PIP) --require-hashes -r requirements/uv.txt
	@.venv-pins/bin/python requirements/renew.py .venv-pins/bin/uv $(WHEELS)

# Not part of .ci/run: that an advisory is published breaks no change that has nothing to do with it.
audit:
	@$(PYTHON) -m venv .venv-audit
	@.venv-audit/bin/python $(PIP) --require-hashes -r requirements/tools/audit.txt
	@.venv-audit/bin/python requirements/audit.py

interop: .venv/.installed-dev .venv-interop/.installed
	$(BIN)/pytest -n $(JOBS) tests/interop

bench: install .venv-interop/.installed
	$(BIN)/python benchmarks/against_msprobe.py --peer $(PEER)/msprobe

truth: install .venv-interop/.installed
	$(BIN)/python benchmarks/truth/run.py $(ARGS)

.venv-schemathesis/.installed: tests/server/schemathesis.txt
	@echo "Installing schemathesis into .venv-schemathesis ..."
	@$(PYTHON) -m venv .venv-schemathesis
	@.venv-schemathesis/bin/python $(PIP) -r $<
	@touch $@

soak: .venv/.installed-dev .venv-schemathesis/.installed
	$(if $(MEMORY),TMPDIR=$(MEMORY)) $(BIN)/python tests/soak.py $(ARGS)

examples: interop-venv
	$(PEER)/python examples/generate.py

clean:
	rm -rf frontend/node_modules .venv .venv-interop .venv-oldest .venv-pins .venv-audit .venv-schemathesis .firstdrift benchmarks/data .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
