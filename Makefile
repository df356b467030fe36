# Every command sets up its own environment first. CONTRIBUTING.md says when to use which.
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.metricdp-installed

.PHONY: demo test test-all test-lowest coverage lint docs release-check clean

demo: $(STAMP)
	$(BIN)/metricdp demo --out demo

test: $(STAMP)
	$(BIN)/python -m pytest -n 2 -m "not slow"

test-all: $(STAMP)
	$(BIN)/python -m pytest -n 2

# The tests once more, on the oldest versions that pyproject.toml allows; before a release. Newer click and pyparsing warn
# of what old typer and matplotlib do, and warnings are errors in tests; without lower bounds the oldest ever would be taken.
test-lowest:
	python3 -m venv $(VENV)-lowest
	$(VENV)-lowest/bin/python -m pip install --quiet --disable-pip-version-check uv
	$(VENV)-lowest/bin/uv pip install --quiet --python $(VENV)-lowest/bin/python --resolution lowest-direct --editable ".[all]" --group test "click>=8.2,<8.4" "pyparsing>=3.2,<3.3"
	$(VENV)-lowest/bin/python -m pytest -n 2 -m "not slow"

# The short tests with every line and branch counted, in processes that tests start too: a table, and coverage.xml.
coverage: $(STAMP)
	$(BIN)/python -m pytest -n 2 -m "not slow" --cov --cov-report=term --cov-report=xml

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The site, into build/docs; a warning is an error. Examples that have not changed are not run again;
# SPHINXOPTS="-D plot_gallery=0" runs none.
docs: $(STAMP)
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet $(SPHINXOPTS) docs build/docs

# Builds what is published, into dist/, and tries it on every supported Python that this machine has.
release-check:
	python3 -m venv $(VENV)-release
	$(VENV)-release/bin/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1"  # --group
	$(VENV)-release/bin/python -m pip install --quiet --disable-pip-version-check --group release
	$(VENV)-release/bin/python -m release.check

$(STAMP): pyproject.toml
	@python3 -c 'import sys; sys.exit("metricdp needs Python 3.11 or newer, this is " + sys.version.split()[0]) if sys.version_info < (3, 11) else None'
	test -x $(BIN)/python || python3 -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1"  # --group
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[all]" --group dev
	touch $(STAMP)

clean:
	rm -rf $(VENV) $(VENV)-lowest $(VENV)-release demo build dist docs/examples .coverage coverage.xml
