# Two commands need only Python: `make demo` and `make test`. Both make the virtual environment that they use.
PYTHON ?= python3
VENV   ?= .venv
COGGED := README.md docs/any-model.md docs/benchmarks.md docs/checkpoints.md docs/classical-tables.md docs/cli.md docs/continuous-integration.md docs/choosing-devices.md docs/devices-shared.md docs/devices.md docs/efficient-attention.md docs/find.md docs/gallery.md docs/glossary.md docs/how-it-counts.md docs/import.md docs/language.md docs/measure.md docs/python.md docs/reach.md docs/recipes.md docs/residual-stream.md docs/serving.md docs/spec.md docs/training-plan.md docs/training-runs.md docs/training.md docs/transformers.md docs/vision-operations.md docs/vision.md \
          docs/tutorials/add-a-mechanism.md docs/tutorials/fit-and-train.md docs/tutorials/your-architecture.md
BIN    := $(VENV)/bin
CHROMIUM := 147.0.0
PIP    := $(BIN)/python -m pip --disable-pip-version-check install -q -c constraints.txt

help: ## what each target does
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | sort

demo: $(VENV)/installed ## install, then compare ViT and Swin on the same image, closed form against the trace
	$(BIN)/xfcost compare vit swin --size 224 --trace

test: $(VENV)/test ## install what tests need, then run the tests of the quick tier that the change can reach; all of them on a clean tree
	$(BIN)/python -m pytest -n auto --dist worksteal --tier quick --changed

test-rest: $(VENV)/test ## run the cases that `make test` leaves out
	$(BIN)/python -m pytest -n auto --dist worksteal --tier rest

contract: $(VENV)/test ## hold a kind to its declarations, cheapest first: make contract KIND=sliding, or SPEC=my.yaml; ALL=1 for every case
	$(BIN)/python -m pytest $(if $(SPEC),--spec=$(SPEC),--kind $(KIND)) $(if $(ALL),-n auto --dist worksteal --tier all,-x --tier quick)

browser: $(VENV)/playwright ## install a headless Chromium from npm's registry, for `make test-browser`
	npm install --silent --no-fund --no-audit --prefix $(VENV)/browser @sparticuz/chromium@$(CHROMIUM)
	cd $(VENV)/browser && node --input-type=module -e 'import c from "@sparticuz/chromium"; console.log(await c.executablePath())' > path

test-browser: ## open HTML reports in the Chromium of `make browser`
	XFCOST_BROWSER="$$(cat $(VENV)/browser/path)" $(BIN)/python -m pytest -q -rs -n 0 --tier all tests/test_report_browser.py

test-versions: ## run the quick tier with the oldest and the newest releases of libraries, and with every Python
	$(PYTHON) tools/test_versions.py

test-newest: ## with the newest releases that the registry serves, run commands, and tests of what reads those libraries
	$(PYTHON) tools/test_versions.py --newest --folder $(VENV)/versions

test-ends: ## run commands with the oldest releases of libraries, and with the newest that the registry serves
	$(PYTHON) tools/test_versions.py --smoke --oldest --newest --folder $(VENV)/versions

test-oldest: ## run commands with the oldest releases of libraries
	$(PYTHON) tools/test_versions.py --smoke --oldest --folder $(VENV)/versions

release-check: $(VENV)/bin/python ## build wheel and sdist, check them, and run twenty commands from each on every Python
	rm -rf build/dist build/release
	$(PIP) build twine
	$(BIN)/python -m build --outdir build/dist
	$(BIN)/twine check --strict build/dist/*
	$(PYTHON) tools/test_versions.py --built build/dist/* --folder build/release

test-all: $(VENV)/test ## run every case
	$(BIN)/python -m pytest -n auto --dist worksteal --tier all

lint: $(VENV)/dev ## ruff, mypy --strict, the import contracts, the generated parts of the docs, the phrases of tools/prose.yaml
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/cog --check --diff -I tools -I tests $(COGGED)
	$(BIN)/python tools/gallery.py --check
	$(BIN)/python tools/prose.py

docs: $(VENV)/dev ## write the generated parts of the docs, the README's pictures and the notebooks again
	$(BIN)/cog -r -I tools -I tests $(COGGED)
	$(BIN)/python tools/gallery.py
	$(BIN)/python tools/transformers_table.py
	$(BIN)/python tools/pictures.py
	$(BIN)/python tools/notebook.py

site: $(VENV)/site ## build the documentation site into build/site; a dead link or a missing picture stops it
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

bench: $(VENV)/test ## run the benchmarks and print the table of docs/benchmarks.md
	$(BIN)/python benchmarks/run.py

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

# torch first and by name: a plain resolution could fetch another build of it.
$(VENV)/installed: $(VENV)/bin/python pyproject.toml constraints.txt
	$(PIP) torch
	$(PIP) -e .
	@touch $@

$(VENV)/test: $(VENV)/installed
	$(PIP) -e '.[test]'
	@touch $@

$(VENV)/dev: $(VENV)/test
	$(PIP) -e '.[dev]'
	@touch $@

$(VENV)/site: $(VENV)/installed
	$(PIP) -e '.[site]'
	@touch $@

$(VENV)/playwright: $(VENV)/test
	$(PIP) -e '.[browser]'
	@touch $@

all-installed: $(VENV)/bin/python ## install for tests, lint, the site and a browser in one go
	$(PIP) torch
	$(PIP) -e '.[test,dev,site,browser]'
	@touch $(VENV)/installed $(VENV)/test $(VENV)/dev $(VENV)/site $(VENV)/playwright

.PHONY: help demo all-installed test release-check test-rest test-all contract test-versions test-newest test-ends test-oldest browser test-browser lint docs site bench
