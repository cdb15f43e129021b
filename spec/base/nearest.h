/* SPDX-License-Identifier: Apache-2.0 */
/* The name that was probably meant: for hints on unknown keys, options, commands and nodes. */
#ifndef GLM_BASE_NEAREST_H
#define GLM_BASE_NEAREST_H

#include <stddef.h>
#include <stdint.h>

/* Edit distance with neighbours swapped counted as one; names longer than 63 compare as unequal. */
uint32_t edit_distance(const char *a, const char *b);
/* The name closest to `wanted`, or NULL when none is close enough to be meant. */
const char *nearest_name(const char *wanted, const char *const *names, size_t n);

#endif
