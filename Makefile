# make demo   spectra of real residual networks: table and picture (demo_output/)
# make test   the whole test suite
# make bench  quick benchmark of the current commit
# make lint   ruff and mypy          make ctest  C tests under ASan and UBSan
PYTHON ?= python3
CC ?= cc
VENV := .venv
BIN := $(VENV)/bin
BUILD_INPUTS := setup.py pyproject.toml $(wildcard src_c/*.[ch] fastspec/*.pyx fastspec/*.pxd)
C_SOURCES := $(wildcard src_c/*.c src_c/tests/*.c)
SANITIZE := -fsanitize=address,undefined -fno-sanitize-recover=all

.PHONY: demo test bench lint ctest clean

demo: $(VENV)/.installed-demo
	$(BIN)/python -m fastspec.demo

test: $(VENV)/.installed-test
	$(BIN)/python -m pytest

bench: $(VENV)/.installed-dev
	$(BIN)/python -m asv machine --yes
	$(BIN)/python -m asv run --quick --show-stderr --dry-run --python=same

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/mypy

ctest:
	mkdir -p build
	$(CC) -std=gnu11 -g -O1 -Wall -Wextra -Werror $(SANITIZE) -Isrc_c $(C_SOURCES) -lm -o build/ctest
	build/ctest

$(VENV)/.installed-%: $(BUILD_INPUTS)
	@command -v $(CC) >/dev/null || { echo "fastspec needs a C compiler: install gcc or clang (for example: apt-get install gcc) and run make again"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { echo "fastspec needs Python 3.10 or newer: set PYTHON=/path/to/python3"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable '.[$*]'
	touch $@

clean:
	rm -rf $(VENV) build dist fastspec/include fastspec/lib fastspec/*.so fastspec/_kernels.c fastspec/cython_fastspec.c *.egg-info
