# The two commands of the README, and the gates of a change. Everything that they need is fetched by them: crates from
# the registry, Python packages into a virtual environment in the user's cache.
SHELL := /bin/bash
CACHE ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/pipeline
export CARGO_TARGET_DIR ?= $(CACHE)/target
VENV := $(CACHE)/venv-$(shell sha256sum tests/python/requirements.txt | cut -c1-12)
BENCH_VENV := $(CACHE)/venv-bench-$(shell sha256sum tests/python/requirements-bench.txt | cut -c1-12)
TEXT_VENV := $(CACHE)/venv-text-$(shell sha256sum tests/bench/requirements.txt | cut -c1-12)
PIPELINE := $(CARGO_TARGET_DIR)/release/pipeline

.PHONY: run run-offline tiny-reasoner model record build test fuzz python fmt lint docs deny ci check-generated bench bench-client chaos verify-report

run: model build ## fetch the small model, build the program, then run the quickstart live
	$(PIPELINE) run datasets/quickstart/dag.toml

run-offline: build ## the same from recorded answers: no network, no model
	$(PIPELINE) run datasets/quickstart/dag.toml --offline --out datasets/quickstart/out/offline

tiny-reasoner: build ## from problems to a merged model in minutes: training, probing, merging, without a download
	$(PIPELINE) run datasets/tiny-reasoner/dag.toml

model: ## the model of the quickstart, in the user's cache
	sh datasets/quickstart/fetch_model.sh

record: build ## write the recorded answers of the quickstart anew, from a live run
	PIPELINE=$(PIPELINE) sh datasets/quickstart/record.sh

build: ## the program, optimised
	cargo build --release --locked --bin pipeline

test: python check-generated ## every test
	-sh datasets/quickstart/fetch_model.sh # tests that need the model say so and skip without it
	-sh tests/tools/fetch_llama_server.sh # the same for a real teacher
	PIPELINE_PYTHON=$(VENV)/bin/python cargo test --workspace --locked

fuzz: ## a million inputs through the text functions
	PIPELINE_FUZZ=1000000 cargo test -p stage-text --release --locked --test fuzz
	cargo run -p stage-text --release --locked --example fuzz_dedup -- 1000000

python: $(VENV)/ready ## the Python packages that tests read results with

$(VENV)/ready: tests/python/requirements.txt
	python3 -m venv $(VENV)
	$(VENV)/bin/pip install --quiet --disable-pip-version-check -r tests/python/requirements.txt
	touch $@

fmt:
	cargo fmt --all --check

lint:
	cargo clippy --workspace --all-targets --locked -- -D warnings

docs:
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked --quiet

deny: ## licences of dependencies, where cargo-deny is installed
	@if command -v cargo-deny >/dev/null; then cargo deny check licenses bans sources; \
	else python3 tests/tools/licences.py; fi

check-generated:
	python3 datasets/quickstart/generate.py --check
	python3 datasets/tiny-reasoner/generate.py --check

ci: fmt lint docs deny test run-offline run ## what must pass before a change lands

verify-report: ## confusion tables, misses and speeds of all verifiers on the case sets, math-verify beside ours
	python3 tests/tools/verification_report.py

bench-client: $(BENCH_VENV)/ready ## the client beside Python's, against the scripted server: speed, CPU, memory, limits kept
	$(BENCH_VENV)/bin/python tests/tools/client_bench.py

$(BENCH_VENV)/ready: tests/python/requirements-bench.txt
	python3 -m venv $(BENCH_VENV)
	$(BENCH_VENV)/bin/pip install --quiet --disable-pip-version-check -r tests/python/requirements-bench.txt
	touch $@

chaos: ## every fault of the scripted server at once and ten kills, at full size: 20,000 rows of 4 samples
	PIPELINE_CHAOS=full cargo test --workspace --locked --test e2e every_row_survives -- --nocapture

bench: $(TEXT_VENV)/ready ## text curation beside its peers; BENCH="--memory 4096" for the peak of memory on 4 GB of text
	cargo build --release --locked --bin pipeline
	cargo build --release --locked -p pipeline-core --example table_copy
	$(TEXT_VENV)/bin/python tests/bench/bench.py $(BENCH)

$(TEXT_VENV)/ready: tests/bench/requirements.txt
	python3 -m venv $(TEXT_VENV)
	$(TEXT_VENV)/bin/pip install --quiet --disable-pip-version-check -r tests/bench/requirements.txt
	touch $@
