/* SPDX-License-Identifier: Apache-2.0 */
/* Which shared memory segments have names. Other tests run meanwhile, and their names are short
 * lived too, so a test compares names and not their number. */
#ifndef GLM_TESTS_SEGMENTS_H
#define GLM_TESTS_SEGMENTS_H

#include <stdbool.h>

enum { SEGMENTS_MAX = 256 };

struct segments {
    char names[SEGMENTS_MAX][48];
    int n;
};

void segments_list(struct segments *out);
/* Does every name that came since go within ms? */
bool segments_are_those(const struct segments *before, int ms);

#endif
