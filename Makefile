# Sluice. `make help` tells what there is.
.DEFAULT_GOAL := help
.PHONY: help build install install-controller install-lab package test test-long lint bench stress bench-go demo pictures generate fuzz fuzz-meaning oracle mutation kernels figures test-nft clean

FUZZTIME ?= 30s
N ?= 1000000
BENCHTIME ?= 1s
BENCH ?=
STRESS ?=
PART ?=
NFT ?= trixie
PREFIX ?= /usr/local
DESTDIR ?=
BIN ?= bin

# All is compiled in one way, so that what is built, tested, linted and tried on other kernels
# is compiled once: without C and paths of this machine.
export CGO_ENABLED = 0
export GOFLAGS += -trimpath -buildvcs=false
# The programs say what scripts/version says, in a clone as in an unpacked archive.
VERSION = $(shell scripts/version)

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## bin/sluice, bin/sluice-controller and bin/sluice-lab: static, without symbols; their man pages, completions
	go build -ldflags='-s -w -X sluice.built=$(VERSION)' -o $(BIN)/ ./cmd/...
	rm -rf $(BIN)/man $(BIN)/completion
	GOARCH= go run -ldflags='-s -w' ./internal/lab/generate $(BIN) man completion

# Does not build, so that root needs no Go. The units name the program where it is put.
install: ## bin/sluice, its man pages, completions, units; PREFIX=/usr/local DESTDIR=
	install -D -m 755 $(BIN)/sluice $(DESTDIR)$(PREFIX)/sbin/sluice
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/man/man1 $(filter-out $(BIN)/man/sluice-lab% $(BIN)/man/sluice-controller%,$(wildcard $(BIN)/man/*.1))
	install -D -m 644 $(BIN)/completion/sluice.bash $(DESTDIR)$(PREFIX)/share/bash-completion/completions/sluice
	install -D -m 644 $(BIN)/completion/_sluice $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_sluice
	install -D -m 644 $(BIN)/completion/sluice.fish $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/sluice.fish
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/lib/systemd/system $(filter-out %/sluice-controller.service,$(wildcard packaging/systemd/*.service)) packaging/systemd/*.timer
	install -D -m 644 packaging/sysusers.d/sluice.conf $(DESTDIR)$(PREFIX)/lib/sysusers.d/sluice.conf
	install -D -m 644 packaging/tmpfiles.d/sluice.conf $(DESTDIR)$(PREFIX)/lib/tmpfiles.d/sluice.conf
	install -D -m 755 -t $(DESTDIR)$(PREFIX)/share/sluice/hooks packaging/hooks/networkmanager packaging/hooks/ifupdown
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/sluice packaging/prometheus/sluice.rules.yml packaging/prometheus/fleet.rules.yml packaging/grafana/sluice.json packaging/grafana/fleet.json
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/sluice/fail2ban packaging/fail2ban/action.d/sluice.py
	install -D -m 755 -t $(DESTDIR)$(PREFIX)/share/sluice/crowdsec packaging/crowdsec/sluice-crowdsec
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/sluice/crowdsec packaging/crowdsec/sluice-crowdsec.service
	sed -i 's|/usr/sbin/sluice|$(PREFIX)/sbin/sluice|' $(DESTDIR)$(PREFIX)/lib/systemd/system/sluice*.service $(DESTDIR)$(PREFIX)/share/sluice/hooks/*

install-controller: ## bin/sluice-controller, its man pages and completions, where the fleet is kept
	install -D -m 755 $(BIN)/sluice-controller $(DESTDIR)$(PREFIX)/sbin/sluice-controller
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/man/man1 $(BIN)/man/sluice-controller*.1
	install -D -m 644 $(BIN)/completion/sluice-controller.bash $(DESTDIR)$(PREFIX)/share/bash-completion/completions/sluice-controller
	install -D -m 644 $(BIN)/completion/_sluice-controller $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_sluice-controller
	install -D -m 644 $(BIN)/completion/sluice-controller.fish $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/sluice-controller.fish
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/lib/systemd/system packaging/systemd/sluice-controller.service
	install -D -m 755 -t $(DESTDIR)$(PREFIX)/share/sluice/ci packaging/ci/scripts/*
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/sluice/ci packaging/ci/*.yaml
	install -D -m 644 packaging/sysusers.d/sluice-controller.conf $(DESTDIR)$(PREFIX)/lib/sysusers.d/sluice-controller.conf
	install -D -m 644 packaging/tmpfiles.d/sluice-controller.conf $(DESTDIR)$(PREFIX)/lib/tmpfiles.d/sluice-controller.conf
	sed -i 's|/usr/sbin/sluice|$(PREFIX)/sbin/sluice|' $(DESTDIR)$(PREFIX)/lib/systemd/system/sluice-controller.service

install-lab: ## bin/sluice-lab, its man pages and completions, where measurements are made
	install -D -m 755 $(BIN)/sluice-lab $(DESTDIR)$(PREFIX)/sbin/sluice-lab
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/man/man1 $(BIN)/man/sluice-lab*.1
	install -D -m 644 $(BIN)/completion/sluice-lab.bash $(DESTDIR)$(PREFIX)/share/bash-completion/completions/sluice-lab
	install -D -m 644 $(BIN)/completion/_sluice-lab $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_sluice-lab
	install -D -m 644 $(BIN)/completion/sluice-lab.fish $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/sluice-lab.fish

package: ## bin/packages: .deb and .rpm of the three programs for amd64 and arm64, SBOMs, checksums; SIGN=KEY signs
	scripts/package
	$(if $(SIGN),scripts/apt-repository '$(SIGN)')

test: ## what a change has to pass, 6 to 8 minutes, the same inputs each time; sets up what it needs
	scripts/test

test-long: ## hours: new random inputs, floods, boots, fuzzers, stress, race detector; PART=race, or see scripts/test
	N=$(N) FUZZTIME=$(FUZZTIME) scripts/test long $(PART)

lint: ## linters, import directions, vulnerabilities, shell scripts, texts
	scripts/lint

bench: ## packet cost, load times, the daily change, the examples, beside others, as root; BENCH="--short ipv4"
	scripts/bench $(BENCH)

stress: ## 1,000 applies and refreshes under traffic, counted, as root; STRESS="--run applies"
	scripts/stress $(STRESS)

bench-go: ## benchmarks of single functions; BENCHTIME=1s
	go test -run '^$$' -bench . -benchmem -benchtime $(BENCHTIME) ./...

demo: ## the only-Europe example on real packets in network namespaces, as root
	scripts/demo

pictures: ## docs/pictures: each page of the browser, light and dark, narrow and wide, as root
	scripts/pictures

generate: ## the pages and the schema in docs/ that come from the code
	scripts/generate

fuzz: ## every fuzz target in turn; FUZZTIME=30s each
	scripts/fuzz $(FUZZTIME)

fuzz-meaning: ## random policies and packets against the kernel, as root; N=1000000 packets
	scripts/fuzz-meaning $(N)

oracle: build ## compare bin/sluice with an older one; BEFORE=PROGRAM N=10000 policies SEED=1
	go run ./internal/lab/oracle -before '$(BEFORE)' $(if $(filter-out file,$(origin N)),-n $(N)) $(if $(SEED),-seed $(SEED))

# Faults that are planted are drawn by SEED; LONGEST leaves out packages whose tests take
# longer by TIMES, a file with what go test printed; AGAINST is the file of an older tree.
mutation: ## plant faults in the source and list which test sees each; N=50 a package PACKAGES=program/compile
	go run ./internal/lab/mutation $(if $(filter-out file,$(origin N)),-n $(N)) $(if $(SEED),-seed $(SEED)) $(if $(PACKAGES),-packages '$(PACKAGES)') \
		$(if $(TIMES),-times '$(TIMES)') $(if $(LONGEST),-longest $(LONGEST)) $(if $(SAVE),-save '$(SAVE)') $(if $(AGAINST),-against '$(AGAINST)')

# From outside: KERNEL=6.1,6.12 RUN=PACKAGES TESTS=REGEXP SHORT=1 TABLE=1 SECTIONS=lists,forward
# TWICE=1 SAVE=FILE RECORD=FILE HOLD=1 PLANT=RULE HTML=FILE COMMAND=LINE.
kernels: ## tests and packet costs on Debian's kernels, emulated, as root; KERNEL=6.1 SHORT=1 RUN=./internal/system/host
	@scripts/setup kernel
	@$(if $(SHORT)$(RUN)$(COMMAND),,scripts/fetch-geo-data >/dev/null)
	@$(MAKE) -s build
	bin/sluice-lab kernels $(if $(KERNEL),--kernel '$(KERNEL)') $(if $(SHORT),--core) $(if $(RUN),--run '$(RUN)') \
		$(if $(TESTS),--tests '$(TESTS)') $(if $(TABLE),--no-tests) $(if $(SECTIONS),--sections '$(SECTIONS)') \
		$(if $(RECORD),--record '$(RECORD)') $(if $(HOLD),--hold $(FIGURES)) $(if $(PLANT),--plant '$(PLANT)') $(if $(TWICE),--twice) $(if $(SAVE),--save '$(SAVE)') $(if $(HTML),--html '$(HTML)') \
		$(if $(COMMAND),--command '$(subst ','\'',$(COMMAND))')

FIGURES = internal/lab/kernelbench/testdata/figures.json
NEWEST = internal/lab/kernelbench/testdata/newest.json

figures: ## the tables of docs/internals/benchmarks.md measured again, in instructions; KERNEL=6.12 or newest
	$(if $(filter newest,$(KERNEL)),,$(MAKE) kernels KERNEL=6.12 TABLE=1 SECTIONS=lists,layouts,examples RECORD=$(FIGURES))
	$(if $(filter 6.12,$(KERNEL)),,$(MAKE) kernels KERNEL=newest TABLE=1 SECTIONS=examples RECORD=$(NEWEST))
	scripts/generate

test-nft: ## rules written and read back with the nft of another Debian release; NFT=trixie
	scripts/test-nft $(NFT)

clean: ## remove bin/ and .cache/
	rm -rf bin .cache
