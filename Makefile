# make run     start nsqlookupd, nsqd and nsqadmin here, on the default ports
# make test    everything that a change has to pass
# make test-compiled   the same tests, of the modules that mypyc compiles (setup.py), in a copy in build/compiled
# make torture     kills, power cuts and failing disks by the hundred, with a summary of what was lost (nothing)
# make test-slow   what starts more Sparks than a change should have to wait for
# make check   only what needs no running nsqd: lint and architecture (make rules), and types (make types)
# make fuzz    inputs drawn at random, ten minutes for each of what reads bytes of others; FUZZ_ARGS="--seconds 60"
# make soak    30 minutes of mixed load, kills, bad disks and clocks; SOAK_ARGS="--minutes 240" for another length
# make stress  tests on a hostile schedule: threads that switch all the time, a disk slow at random, no processor free; STRESS_ARGS, PYTEST_ARGS
# make failovers   200 failovers by a lease, with kills, power cuts and partitions (root); FAILOVERS_ARGS="--count 20 --lease=s3 --store-faults=0.05"
# make celery-kills   kills of nsqd, and of Redis, under Celery workers, with a table; CELERY_ARGS="--kills 1000"
# make worker-kills   kills of nsq-worker, its processes and its nsqd, with what was lost, repeated or stuck; WORKER_ARGS="--kills 1000"
# make store-losses   machines and disks of nsqds with a store destroyed under load, with faults of the store; STORE_ARGS="--kills 20"
# make store-outage   a store that is away for an hour under load, and a full disk in it (root); OUTAGE_ARGS="--minutes 5"
# make flips   bits that flip in stores, data paths and standbys, with what was found, repaired or lost; FLIPS_ARGS="--flips 100"
# make moves   nsqds that get other addresses at each start, one of them damaged; MOVES_ARGS="--rounds 20 --setting lease"
# make screenshots takes the pictures of nsqadmin's page in docs/images again
# make terminal-picture   runs the commands of docs/images/terminal.svg and draws it again (needs the default ports)
# make docs    the site of docs/, in site/VERSION; the versions that are in site/ are a menu on each page
# make dist    sdist (with the site), wheel, wheel with compiled modules, site, list of components (CycloneDX), checksums, changes; in dist/
# make bench   nsqd, compared with another one by BENCH_ARGS="--peer-nsqd /path/to/nsqd"; BENCH_ARGS="--help"
# make bench-compare   names each ratio that changed by more than 5 % between the newest two records

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
INSTALLED_DEV := $(VENV)/.installed-dev
BENCH_ARGS ?=
FUZZ_ARGS ?=
SOAK_ARGS ?=
STRESS_ARGS ?=
PYTEST_ARGS ?=
FAILOVERS_ARGS ?=
CELERY_ARGS ?=
WORKER_ARGS ?=
STORE_ARGS ?=
FLIPS_ARGS ?=
MOVES_ARGS ?=

# The tests start a thousand processes: where nothing may be kept compiled, each of them would compile all modules again.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: run test test-compiled test-slow torture fuzz soak stress failovers celery-kills worker-kills store-losses store-outage flips moves check rules types compiled screenshots terminal-picture bench bench-compare docs dist packages browser

run: $(INSTALLED)
	@echo "The page of nsqadmin:      http://127.0.0.1:4171"
	@echo "nsqd on 4150 (TCP) and 4151 (HTTP), nsqlookupd on 4160 and 4161, messages in ./data, process ids in ./data/*.pid; Ctrl-C stops all three."
	@echo "Try, in another terminal:  echo hello | $(BIN)/to-nsq --topic=greetings --nsqd-tcp-address=127.0.0.1:4150"
	@echo "See it waiting:            on the page, or with $(BIN)/nsq-stat --lookupd-http-address=127.0.0.1:4161"
	@echo "And take it:               $(BIN)/nsq-tail --topic=greetings --channel=me --lookupd-http-address=127.0.0.1:4161"
	@exec contrib/run-local.sh $(BIN) ./data

# Six tests at a time, on two processors too: most of them wait, for processes to start and for time to pass.
PARALLEL := -n 6 --dist loadgroup --no-loadscope-reorder
TESTS := -m "not slow" --ignore=tests/architecture

test: $(INSTALLED_DEV)
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target rules types compiled
	$(BIN)/python -m pytest $(PARALLEL) $(TESTS)

TESTS_COMPILED ?= $(TESTS)
COMPILED := build/compiled
test-compiled: $(INSTALLED_DEV)
	rm -rf $(COMPILED) && mkdir -p $(COMPILED)
	git ls-files -z | xargs -0 cp --parents --target-directory=$(COMPILED)
	@for folder in nsqjs helm; do ln -s $(CURDIR)/tests/support/$$folder/node_modules $(COMPILED)/tests/support/$$folder/; done
	cd $(COMPILED) && NSQD_COMPILED=1 $(CURDIR)/$(BIN)/python setup.py --quiet build_ext --inplace
	cd $(COMPILED) && export PYTHONPATH=$$(pwd):$$(pwd)/apps:$$(pwd)/tools:$$(pwd)/spark && \
	    $(CURDIR)/$(BIN)/python -m pytest $(PARALLEL) $(TESTS_COMPILED)

test-slow: $(INSTALLED_DEV)
	$(BIN)/python -m pytest -m slow --ignore=tests/torture --hypothesis-profile=new

torture: $(INSTALLED_DEV)
	$(BIN)/python -m pytest -n 3 --hypothesis-profile=new $(wildcard tests/torture tests/faults tests/crash tests/property)

