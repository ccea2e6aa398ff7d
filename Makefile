# Two commands matter on a fresh machine: make demo, make test.
GO ?= go
BIN := bin/cluster
SEEDS ?= 500
START ?= 1
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@2026.1

.DEFAULT_GOAL := help

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | sort

build: ## build bin/cluster
	$(GO) build -trimpath -o $(BIN) ./cmd/cluster

test: ## the tests, under 90 s on 2 cores
	$(GO) vet ./...
	$(GO) test ./...

race: ## the tests with the race detector
	$(GO) test -race ./...

sim: ## the simulator: make sim SEEDS=500 START=1
	$(GO) test ./engine/simtest -count=1 -timeout 0 -run 'TestSim$$' -seeds $(SEEDS) -start $(START)

ci: ## what .ci/run runs
	$(MAKE) test

.PHONY: help build test race sim ci
