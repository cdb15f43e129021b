/* SPDX-License-Identifier: Apache-2.0 */
/* A test that opens a checkpoint: pico's config and geometry, a pack made of them, what opening it
 * gave. */
#ifndef GLM_TESTS_OPENING_H
#define GLM_TESTS_OPENING_H

#include "tests/support/pack.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

struct opening {
    struct arena arena;
    struct diag_list diags;
    struct glm_checkpoint *c;
    struct buf config; /* pico's */
    struct glm_model model;
    char folder[256]; /* removed at the end unless "" */
    struct pack pack;
};

void opening_start(struct opening *f);
void opening_stop(struct opening *f);
enum glm_status opening_open(struct opening *f, const char *where);
/* Writes f->pack with f->config into a new folder and opens it. */
enum glm_status opening_open_pack(struct opening *f);
/* Fails the test with what was found. */
void opening_fail(struct opening *f, const char *what);
double opening_seconds(void);

#endif