fuzz: $(INSTALLED_DEV)
	@$(BIN)/pip install --quiet --disable-pip-version-check atheris || echo "Without atheris, hypothesis draws the inputs."
	$(BIN)/python -m tests.fuzz $(FUZZ_ARGS)
	@$(BIN)/pip install --quiet --disable-pip-version-check schemathesis
	$(BIN)/python -m tests.fuzz.http_api

soak: $(INSTALLED_DEV)
	@$(BIN)/python -m tests.soak $(SOAK_ARGS)

stress: $(INSTALLED_DEV)
	@$(BIN)/python -m tests.stress $(STRESS_ARGS) $(PYTEST_ARGS)

failovers: $(INSTALLED_DEV)
	@$(BIN)/python -m tests.standby.lease_failovers $(FAILOVERS_ARGS)

celery-kills: $(INSTALLED_DEV)
	@$(BIN)/python -m tests.torture.celery_kills $(CELERY_ARGS)

worker-kills: $(INSTALLED_DEV)
	@$(BIN)/python -m tests.torture.worker_kills $(WORKER_ARGS)

store-losses: $(INSTALLED_DEV)
	@$(BIN)/python -m tests.torture.store_losses $(STORE_ARGS)

store-outage: $(INSTALLED_DEV)
	@$(BIN)/python -m tests.torture.store_outage $(OUTAGE_ARGS)

flips: $(INSTALLED_DEV)
	@$(BIN)/python -m tests.torture.flips $(FLIPS_ARGS)

moves: $(INSTALLED_DEV)
	@$(BIN)/python -m tests.torture.moves $(MOVES_ARGS)

check: $(INSTALLED_DEV)
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target rules types

rules: $(INSTALLED_DEV)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache
	$(BIN)/python -m pytest -q tests/architecture

types: $(INSTALLED_DEV)
	$(BIN)/mypy

# In a fresh checkout, each worker of pytest would compile the same tests and packages: 9 CPU seconds. What fails to
# import here is reported by the tests.
compiled: $(INSTALLED_DEV)
	@$(BIN)/python -m pytest -qq --collect-only >/dev/null 2>&1 || true

screenshots: $(INSTALLED_DEV)
	NSQADMIN_SCREENSHOTS=docs/images $(BIN)/python -m pytest -q tests/browser/test_screenshots.py

terminal-picture: $(INSTALLED_DEV)
	$(BIN)/python contrib/terminal-picture

bench: $(INSTALLED_DEV)
	$(BIN)/python -m bench $(BENCH_ARGS)

bench-compare: $(INSTALLED_DEV)
	$(BIN)/python -m bench.compare $(BENCH_ARGS)

docs: $(INSTALLED_DEV)
	$(BIN)/python contrib/build-site
	@echo "Read it:  $(BIN)/python -m http.server --bind 127.0.0.1 --directory site"

dist: export NSQADMIN_PAGE := $(CURDIR)/build/page
dist: docs
	rm -rf build dist
	@if command -v npm > /dev/null; then npm install --prefix contrib/page --no-audit --no-fund --no-package-lock --silent && \
	    node contrib/page/build.mjs build/page; else echo "Without npm, nsqadmin's page is not merged into few files." && mkdir -p build/page; fi
	$(BIN)/python -c "from setuptools.build_meta import build_sdist, build_wheel; build_sdist('dist'); build_wheel('dist')" > /dev/null
	@if command -v cc > /dev/null; then NSQD_COMPILED=1 $(BIN)/python -c "from setuptools.build_meta import build_wheel; build_wheel('dist')" > /dev/null; \
	else echo "Without a C compiler, there is no wheel with compiled modules."; fi
	awk '/^## /{section++} section == 1' CHANGELOG.md > dist/CHANGES.md
	cp -r site dist/site
	$(BIN)/pip install --quiet --disable-pip-version-check cyclonedx-bom
	for wheel in dist/*.whl; do rm -rf build/installed && $(PYTHON) -m venv build/installed && \
	    build/installed/bin/pip install --quiet --disable-pip-version-check $$wheel && build/installed/bin/nsqd-py --version || exit 1; done
	$(BIN)/cyclonedx-py environment --output-reproducible --output-file dist/sbom.cdx.json build/installed/bin/python
	cd dist && sha256sum *.tar.gz *.whl sbom.cdx.json > SHA256SUMS && cat SHA256SUMS

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(INSTALLED): setup.cfg setup.py pyproject.toml | $(BIN)/python
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[all]'
	@touch $@

$(INSTALLED_DEV): setup.cfg setup.py pyproject.toml | $(BIN)/python
	@$(MAKE) --no-print-directory --jobs=2 packages browser
	@touch $@ $(INSTALLED)

# Modules are compiled when they are imported, which few of those installed are. The pip of Python 3.11 needs three times the
# processor time of today's for the lists of versions: 8 s in place of 3 for nine of the packages.
packages:
	$(BIN)/pip install --quiet --disable-pip-version-check --upgrade pip
	$(BIN)/pip install --quiet --disable-pip-version-check --no-compile -e '.[dev,java,spark]'
	@if command -v npm >/dev/null; then for folder in tests/support/nsqjs tests/support/helm contrib/page; do \
	    npm install --prefix $$folder --legacy-peer-deps --no-audit --no-fund --no-package-lock --silent; done; \
	else echo "Without npm, the tests with nsqjs, Helm and the merged page are skipped."; fi

browser:
	@contrib/install-browser || echo "Without a browser, the tests of nsqadmin's page cannot run."
