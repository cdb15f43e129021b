# SPDX-License-Identifier: Apache-2.0
# glmctl: `make help` lists the targets.

VERSION  := 0.1.0
PREFIX   ?= /usr/local
bindir   ?= $(PREFIX)/bin
bashcompdir ?= $(PREFIX)/share/bash-completion/completions
zshcompdir  ?= $(PREFIX)/share/zsh/site-functions
fishcompdir ?= $(PREFIX)/share/fish/vendor_completions.d
mandir   ?= $(PREFIX)/share/man
CC       ?= cc
SANITIZE ?=
CROSS    ?=
V        ?=
Q        := $(if $(V),,@)
PKG      := $(if $(CROSS),env PKG_CONFIG_LIBDIR=/usr/lib/$(CROSS:%-=%)/pkgconfig:/usr/share/pkgconfig) pkg-config

BUILD ?= build$(if $(SANITIZE),-$(subst $(comma),-,$(SANITIZE)))$(if $(findstring clang,$(CC)),-clang)$(if $(CROSS),-$(patsubst %-,%,$(CROSS)))
comma := ,

PACKAGES := libcjson yajl libmicrohttpd libpcre2-8 libcrypto libxxhash yaml-0.1
WARN := -Wall -Wextra -Wpedantic -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wformat=2 \
        -Wcast-qual -Wwrite-strings -Wundef -Wswitch-enum -Wimplicit-fallthrough -Wconversion -Werror
ALL_CFLAGS = -std=c17 -O2 -g -fno-omit-frame-pointer -ffp-contract=off -D_GNU_SOURCE -DGLM_VERSION='"$(VERSION)"' \
             $(WARN) -I. -isystem $(BUILD)/include $(PKG_CFLAGS) $(if $(SANITIZE),-fsanitize=$(SANITIZE)) $(CFLAGS)
PKG_CFLAGS := $(patsubst -I%,-isystem %,$(shell $(PKG) --cflags $(PACKAGES) 2>/dev/null))
PKG_LIBS   := $(shell $(PKG) --libs $(PACKAGES) 2>/dev/null)
ALL_LDFLAGS = $(if $(SANITIZE),-fsanitize=$(SANITIZE)) -pthread $(LDFLAGS)
LIBS = $(PKG_LIBS) -ldl -lm
# What only glmctl needs; a node gets glmd without it.
CLI_LIBS = $(shell $(PKG) --libs libcurl 2>/dev/null)

