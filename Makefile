# make demo | make quick | make test | make check | make docs | make chaos | make fuzz | make clean: each sets up .venv by itself.
PYTHON ?= python3
BIN = .venv/bin
# what is imported is compiled then, and most of it never is: a minute less
INSTALL = $(BIN)/pip install --quiet --no-compile --disable-pip-version-check -c constraints.txt

.PHONY: demo quick test check docs chaos fuzz clean

demo: .venv/demo-ready
	$(BIN)/semishot demo

# the tests that matter while one edits, in less than a minute on two cores
quick: .venv/dev-ready
	$(BIN)/pytest -n 2 -m "not slow and not thorough"

test: .venv/dev-ready
	$(BIN)/pytest -n 2

check: .venv/dev-ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pytest -n 2 -m "" --cov --cov-report=term

# the documentation site, in site/
docs: .venv/docs-ready
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

# kills commands at random instants, 200 times, and runs them on hostile trees, 600 of them; CHAOS=full: 1,000 and 2,400
chaos: .venv/dev-ready
	PYTHONPATH=tests $(BIN)/python -m support.chaos --kills $(if $(filter full,$(CHAOS)),1000,200)
	PYTHONPATH=tests $(BIN)/python -m support.sorting_model --steps $(if $(filter full,$(CHAOS)),10000,2000)
	PYTHONPATH=tests $(BIN)/python -m support.hostile_trees --cases $(if $(filter full,$(CHAOS)),2400,600)

# odd files and odd commands, CASES of each kind, half of them guided by coverage
fuzz: .venv/fuzz-ready
	$(BIN)/python tests/fuzz/run.py --cases $(or $(CASES),600)

clean:
	rm -rf .venv build dist site src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage*

# torch alone first, by its exact version: a range would fetch gigabytes of GPU packages
.venv/demo-ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(INSTALL) torch==2.13.0
	$(INSTALL) -e .
	touch $@

.venv/dev-ready: .venv/demo-ready
	$(INSTALL) -e .[dev,docs,plots,tensorboard,photos,heic,onnx,ray,label]
	touch $@

.venv/docs-ready: .venv/demo-ready
	$(INSTALL) -e .[docs]
	touch $@

.venv/fuzz-ready: .venv/dev-ready
	$(INSTALL) -e .[fuzz]
	touch $@
