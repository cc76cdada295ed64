# The two commands of the README are `make book` (or `make`) and `make test`.
# They need Python 3.11 to 3.13 with pip, and make. Another Python: make PYTHON=python3.12

PYTHON ?= python3
BIN := .venv/bin

.DEFAULT_GOAL := book
.PHONY: setup book test lint clean

define FIND_PYTHON
import os, sys
if not (3, 11) <= sys.version_info[:2] < (3, 14):
    sys.exit("python must be 3.11 to 3.13, got %d.%d; name another one, as in: make PYTHON=python3.12" % sys.version_info[:2])
print(os.path.realpath(sys.executable))  # never a virtual environment's own, which is removed below
endef
export FIND_PYTHON

# .venv counts only when .venv/made-from names this folder, this Python and the contents of the two files that
# decide what is in it. That line is written last, so what an interrupted run left behind is made anew. Where the
# distribution leaves ensurepip out of its Python, that Python's own pip fills the environment from outside.
setup:
	@set -eu; \
	python=$$($(PYTHON) -c "$$FIND_PYTHON"); \
	made_from=$$(cksum requirements.lock pyproject.toml; echo "$$python"; pwd); \
	if [ "$$(cat .venv/made-from 2>/dev/null)" = "$$made_from" ] && $(BIN)/python -c 'import overhead' 2>/dev/null; \
	then exit 0; fi; \
	echo "Installing into .venv what requirements.lock pins (about 2 GB; some minutes the first time)"; \
	rm -rf .venv; \
	pip() { $(BIN)/python -m pip --disable-pip-version-check --quiet "$$@"; }; \
	if ! "$$python" -m venv .venv >/dev/null 2>&1; then \
		"$$python" -m venv --clear --without-pip .venv; \
		pip() { "$$python" -m pip --python $(BIN)/python --disable-pip-version-check --quiet "$$@"; }; \
	fi; \
	pip install --require-hashes -r requirements.lock; \
	pip install --no-deps --no-build-isolation --editable .; \
	echo "$$made_from" > .venv/made-from

# Measures this machine unless results/local is there already; `make book FRESH=1` measures again.
book: setup
	@$(BIN)/overhead run --host local --preset quick $(if $(FRESH),,--if-missing)
	@$(BIN)/overhead book

lint: setup
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/pyright
	@$(BIN)/lint-imports

test: lint
	@$(BIN)/python -m pytest

# What was measured stays: results/ is not touched.
clean:
	rm -rf .venv _build build dist src/*.egg-info .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
