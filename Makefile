# Needs make and Python 3.11 or 3.12, nothing else. The environment is .venv; it is built at the first use and again
# when pyproject.toml, constraints.txt or the version of PYTHON changes.

PYTHON ?= python3
VERSION := $(shell "$(PYTHON)" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)
BIN := .venv/bin
INSTALLED := .venv/installed-$(VERSION)

.DEFAULT_GOAL := help
.PHONY: help demo test lint types clean check-python

help:
	@echo "make demo    run the demonstration; its files go to demo-output"
	@echo "make test    lint, types, then all tests"
	@echo "make lint    ruff check and ruff format --check"
	@echo "make types   mypy"
	@echo "make clean   remove .venv, caches and demo-output"
	@echo "PYTHON=...   the interpreter, 3.11 or 3.12 (default python3)"

demo: $(INSTALLED)
	$(BIN)/rankspace demo --output demo-output

# One thread per process: two workers with a thread per core each would fight for the cores.
test: lint types $(INSTALLED)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2

lint: $(INSTALLED)
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: $(INSTALLED)
	$(BIN)/mypy

clean:
	rm -rf .venv demo-output build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -type d -name .git -prune -o -type d -name __pycache__ -prune -exec rm -rf {} +

check-python:
	@case "$(VERSION)" in \
	3.11 | 3.12) exit 0 ;; \
	'') found="does not run" ;; \
	*) found="is $(VERSION)" ;; \
	esac; \
	echo "rankspace needs Python 3.11 or 3.12, and '$(PYTHON)' $$found; name another with PYTHON=..." >&2; exit 1

# The stamp exists only while the environment is whole, so an interrupted build starts from nothing the next time.
$(INSTALLED): pyproject.toml constraints.txt | check-python
	@test -f $@ || "$(PYTHON)" -m venv --clear .venv
	@rm -f $@
	@echo "installing rankspace and its tools into .venv (once; takes a minute or more)"
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@
