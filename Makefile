# Two commands do everything: `make figures` and `make test`. Each sets up .venv first.
PYTHON ?= python3
PROFILE ?= ci
BIN := .venv/bin
# Installed without bytecode, which each first import then writes: where this variable forbids that,
# every process compiles torch anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: figures test lint lab site benchmarks clean

# CHECK=1 compares with the committed figures instead, and names every number that has moved;
# TIMEOUT=15 ends a notebook that takes longer than so many minutes, and names its cell;
# NOTEBOOKS='00 07' runs only those; BUILD=folder keeps what they leave apart from build/.
figures: .venv/installed
	$(BIN)/dmlkit reproduce $(NOTEBOOKS) --profile $(PROFILE) $(if $(CHECK),--check) \
		$(if $(TIMEOUT),--timeout $(TIMEOUT)) $(if $(BUILD),--build $(BUILD))

test: lint
	$(BIN)/python -m pytest --numprocesses auto --dist loadscope
	$(BIN)/python -m pytest --numprocesses auto --dist loadscope --nbval-lax --nbval-current-env notebooks/*.ipynb

lint: .venv/installed
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

lab: .venv/installed
	$(BIN)/jupyter lab notebooks

# The course, its figures, claims and losses as a static site in build/site; nothing is executed.
site: .venv/installed
	$(BIN)/python -m dmlkit.extras.site

benchmarks: .venv/installed
	$(BIN)/python -m benchmarks

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt --editable '.[dev]'
	touch $@

clean:
	rm -rf .venv build data/runs data/glyphs
