# The two commands of the README are `make book` (or `make`) and `make test`.
# They need Python 3.11 to 3.13 with pip, and make. Another Python: make PYTHON=python3.12

PYTHON ?= python3
BIN := .venv/bin

.DEFAULT_GOAL := book
.PHONY: setup book test check-all lint faults rehearse clean

define FIND_PYTHON
import os, sys
if not (3, 11) <= sys.version_info[:2] < (3, 14):
    sys.exit("python must be 3.11 to 3.13, got %d.%d; name another one, as in: make PYTHON=python3.12" % sys.version_info[:2])
print(os.path.realpath(sys.executable))  # never a virtual environment's own, which is removed below
endef
export FIND_PYTHON

# .venv counts only when .venv/made-from names this folder, this Python and the contents of requirements.lock; else it
# is made anew. .venv/installed-from does the same for the package and pyproject.toml. Both lines are written last, so
# what an interrupted run left behind never counts. Where the distribution leaves ensurepip out of its Python, that
# Python's own pip fills the environment from outside.
setup:
	@set -eu; \
	python=$$($(PYTHON) -c "$$FIND_PYTHON"); \
	made_from=$$(cksum < requirements.lock; echo "$$python"; pwd); \
	installed_from=$$(cksum < pyproject.toml); \
	same() { [ "$$(cat .venv/$$1 2>/dev/null)" = "$$2" ]; }; \
	pip() { \
		if [ -x $(BIN)/pip ]; then $(BIN)/python -m pip --disable-pip-version-check --quiet "$$@"; \
		else "$$python" -m pip --python $(BIN)/python --disable-pip-version-check --quiet "$$@"; fi; \
	}; \
	if ! same made-from "$$made_from" || ! $(BIN)/python -c '' 2>/dev/null; then \
		echo "Installing what requirements.lock pins into .venv (about 3 GB; some minutes the first time)"; \
		rm -rf .venv; \
		"$$python" -m venv .venv >/dev/null 2>&1 || "$$python" -m venv --clear --without-pip .venv; \
		pip install --require-hashes -r requirements.lock; \
		echo "$$made_from" > .venv/made-from; \
	fi; \
	if ! same installed-from "$$installed_from" || ! $(BIN)/python -c 'import overhead' 2>/dev/null; then \
		pip install --no-deps --no-build-isolation --editable .; \
		echo "$$installed_from" > .venv/installed-from; \
	fi

# Measures this machine unless results/local has these chapters already; `make book FRESH=1` measures again. The three
# that answer the question take minutes; `make book CHAPTERS=` measures every chapter.
CHAPTERS ?= $$($(BIN)/python -m overhead.chapters answers)
book: setup
	@$(BIN)/overhead run $(CHAPTERS) --host local --preset quick $(if $(FRESH),--fresh,--if-missing)
	@$(BIN)/overhead book

lint: setup
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/pyright
	@$(BIN)/lint-imports

# The files of tests are shared out to JOBS processes; each takes up to 4 GB.
JOBS ?= 2
test: lint
	@$(BIN)/python -m pytest -n $(JOBS) --dist loadfile

# The tests that take minutes each as well.
check-all: lint
	@$(BIN)/python -m pytest -m "long or not long"

# Two hundred kills of runs, sweeps, benches and books at random instants; at most half an hour.
faults: setup
	@$(BIN)/python tests/faults.py

# Plays the workshop's plan with a clock, in a results folder of its own: `make rehearse PLAN=four-hours`.
PLAN ?= two-hours
rehearse: setup
	@$(BIN)/python scripts/rehearse.py $(PLAN)

# What was measured stays: results/ is not touched.
clean:
	rm -rf .venv _build build dist src/*.egg-info .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
