# SPDX-License-Identifier: Apache-2.0
# glmctl: `make help` lists the targets.

VERSION  := 0.1.0
PREFIX   ?= /usr/local
bindir   ?= $(PREFIX)/bin
mandir   ?= $(PREFIX)/share/man
CC       ?= cc
SANITIZE ?=
CROSS    ?=
V        ?=
Q        := $(if $(V),,@)
PKG      := $(CROSS)pkg-config

BUILD ?= build$(if $(SANITIZE),-$(subst $(comma),-,$(SANITIZE)))$(if $(filter clang%,$(CC)),-clang)$(if $(CROSS),-$(patsubst %-,%,$(CROSS)))
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

SPEC_C    := $(wildcard spec/*.c spec/base/*.c)
CODEGEN_C := $(wildcard codegen/*.c)
RUNTIME_C := $(filter-out runtime/main.c,$(wildcard runtime/*.c))
CLI_C     := $(filter-out cli/main.c,$(wildcard cli/*.c))
TEST_C    := $(wildcard tests/unit/test_*.c)
SUPPORT_C := $(wildcard tests/support/*.c)
FUZZ_C    := $(wildcard tests/fuzz/fuzz_*.c)
BENCH_C   := $(wildcard bench/bench_*.c)
TEMPLATES := $(sort $(wildcard kernels-templates/*.c kernels-templates/*.cu kernels-templates/*.json kernels-templates/*.h))

objects = $(patsubst %.c,$(BUILD)/%.o,$(1))
LIBRARIES := $(BUILD)/libcli.a $(BUILD)/libruntime.a $(BUILD)/libcodegen.a $(BUILD)/libspec.a

.PHONY: all help check test soak fuzz bench lint format analyze golden generated install uninstall clean demo tests deps

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
$(BUILD)/lib%.a:
	@rm -f $@
	$(Q)$(CROSS)ar rcs $@ $^

$(BUILD)/glmctl: $(call objects,cli/main.c) $(LIBRARIES)
$(BUILD)/glmd: $(call objects,runtime/main.c) $(BUILD)/libruntime.a $(BUILD)/libcodegen.a $(BUILD)/libspec.a
$(BUILD)/glmctl $(BUILD)/glmd:
	$(if $(V),,@echo "  LD  $@")
	$(Q)$(CROSS)$(CC) $(ALL_LDFLAGS) $^ $(LIBS) -o $@

TESTS := $(patsubst tests/unit/%.c,$(BUILD)/tests/%,$(TEST_C))
tests: $(TESTS)
$(TESTS): $(BUILD)/tests/%: $(BUILD)/tests/unit/%.o $(BUILD)/libsupport.a $(LIBRARIES)
	@mkdir -p $(@D)
	$(if $(V),,@echo "  LD  $@")
	$(Q)$(CROSS)$(CC) $(ALL_LDFLAGS) $^ $(LIBS) -lcmocka -o $@

BENCHES := $(patsubst bench/%.c,$(BUILD)/bench/%,$(BENCH_C))
$(BENCHES): $(BUILD)/bench/%: $(BUILD)/bench/%.o $(BUILD)/libsupport.a $(LIBRARIES)
	@mkdir -p $(@D)
	$(Q)$(CROSS)$(CC) $(ALL_LDFLAGS) $^ $(LIBS) -o $@

# Replays the corpus without libFuzzer; `make fuzz` builds the same file with it.
REPLAYS := $(patsubst tests/fuzz/%.c,$(BUILD)/fuzz/%,$(FUZZ_C))
$(REPLAYS): $(BUILD)/fuzz/%: $(BUILD)/tests/fuzz/%.o $(BUILD)/tests/fuzz/replay.o $(LIBRARIES)
	@mkdir -p $(@D)
	$(Q)$(CROSS)$(CC) $(ALL_LDFLAGS) $^ $(LIBS) -o $@

.SECONDARY:
-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)
