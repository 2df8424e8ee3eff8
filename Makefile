# What a developer does, one word each. `make` alone lists it.

CARGO ?= cargo
FUZZ_SECONDS ?= 60

.DEFAULT_GOAL := help
.PHONY: help deps demo test bench lint fuzz clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

deps: ## install what is missing of MariaDB, Galera, HAProxy, sysbench and MySQL 9 (Debian, as root)
	@scripts/install-deps

demo: deps ## three Galera nodes, Weir and a load; a node is stopped meanwhile [KEEP=1: leave it running]
	@$(CARGO) build --release -p weir -p weir-demo
	@exec $(CARGO) run --quiet --release -p weir-demo -- $(if $(KEEP),--keep) $(ARGS)

test: deps ## all tests: unit, property, corpus, and end to end against real servers
	$(CARGO) build -p weir
	$(CARGO) test --workspace --no-fail-fast

bench: deps ## throughput, CPU, memory: direct, HAProxy, ProxySQL and Weir in turn [ARGS="--quick --json FILE"]
	@$(CARGO) build --release -p weir -p weir-bench
	@exec $(CARGO) run --quiet --release -p weir-bench -- $(ARGS)

lint: ## formatting, clippy, and licences and advisories (if cargo-deny is installed)
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	@if $(CARGO) deny --version >/dev/null 2>&1; then $(CARGO) deny check; \
	else echo "licences and advisories not checked: cargo-deny is not installed (cargo install cargo-deny)"; fi

fuzz: ## every fuzz target for FUZZ_SECONDS (needs the nightly toolchain and cargo-fuzz)
	@$(CARGO) +nightly fuzz --version >/dev/null 2>&1 || { \
	echo "make fuzz needs: rustup toolchain install nightly; cargo install cargo-fuzz" >&2; exit 1; }
	@for target in $$($(CARGO) +nightly fuzz list); do \
	echo "fuzzing $$target for $(FUZZ_SECONDS) s"; \
	$(CARGO) +nightly fuzz run $$target -- -max_total_time=$(FUZZ_SECONDS) || exit 1; done

clean: ## remove what was built, and the test servers' cached programs and data
	$(CARGO) clean
	rm -rf /var/tmp/weir-cache /var/tmp/weir-cache-$$(id -u)
