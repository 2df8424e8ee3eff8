# What a developer does, one word each. `make` alone lists it.

CARGO ?= cargo
FUZZ_SECONDS ?= 60
# What was built is run as it is: cargo run would choose the features of what it runs alone, and compile a part of it again.
BUILT := $(or $(CARGO_TARGET_DIR),target)
# What tests have not done, for want of something that this machine does not have.
NOT_RUN := $(abspath $(BUILT))/not-run.txt
# A workspace of its own: what it depends on is compiled for the tests only.
RUST_DRIVER := tests/drivers/rust/Cargo.toml

.DEFAULT_GOAL := help
.PHONY: help deps test-deps demo test suites drivers bench failover consistency jepsen fidelity package package-test lint fuzz clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

test-deps: deps # MySQL's packages can't be installed beside MariaDB's: they are unpacked into the tests' cache
	@scripts/get-mysql || { echo "the tests with MySQL can't run: see above" >&2; exit 1; }
	@scripts/get-python-drivers || { echo "the tests with Python's drivers can't run: see above" >&2; exit 1; }

deps: ## install what is missing of MariaDB, Galera, HAProxy, sysbench, tmux, rpm (Debian, as root)
	@scripts/install-deps

demo: deps ## three Galera nodes, Weir and a load; a node is stopped meanwhile [KEEP=1: leave it running]
	@$(CARGO) build --release -p weir -p weir-demo
	@exec $(BUILT)/release/weir-demo $(if $(KEEP),--keep) $(ARGS)

test: deps test-deps ## all tests: unit, property, corpus, end to end against real servers, the benchmark, the failover report, the consistency levels and the search for anomalies for a moment
	$(CARGO) build --workspace --all-targets
	@$(MAKE) --no-print-directory drivers
	@rm -f $(NOT_RUN); export WEIR_NOT_RUN=$(NOT_RUN); set -x; \
	$(CARGO) test --workspace --no-fail-fast && \
	CARGO="$(CARGO)" $(BUILT)/debug/weir-bench --smoke && \
	$(BUILT)/debug/weir-failover --smoke && \
	$(BUILT)/debug/weir-consistency --smoke && \
	$(BUILT)/debug/weir-jepsen --smoke --out $(BUILT)/jepsen-smoke; \
	status=$$?; set +x; scripts/not-run $(NOT_RUN); exit $$status

suites: deps ## other people's test suites, direct and through Weir, and every difference [SUITE="mariadb-client go", ARGS="--rerun"; docs/internals/suites.md]
	@[ -n "$$WEIR_BIN" ] || $(CARGO) build -p weir
	@exec scripts/suites $(SUITE) $(ARGS)

drivers: ## build the test program of the Rust driver, beside weir (make test does it)
	$(CARGO) build --manifest-path $(RUST_DRIVER) --target-dir $(BUILT)

bench: deps ## throughput, CPU, memory: direct, HAProxy, ProxySQL and Weir in turn [ARGS="--quick --json FILE"]
	@$(CARGO) build --release -p weir -p weir-bench
	@CARGO="$(CARGO)" exec $(BUILT)/release/weir-bench $(ARGS)

failover: deps ## what clients see when servers fail or change roles: report and time-lines in target/failover [ARGS="--only writer-killed", CYCLES=200]
	@$(CARGO) build --release -p weir -p weir-failover
	@exec $(BUILT)/release/weir-failover $(if $(CYCLES),--only cycles --cycles $(CYCLES)) $(ARGS)

consistency: deps ## stale reads, share of the readers, and the price of each level [ARGS="--only staleness --checks 1000000"; docs/guide/consistency-results.md]
	@$(CARGO) build --release -p weir -p weir-consistency
	@exec $(BUILT)/release/weir-consistency $(ARGS)

jepsen: deps ## transactions of many clients while servers fail, and a search of their histories for anomalies: report in target/jepsen [ARGS="--time 10m --weirs 2", "--guards all"; docs/guide/jepsen.md]
	@$(CARGO) build --release -p weir -p weir-jepsen
	@exec $(BUILT)/release/weir-jepsen $(ARGS)

fidelity: deps ## what sessions see through Weir and straight at the server: all ways to change a session x all that can be changed [ARGS="--only call/role", "--server mysql"]
	@$(CARGO) build --release -p weir -p weir-fidelity
	@exec $(BUILT)/release/weir-fidelity $(ARGS)

package: deps ## a .deb, a .rpm and a container image, with their SBOM, in target/packages [ARGS="--only deb"; docs/guide/packages.md]
	@exec scripts/package $(ARGS)

package-test: deps ## make the packages, and install, start, upgrade and remove each on a machine of its own (namespaces; root) [ARGS="--only deb --debug"]
	@exec scripts/package-test $(ARGS)

lint: ## formatting, clippy, licences, and advisories (where their database can be fetched)
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	$(CARGO) fmt --manifest-path $(RUST_DRIVER) --check
	$(CARGO) clippy --manifest-path $(RUST_DRIVER) --target-dir $(BUILT) -- -D warnings
	@scripts/deny

fuzz: ## every fuzz target for FUZZ_SECONDS (needs the nightly toolchain and cargo-fuzz)
	@$(CARGO) +nightly fuzz --version >/dev/null 2>&1 || { \
	echo "make fuzz needs: rustup toolchain install nightly; cargo install cargo-fuzz" >&2; exit 1; }
	@for target in $$($(CARGO) +nightly fuzz list | grep -vx every); do \
	echo "fuzzing $$target for $(FUZZ_SECONDS) s"; \
	$(CARGO) +nightly fuzz run $$target -- -max_total_time=$(FUZZ_SECONDS) || exit 1; done

clean: ## remove what was built, and the test servers' cached programs and data
	$(CARGO) clean
	rm -rf /var/tmp/weir-cache /var/tmp/weir-cache-$$(id -u)
