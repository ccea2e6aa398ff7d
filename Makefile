# Two commands matter on a fresh machine: make demo, make test.
GO ?= go
BIN := bin/cluster
SEEDS ?= 500
START ?= 1
DURATION ?= 60m
SOAK_START ?= $(shell date +%s)000
FUZZTIME ?= 30s
DIFFERENCES ?= 2
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2

.DEFAULT_GOAL := help

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | sort

build: ## build bin/cluster
	$(GO) build -trimpath -o $(BIN) ./cmd/cluster

demo: build ## members join, leave and die under load; ends with a verdict
	$(BIN) demo

test: ## vet and the tests, under 90 s on 2 cores
	$(GO) vet ./...
	$(GO) test -short -p 3 ./... # three at once: much of the time is waiting

race: ## the tests with the race detector, without those of whole processes
	$(GO) test -race -short $$($(GO) list ./... | grep -v -e /integration -e /simtest)
	$(GO) test -race ./engine/simtest -seeds 40
	$(GO) test ./coordinator -count=1 -run 'TestVirtualClose$$'

lint: ## staticcheck where it can be had, golangci-lint where it is installed
	test -z "$$(gofmt -l .)"
	if $(GO) run $(STATICCHECK) -version; then $(GO) run $(STATICCHECK) ./...; else echo "staticcheck cannot be fetched here: left out"; fi
	cd bench && $(GO) vet ./...
	if command -v golangci-lint >/dev/null; then golangci-lint run; fi

integration: ## whole clusters of the production binary
	$(GO) test -count=1 -timeout 20m ./integration

SIMTEST := $(CURDIR)/bin/simtest

simtest: # as a program its last line is that of the simulator
	$(GO) test -c -o $(SIMTEST) ./engine/simtest

sim: simtest ## the simulator: make sim SEEDS=500 START=1
	cd engine/simtest && $(SIMTEST) -test.v -test.run 'TestSim$$' -seeds $(SEEDS) -start $(START)

planted: simtest ## the simulator against every planted bug, up to 2,000 seeds each; writes docs/planted.md
	cd engine/simtest && $(SIMTEST) -test.v -test.run 'TestPlanted$$' -planted 2000 -tabulate

planted-known: simtest ## the same, with the seeds of docs/planted.md first
	cd engine/simtest && $(SIMTEST) -test.v -test.run 'TestPlanted$$|TestSearchFinds$$' -planted 2000 -known

model: ## the rules for one key, searched by spin: what must hold, and the variants that must fail
	$(GO) test ./engine/model -count=1 -timeout 20m -v -run 'TestModel$$' -must

search: ## a few members of the real core, one key, one change: all runs that differ in up to DIFFERENCES places, for DURATION
	$(GO) test ./engine/simtest -count=1 -timeout 0 -v -run 'TestSearch$$' -differences $(DIFFERENCES) -search $(DURATION)

fuzz: ## every fuzz target for FUZZTIME
	set -e; for p in $$($(GO) list ./...); do \
		for f in $$($(GO) test -list '^Fuzz' $$p | grep '^Fuzz' || true); do \
			$(GO) test -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZTIME) $$p; done; done

bench: ## numbers, each beside something measured in the same run
	$(GO) test -run '^$$' -bench . -benchtime 1s ./ring ./engine/... ./transport .
	cd bench && $(GO) run .

cover: ## coverage by package
	$(GO) test -short -cover ./...

soak: simtest ## simulator, from a seed that was not run before, and search for DURATION, then the rest
	cd engine/simtest && $(SIMTEST) -test.v -test.run 'TestSim$$' -seeds 1000000000 -start $(SOAK_START) -for $(DURATION) -parts 2
	cd engine/simtest && $(SIMTEST) -test.v -test.run 'TestSearch$$' -differences $(DIFFERENCES) -search $(DURATION) -parts 2
	$(GO) test ./engine/model -count=1 -timeout 0 -v -run 'TestModel$$' -must -soak
	CHAINMAIL_SOAK=1 $(GO) test -count=1 -timeout 0 ./chainmailtest
	CHAINMAIL_SOAK=1 $(GO) test -count=3 -timeout 0 ./integration

ci: ## what .ci/run runs
	$(MAKE) lint
	$(MAKE) test
	$(MAKE) race
	$(MAKE) integration
	$(MAKE) model
	$(MAKE) sim SEEDS=3000
	$(MAKE) planted-known

.PHONY: simtest help build demo test race lint integration sim planted planted-known model search fuzz bench cover soak ci
