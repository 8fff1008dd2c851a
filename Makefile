# Each target says what it does after "##"; "make help" prints that.
GO ?= go

# One program for every Linux, whatever C library that has, and a smaller one. Names are looked up
# by Go itself then. -race needs CGO_ENABLED=1.
export CGO_ENABLED ?= 0

# Without the folder's name in them, compiled packages serve every clone, and what a test or a CI action of ours
# builds. (Flags that go env knows stay.)
# Pages for debugging in grpc would make both programs a third larger: see "The size of the programs" in docs/architecture.md.
export GOFLAGS := $(shell $(GO) env GOFLAGS) -trimpath -tags=grpcnotrace

# Where install puts the command.
PREFIX ?= $(HOME)/.local

# What is in bench/: what is ours, and the tools of others, which take minutes to build.
MEASURES = . ./floor
PEERS = ./kubectl helm.sh/helm/v3/cmd/helm carvel.dev/kapp/cmd/kapp

# Tests wait more than they work, so more of them run side by side than there are processors. A machine that is
# far slower than ours has the time that it needs. The lint target runs vet.
SUITE = $(GO) test -vet=off -parallel 4 -timeout 60m $(TESTFLAGS)

build: ## build bin/runlevel
	@echo "compiling runlevel: some seconds, or about 5 minutes where Go has nothing of it in its cache yet; each package is named once it is compiled"
	$(GO) build -v -o bin/ ./cmd/...

check: lint ## lint, then run the tests that need no control plane, in about a minute
	$(SUITE) -short ./...
	cd tools/site && $(SUITE) -short ./...

# The tests of pkg/apply wait the most, so they begin first.
test: lint build ## lint, then run the tests on a real control plane (set TESTFLAGS for go test's flags)
	bin/runlevel sandbox build
	$(SUITE) ./pkg/apply ./...
	cd tools && $(SUITE) ./image ./rules
	cd tools/release && $(SUITE) ./...
	cd tools/helm && $(SUITE) -vet=all .
	cd tools/site && $(SUITE) ./...

test-thorough: ## run the tests that take minutes each, too, and kill updates at every write: it takes hours
	RUNLEVEL_TEST_THOROUGH=1 $(MAKE) test

# What runs in containers on real nodes. Set RUNLEVEL_TEST_NODES=required to fail where these can't run.
RUNLEVEL_TEST_NODES ?= wanted

test-node: build ## run the tests of the image on real nodes (Linux, root, containerd; they are skipped elsewhere)
	cd tools && $(GO) run ./image -source .. -o ../bin/image-node linux/$(shell $(GO) env GOARCH)
	RUNLEVEL_TEST_NODES=$(RUNLEVEL_TEST_NODES) RUNLEVEL_TEST_IMAGE=$(CURDIR)/bin/image-node $(SUITE) -parallel 8 -v ./internal/sandbox/realnode ./install/e2e
	RUNLEVEL_TEST_NODES=$(RUNLEVEL_TEST_NODES) $(SUITE) -run OnNodes -v ./internal/review/mistakes

lint: ## gofmt, vet, staticcheck, actionlint and the house test
	@unformatted=$$(gofmt -l .); test -z "$$unformatted" || { echo "run gofmt -w on:" $$unformatted; exit 1; }
	$(GO) vet ./...
	cd tools && $(GO) vet ./...
	cd tools/release && $(GO) vet ./...
	cd tools/site && $(GO) vet ./...
	cd bench && $(GO) vet $(MEASURES)
	$(GO) tool -modfile=tools/go.mod staticcheck ./...
	$(GO) tool -modfile=tools/go.mod actionlint .github/workflows/*.yaml
	$(SUITE) ./internal/house

install: build ## copy bin/runlevel to $(PREFIX)/bin, and say so if the shell finds another program of that name first
	mkdir -p "$(PREFIX)/bin" && install -m 755 bin/runlevel "$(PREFIX)/bin/runlevel"
	@found=$$(command -v runlevel); test "$$found" = "$(PREFIX)/bin/runlevel" || \
		echo "the shell finds $${found:-no runlevel}: put $(PREFIX)/bin before other folders of PATH (systemd has a program of that name in /sbin)"

demo: build ## install and update a sample release on a control plane of its own
	$(GO) build -v -o bin/ ./examples/demo
	bin/demo

bench: build ## run the benchmarks, then Runlevel beside its peers (set BENCHFLAGS: --quick, --write ../docs/performance.md)
	bin/runlevel sandbox build
	$(GO) test -run '^$$' -bench . ./...
	cd tools/site && $(GO) test -run '^$$' -bench . -benchtime 1x ./ui
	cd bench && $(GO) build -o ../bin/bench/ $(MEASURES) $(PEERS)
	cd bench && ../bin/bench/bench $(BENCHFLAGS)

image: ## write an OCI image of the programs for linux/amd64 and linux/arm64 to bin/image
	cd tools && $(GO) run ./image -source .. -o ../bin/image linux/amd64 linux/arm64

# One version of Go builds all releases and the programs of the sandbox.
release: ## write all files of a release to bin/release: make release VERSION=v0.1.0 KEY=cosign.key (set RELEASEFLAGS: -unsigned, -snapshot)
	cd tools/release && GOTOOLCHAIN=$$(sed -n 's/^go //p' ../../internal/sandbox/binaries/archives.txt) \
		$(GO) run . -version "$(VERSION)" -source ../.. -o ../../bin/release $(if $(KEY),-key "$(abspath $(KEY))") $(RELEASEFLAGS)

site: ## write the documentation as a site to bin/site: make site VERSION=v0.1.0 (run npm ci in tools/site for search and drawn diagrams)
	cd tools/site && $(GO) run . -version "$(or $(VERSION),main)" -source ../.. -o ../../bin/site

demo-svg: build ## record docs/demo.svg, the terminal in the README, on a sandbox of its own
	cd tools/site && $(GO) build -o ../../bin/record ./record
	bin/runlevel sandbox exec --nodes 3 -- bin/record

programs: ## write the archives of the sandbox's programs to bin/programs, and their digests to the source: make programs VERSION=v0.1.0
	cd tools/release && $(GO) run ./archives -update -release "$(VERSION)"

generate: ## regenerate what is made from other files
	$(GO) test ./install ./manifests -run TestDefinitionsAreThoseOfTheModule -update
	$(GO) test ./internal/machines/infra/v1alpha1 ./internal/machines/capi/controlplane/v1alpha1 -run TestGeneratedFilesAreCurrent -update
	$(GO) test ./internal/sandbox/binaries -run TestPackedModule -update
	$(GO) test ./internal/cli -run "TestPicturesOfTheDocumentation|TestJSONDocuments" -update
	$(GO) test ./internal/review/lint -run TestDocumentation -update

clean: ## remove what was built here; the programs of the control plane stay in the user's cache
	rm -rf bin

help: ## print this
	@sed -n 's/^\([a-z-]*\):.*## /  \1\t/p' $(MAKEFILE_LIST) | expand -t 17

.PHONY: build check test test-thorough test-node lint install demo bench image release site programs demo-svg generate clean help