SPEC_C    := $(wildcard spec/*.c spec/base/*.c)
CODEGEN_C := $(wildcard codegen/*.c)
RUNTIME_C := $(filter-out runtime/main.c,$(wildcard runtime/*.c))
CLI_C     := $(filter-out cli/main.c cli/gen_main.c,$(wildcard cli/*.c))
TEST_C    := $(wildcard tests/unit/test_*.c)
SUPPORT_C := $(wildcard tests/support/*.c)
FUZZ_C    := $(wildcard tests/fuzz/fuzz_*.c)
BENCH_C   := $(wildcard bench/bench_*.c)
MEASURE_C := $(filter-out $(BENCH_C),$(wildcard bench/*.c))
TEMPLATES := $(sort $(wildcard kernels-templates/gpu_verified.txt kernels-templates/*.c kernels-templates/*.cu kernels-templates/*.cuh kernels-templates/*.json kernels-templates/*.h))

objects = $(patsubst %.c,$(BUILD)/%.o,$(1))
LIBRARIES := $(BUILD)/libcli.a $(BUILD)/libruntime.a $(BUILD)/libcodegen.a $(BUILD)/libspec.a

.PHONY: all help check check-only test tests replays soak fuzz bench lint format format-check analyze golden generated \
        gpu-check gpu-pack \
        install uninstall clean demo deps

all: $(BUILD)/glmctl $(BUILD)/glmd ## build glmctl and glmd

help: ## list the targets
	@sed -n 's/^\([a-z_.-]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | sort | awk -F'\t' '{printf "  %-16s %s\n", $$1, $$2}'

$(BUILD)/%.o: %.c
	@mkdir -p $(@D)
	$(if $(V),,@echo "  CC  $<")
	$(Q)$(CROSS)$(CC) $(ALL_CFLAGS) -MMD -MP -c $< -o $@

# The templates travel inside the binaries: one assembly file of .incbin lines and a table.
$(BUILD)/templates.S: $(TEMPLATES) codegen/embed.sh
	@mkdir -p $(@D)
	$(Q)sh codegen/embed.sh $(TEMPLATES) > $@.tmp && mv $@.tmp $@
$(BUILD)/templates.o: $(BUILD)/templates.S
	$(Q)$(CROSS)$(CC) -c $< -o $@

$(BUILD)/libspec.a: $(call objects,$(SPEC_C))
$(BUILD)/libcodegen.a: $(call objects,$(CODEGEN_C)) $(BUILD)/templates.o
$(BUILD)/libruntime.a: $(call objects,$(RUNTIME_C))
$(BUILD)/libcli.a: $(call objects,$(CLI_C))
$(BUILD)/libsupport.a: $(call objects,$(SUPPORT_C))
$(BUILD)/libmeasure.a: $(call objects,$(MEASURE_C))
$(BUILD)/lib%.a:
	@rm -f $@
	$(Q)$(CROSS)ar rcs $@ $^

$(BUILD)/glmctl: $(call objects,cli/main.c) $(LIBRARIES)
$(BUILD)/glmd: $(call objects,runtime/main.c) $(BUILD)/libruntime.a $(BUILD)/libcodegen.a $(BUILD)/libspec.a
$(BUILD)/glmctl: LIBS += $(CLI_LIBS)
# Writes what is generated from tables; never installed.
$(BUILD)/glmgen: $(call objects,cli/gen_main.c) $(LIBRARIES)
$(BUILD)/glmgen: LIBS += $(CLI_LIBS)
$(BUILD)/glmctl $(BUILD)/glmd $(BUILD)/glmgen:
	$(if $(V),,@echo "  LD  $@")
	$(Q)$(CROSS)$(CC) $(ALL_LDFLAGS) $^ $(LIBS) -o $@

TESTS := $(patsubst tests/unit/%.c,$(BUILD)/tests/%,$(TEST_C))
tests: $(TESTS)
$(TESTS): $(BUILD)/tests/%: $(BUILD)/tests/unit/%.o $(BUILD)/libsupport.a $(LIBRARIES)
	@mkdir -p $(@D)
	$(if $(V),,@echo "  LD  $@")
	$(Q)$(CROSS)$(CC) $(ALL_LDFLAGS) $(filter %.o,$^) $(filter %.a,$^) $(LIBS) $(CLI_LIBS) -lcmocka -o $@

# A GPU without a GPU: CUDA's driver, its compiler, which is one to C++, and NCCL.
FAKES := $(addprefix $(BUILD)/tests/fake/,cuda_driver.so nvrtc.so nccl.so)
$(FAKES): $(BUILD)/tests/fake/%.so: tests/fake/%.c kernels-templates/cuda_abi.h tests/simt/compile.h tests/simt/launch.h
	@mkdir -p $(@D)
	$(Q)$(CROSS)$(CC) $(ALL_CFLAGS) -DFAKE_ROOT='"$(CURDIR)"' $(ALL_LDFLAGS) -fPIC -shared $< -ldl -o $@
$(TESTS): | $(FAKES)

# A GPU's device tests, and what a machine without our libraries needs for them. The program finds
# its libraries beside itself, without LD_LIBRARY_PATH, which a compiler that it starts would see.
GPU_TESTS := $(patsubst tests/unit/%.c,$(BUILD)/gpu/%,$(wildcard tests/unit/test_device*.c)) \
    $(addprefix $(BUILD)/gpu/,test_gpu_rank test_exact test_golden)
GPU_PROGRAMS := $(GPU_TESTS) $(BUILD)/gpu/glmctl $(BUILD)/gpu/glmd
$(GPU_TESTS): $(BUILD)/gpu/%: $(BUILD)/tests/unit/%.o $(BUILD)/libsupport.a $(LIBRARIES)
$(BUILD)/gpu/glmctl: $(call objects,cli/main.c) $(LIBRARIES)
$(BUILD)/gpu/glmd: $(call objects,runtime/main.c) $(LIBRARIES)
$(GPU_PROGRAMS):
	@mkdir -p $(@D)
	$(Q)$(CROSS)$(CC) $(ALL_LDFLAGS) -Wl,--as-needed,--disable-new-dtags,-rpath,'$$ORIGIN/lib' $(filter %.o,$^) \
	    $(filter %.a,$^) $(LIBS) $(CLI_LIBS) -lcmocka -o $@
gpu-check: $(GPU_TESTS) ## run the tests of kernels and ranks on this machine's GPU (GLM_TEST_GPU=index)
	$(Q)tests/gpu $(BUILD)/gpu
gpu-pack: $(GPU_PROGRAMS) ## pack those tests and the programs into build-gpu/ for a machine without our libraries
	$(Q)tests/gpu-pack $(BUILD)/gpu build-gpu

# Over an engine that computes nothing. It defines what engine.c does, so no other test may see it.
$(addprefix $(BUILD)/tests/,test_scheduler test_http test_http_reply): $(BUILD)/tests/fake/engine.o \
    $(BUILD)/tests/fake/http_world.o

BENCHES := $(patsubst bench/%.c,$(BUILD)/bench/%,$(BENCH_C))
$(BENCHES): $(BUILD)/bench/%: $(BUILD)/bench/%.o $(BUILD)/libmeasure.a $(BUILD)/libsupport.a $(LIBRARIES)
	@mkdir -p $(@D)
	$(Q)$(CROSS)$(CC) $(ALL_LDFLAGS) $^ $(LIBS) -lcmocka -o $@

# Replays the corpus without libFuzzer; `make fuzz` builds the same file with it.
REPLAYS := $(patsubst tests/fuzz/%.c,$(BUILD)/fuzz/%,$(FUZZ_C))
$(REPLAYS): $(BUILD)/fuzz/%: $(BUILD)/tests/fuzz/%.o $(BUILD)/tests/fuzz/replay.o $(LIBRARIES)
	@mkdir -p $(@D)
	$(Q)$(CROSS)$(CC) $(ALL_LDFLAGS) $^ $(LIBS) -o $@

# For targets that a newcomer types: every core, unless make was told how many.
ALL_CORES = $(if $(filter -j%,$(MAKEFLAGS)),,-j$(shell nproc))

deps: ## install what the build needs (Debian, Ubuntu)
	$(Q)tests/install-packages build

demo: ## build, apply clusters/demo/demo.yaml and ask the model one question
	$(Q)tests/install-packages demo
	$(Q)$(MAKE) --no-print-directory $(ALL_CORES) all
	$(Q)clusters/demo/run $(BUILD)

test: check
check: ## install what is missing and run every test of this machine (at most 10 minutes)
	$(Q)tests/install-packages check
	$(Q)$(MAKE) --no-print-directory $(ALL_CORES) check-only

check-only: all
	$(Q)$(MAKE) --no-print-directory tests replays
	$(Q)tests/run $(BUILD) $(PATTERN)

replays: $(REPLAYS)

# The CI table with the full lengths: every fuzzer 60 s, sanitizers over everything.
soak: ## the long lengths: every fuzzer 60 s, sanitizers over the whole suite
	$(Q)ALL=1 FUZZ_SECONDS=60 BUDGET=36000 .ci/run

SECONDS ?= 20
FUZZ ?= $(patsubst tests/fuzz/fuzz_%.c,%,$(FUZZ_C))
FUZZ_CC = clang
FUZZ_FLAGS = -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined
fuzz: ## run the fuzzers: FUZZ="spec plan" SECONDS=60
	$(Q)$(MAKE) --no-print-directory BUILD=build-fuzz CC=$(FUZZ_CC) CFLAGS="$(FUZZ_FLAGS) $(CFLAGS)" \
	    LDFLAGS="-fsanitize=address,undefined $(LDFLAGS)" $(FUZZ:%=build-fuzz/fuzzers/%)
	$(Q)tests/fuzz/run build-fuzz/fuzzers $(SECONDS) $(FUZZ)
$(BUILD)/fuzzers/%: $(BUILD)/tests/fuzz/fuzz_%.o $(LIBRARIES)
	@mkdir -p $(@D)
	$(Q)$(CC) -fsanitize=fuzzer $(ALL_LDFLAGS) $^ $(LIBS) -o $@

bench: $(BENCHES) all ## run the benchmarks
	$(Q)bench/run $(BUILD)

lint: ## folder direction, forbidden words, shell scripts, man pages
	$(Q)tests/lint

FORMATTED = $(wildcard spec/*.[ch] spec/base/*.[ch] codegen/*.[ch] runtime/*.[ch] cli/*.[ch] tests/unit/*.[ch] tests/support/*.[ch] tests/fake/*.[ch] tests/fuzz/*.[ch] bench/*.[ch] kernels-templates/*.[ch] kernels-templates/*.cu kernels-templates/*.cuh tests/simt/*.h tests/simt/*.cc)
format: ## clang-format every source in place
	$(Q)clang-format -i $(FORMATTED)
format-check:
	$(Q)clang-format --dry-run --Werror $(FORMATTED)

analyze: ## cppcheck, clang-tidy and gcc's analyzer
	$(Q)tests/analyze

compile_commands.json: ## through bear
	$(Q)$(MAKE) clean BUILD=build-bear
	$(Q)bear --output $@ -- $(MAKE) --no-print-directory BUILD=build-bear all tests

golden: all tests ## rewrite the golden files; review their diff as code
	$(Q)tests/golden/rewrite $(BUILD)

generated: $(BUILD)/glmgen ## rewrite the spec's reference page, completions and man option lists
	$(Q)cli/generate $(BUILD)

install: all ## honours DESTDIR, PREFIX, bindir, mandir, bashcompdir, zshcompdir, fishcompdir
	install -D -m 755 $(BUILD)/glmctl $(DESTDIR)$(bindir)/glmctl
	install -D -m 755 $(BUILD)/glmd $(DESTDIR)$(bindir)/glmd
	for page in cli/man/*.[1-8]; do \
	    install -D -m 644 $$page $(DESTDIR)$(mandir)/man$${page##*.}/$${page##*/} || exit 1; done
	install -D -m 644 cli/completion/glmctl.bash $(DESTDIR)$(bashcompdir)/glmctl
	install -D -m 644 cli/completion/_glmctl $(DESTDIR)$(zshcompdir)/_glmctl
	install -D -m 644 cli/completion/glmctl.fish $(DESTDIR)$(fishcompdir)/glmctl.fish

uninstall: ## remove what install put there
	rm -f $(DESTDIR)$(bindir)/glmctl $(DESTDIR)$(bindir)/glmd
	for page in cli/man/*.[1-8]; do rm -f $(DESTDIR)$(mandir)/man$${page##*.}/$${page##*/}; done
	rm -f $(DESTDIR)$(bashcompdir)/glmctl $(DESTDIR)$(zshcompdir)/_glmctl $(DESTDIR)$(fishcompdir)/glmctl.fish

clean: ## remove this build
	rm -rf $(BUILD)

.SECONDARY:
-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)
