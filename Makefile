# `make demo` runs the main job on the data it ships, `make test` runs every check.
# Each makes its own virtual environment and needs nothing but make and Python 3.11 or newer.
#
#   make demo PYTHON=python3.12     another interpreter
#   make test TEST_PACKAGES=torch   further packages for the tests that skip without them
#   make test PYTEST_ARGS="-k qdq"  some of the tests

RECENT = import sys; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for name in python3 python3.14 python3.13 python3.12 python3.11 python; do \
	$$name -c '$(RECENT)' 2>/dev/null && { echo $$name; break; }; done)

DEMO := .venv-demo
TEST := .venv-test
SOURCES := $(shell find calib samplers calibrators data_manifests -type f -not -name '*.pyc' 2>/dev/null)
INSTALL := -m pip install --quiet --disable-pip-version-check -c constraints.txt
# Modules that must type-check against the stubs of TensorRT 11 too, not only against those of 10.
TRT11 := $(addprefix calib/edges/tensorrt/,buffers.py building.py calibration.py explicit.py library.py runner.py)
TEST_PACKAGES ?=
PYTEST_ARGS ?=
BENCH_ARGS ?=

.PHONY: demo test check format bench wheel clean

demo: $(DEMO)/installed
	$(DEMO)/bin/calib demo -o demo-out

test: $(TEST)/installed check
	$(TEST)/bin/python -m pytest -n auto --maxprocesses 4 --dist loadfile $(PYTEST_ARGS)

check: $(TEST)/installed
	$(TEST)/bin/ruff check .
	$(TEST)/bin/ruff format --check .
	$(TEST)/bin/mypy
	MYPYPATH=typings/trt11 $(TEST)/bin/mypy --cache-dir .mypy_cache/trt11 $(TRT11)

format: $(TEST)/installed
	$(TEST)/bin/ruff check --fix .
	$(TEST)/bin/ruff format .

bench: $(TEST)/installed
	$(TEST)/bin/python tests/bench/bench.py $(BENCH_ARGS)

wheel: $(TEST)/installed
	$(TEST)/bin/python -m pip wheel --quiet --no-deps -w dist .

clean:
	rm -rf $(DEMO) $(TEST) demo-out dist .mypy_cache .ruff_cache .pytest_cache .hypothesis

# The demo installs the package as a user would; only the package itself is installed again after an edit.
$(DEMO)/installed: $(DEMO)/dependencies $(SOURCES)
	$(DEMO)/bin/python $(INSTALL) --no-deps --force-reinstall .
	@touch $@

$(DEMO)/dependencies: pyproject.toml constraints.txt
	$(call new_environment,$(DEMO))
	$(DEMO)/bin/python $(INSTALL) ".[cpu]"
	@touch $@

# The tests run on the source tree.
$(TEST)/installed: pyproject.toml constraints.txt
	$(call new_environment,$(TEST))
	$(TEST)/bin/python $(INSTALL) -e ".[test]" $(TEST_PACKAGES)
	@touch $@

define new_environment
@$(if $(PYTHON),,echo "calib needs Python 3.11 or newer: install it, or name one with PYTHON=…" >&2; exit 1)
@$(PYTHON) -c '$(RECENT)' || { echo "calib needs Python 3.11 or newer; $(PYTHON) is older or does not run" >&2; exit 1; }
@echo "making $(1) with $(PYTHON)"
@$(PYTHON) -m venv --clear $(1) || { echo "remedy: install Python's venv module (Debian: apt install python3-venv)" >&2; exit 1; }
endef
