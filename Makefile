# Two commands do everything: `make figures` and `make test`. Each sets up .venv first.
PYTHON ?= python3
PROFILE ?= ci
BIN := .venv/bin
TOOLS := build/tools/bin
COMMA := ,
# NEWEST=1 takes the newest releases that pyproject.toml allows, not those of constraints.txt.
CONSTRAINT := $(if $(NEWEST),,--constraint constraints.txt)
# TORCH=cpu takes PyTorch's wheels for CPUs: a third of the space, and no NVIDIA GPU is used.
CPU := $(if $(filter cpu,$(TORCH)),--extra-index-url https://download.pytorch.org/whl/cpu)
# Installed without bytecode, which each first import then writes: where this variable forbids that,
# every process compiles torch anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: figures test lint tests documented lab site playground explainer benchmarks audit links launch clean

# CHECK=1 compares with the committed figures instead, and names every number that has moved;
# TIMEOUT=15 ends a notebook that takes longer than so many minutes, and names its cell;
# NOTEBOOKS='00 07' runs only those; BUILD=folder keeps what they leave apart from build/.
figures: .venv/installed
	$(BIN)/dmlkit reproduce $(NOTEBOOKS) --profile $(PROFILE) $(if $(CHECK),--check) \
		$(if $(TIMEOUT),--timeout $(TIMEOUT)) $(if $(BUILD),--build $(BUILD))

test: .venv/installed
	$(MAKE) --jobs=2 lint tests

# The notebooks at their smallest, but for those that `make figures` has just run, and all tests at
# once, in the order of conftest.py: the long files first, the many small ones last, so that no core
# waits at the end. They run side by side, so each trains in its own process, as on a machine with
# one core.
tests: .venv/installed
	$(BIN)/python -m course.smoke
	LOKY_MAX_CPU_COUNT=1 $(BIN)/python -m pytest --numprocesses auto --dist loadscope --no-loadscope-reorder \
		--nbval-lax --nbval-current-env build/nbval tests dmlkit course studies

lint: .venv/installed
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

# The root is the project, so that the reference pictures in figures/ are found. As root, as in a
# container: make lab LAB=--allow-root.
lab: .venv/installed
	$(BIN)/jupyter lab $(LAB) --ServerApp.root_dir='$(CURDIR)' notebooks/index.ipynb

# The course, its figures, claims and losses as a static site in build/site; nothing is executed.
# Where npm is there, with what moves: the explorables of the lessons, the playground, the Explainer.
site: .venv/installed $(if $(shell command -v npm),build/playground/losses.json build/explainer/explainer.json)
	$(BIN)/dmlkit site

# What runs in a page comes from npm.
NPM = @command -v npm > /dev/null || { echo 'make $@ needs npm, of Node.js: none is on the path' >&2; exit 1; }

# Forces of every loss on points that can be dragged, in build/playground, and the graphs of the
# lessons' pictures, in build/explorables; needs npm.
playground: .venv/installed
	$(NPM)
	$(BIN)/python -m course.explorables.export build/explorables
	$(BIN)/python -m course.playground build/playground

# A network that trains in the page, in build/explainer; needs npm.
explainer: .venv/installed
	$(NPM)
	$(BIN)/python -m course.explainer build/explainer

SHARED := $(wildcard course/exporting.py course/live.py course/playground.py course/site/static/look.css \
	dmlkit/geometry.py dmlkit/losses/*.py)

build/playground/losses.json: $(SHARED) $(wildcard course/playground_page/* \
		course/explorables/*.py course/explorables/*.js)
	$(MAKE) playground

build/explainer/explainer.json: $(SHARED) $(wildcard course/explainer/*.*)
	$(MAKE) explainer

# The Explainer as it trains, a film of a minute's work; needs Chromium and its driver.
figures/explainer.webp: build/explainer/explainer.json
	$(BIN)/python -m course.explainer.film build/explainer $@

benchmarks: .venv/installed
	$(BIN)/python -m benchmarks

# Every command that the pages document and that takes too long for `make test`.
documented: .venv/installed
	$(BIN)/python -m tests.documented

# Known vulnerabilities of what is installed, and everyone's license in build/licenses.md.
audit: .venv/installed build/tools/installed
	$(BIN)/python -m pip freeze --exclude-editable > build/installed.txt
	$(TOOLS)/pip-audit --requirement build/installed.txt --no-deps --disable-pip
	$(TOOLS)/pip-licenses --python $(BIN)/python --format markdown --with-urls \
		--output-file build/licenses.md

# Every link of the site, also to other sites.
links: site build/tools/installed
	$(TOOLS)/linkchecker --check-extern --no-warnings build/site/index.html

# The notebooks as Colab and Kaggle open them, in build/launch; needs git's origin on GitHub.
launch: .venv/installed
	$(BIN)/python -m course.launch

build/tools/installed:
	$(PYTHON) -m venv build/tools
	$(TOOLS)/python -m pip install --quiet pip-audit pip-licenses linkchecker
	touch $@

# uv fetches and unpacks on every core. Its settings are not pip's: where it finds no package, pip
# looks where it is told to.
.venv/installed: pyproject.toml constraints.txt
	@echo "Setting up .venv, once: about $(if $(CPU),2 GB.,6 GB$(COMMA) most of it for NVIDIA GPUs; TORCH=cpu leaves that out.)"
	$(PYTHON) -m venv .venv
	$(if $(CPU),,{ $(BIN)/python -m pip install --quiet uv && $(BIN)/uv pip install --quiet --system-certs \
		--python $(BIN)/python $(CONSTRAINT) --editable '.[dev]'; } ||) $(BIN)/python -m pip install \
		--quiet --no-compile $(CONSTRAINT) $(CPU) --editable '.[dev]'
	touch $@

clean:
	rm -rf .venv build data/runs data/glyphs
