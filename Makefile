# make demo | make test | make check | make docs | make chaos | make clean: each sets up .venv by itself.
PYTHON ?= python3
BIN = .venv/bin
# what is imported is compiled then, and most of it never is: a minute less
INSTALL = $(BIN)/pip install --quiet --no-compile --disable-pip-version-check -c constraints.txt
TORCH_CPU = https://download.pytorch.org/whl/cpu

.PHONY: demo test check docs chaos clean

demo: .venv/demo-ready
	$(BIN)/semishot demo

test: .venv/dev-ready
	$(BIN)/pytest -n 2

check: .venv/dev-ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pytest -n 2 -m "" --cov --cov-report=term

# the documentation site, in site/
docs: .venv/docs-ready
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# kills commands at random instants, sorts a pile while everything goes wrong, and reads changed files of every kind
chaos: .venv/dev-ready
	PYTHONPATH=tests $(BIN)/python -m support.chaos --kills $(or $(KILLS),200)
	STEPS=$(or $(STEPS),4000) FUZZ_CASES=$(or $(CASES),600) $(BIN)/pytest -n 2 --timeout 3600 -m "" \
		tests/promises/test_sorting_model.py tests/promises/test_odd_files.py

clean:
	rm -rf .venv build dist site src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage*

# torch alone first, its CPU build: 200 MB instead of 3 GB with CUDA. Where that index does not answer within
# seconds, pip goes on with its usual one.
.venv/demo-ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(INSTALL) --no-deps --extra-index-url $(TORCH_CPU) --timeout 10 --retries 1 torch
	$(INSTALL) -e .[train]
	touch $@

.venv/dev-ready: .venv/demo-ready
	$(INSTALL) -e .[dev,docs,train,tensorboard,photos,heic,hub,ray,label]
	touch $@

.venv/docs-ready: .venv/demo-ready
	$(INSTALL) -e .[docs]
	touch $@
