/* SPDX-License-Identifier: Apache-2.0 */
/* Edit distance over short names, and the nearest of a list. What is near enough to be offered as a
 * hint is decided here alone, so that every "did you mean" of the program agrees. */
#include "spec/base/nearest.h"

#include <ctype.h>
#include <string.h>

uint32_t edit_distance(const char *a, const char *b)
{
    enum { LONGEST = 64 };
    size_t n = strlen(a);
    size_t m = strlen(b);
    uint32_t rows[3][LONGEST];
    if (n >= LONGEST || m >= LONGEST)
        return LONGEST;
    uint32_t *two_before = rows[0];
    uint32_t *before = rows[1];
    uint32_t *now = rows[2];
    for (uint32_t j = 0; j <= m; j++)
        before[j] = j;
    for (uint32_t i = 1; i <= n; i++) {
        now[0] = i;
        for (uint32_t j = 1; j <= m; j++) {
            uint32_t best = before[j - 1] +
                            (tolower((unsigned char)a[i - 1]) != tolower((unsigned char)b[j - 1]));
            if (before[j] + 1 < best)
                best = before[j] + 1;
            if (now[j - 1] + 1 < best)
                best = now[j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                two_before[j - 2] + 1 < best)
                best = two_before[j - 2] + 1;
            now[j] = best;
        }
        uint32_t *oldest = two_before;
        two_before = before;
        before = now;
        now = oldest;
    }
    return before[m];
}

const char *nearest_name(const char *wanted, const char *const *names, size_t n)
{
    const char *nearest = NULL;
    uint32_t best = UINT32_MAX;
    for (size_t i = 0; i < n; i++) {
        uint32_t distance = edit_distance(wanted, names[i]);
        if (distance < best) {
            best = distance;
            nearest = names[i];
        }
    }
    size_t len = strlen(wanted);
    return best <= (len < 4 ? 1 : len < 8 ? 2 : len / 3) ? nearest : NULL;
}
