/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the names from /dev/shm. */
#include "tests/support/segments.h"

#include <dirent.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

void segments_list(struct segments *out)
{
    out->n = 0;
    DIR *folder = opendir("/dev/shm");
    struct dirent *e;
    while (folder && (e = readdir(folder)) != NULL)
        if (strncmp(e->d_name, "glm-", 4) == 0 && out->n < SEGMENTS_MAX)
            snprintf(out->names[out->n++], sizeof out->names[0], "%.47s", e->d_name);
    if (folder)
        closedir(folder);
}

static bool has(const struct segments *s, const char *name)
{
    for (int i = 0; i < s->n; i++)
        if (strcmp(s->names[i], name) == 0)
            return true;
    return false;
}

bool segments_are_those(const struct segments *before, int ms)
{
    struct segments came, now;
    segments_list(&came);
    for (;; ms -= 10) {
        int n_left = 0;
        segments_list(&now);
        for (int i = 0; i < came.n; i++)
            n_left += !has(before, came.names[i]) && has(&now, came.names[i]);
        if (n_left == 0 || ms <= 0)
            return n_left == 0;
        (void)poll(NULL, 0, 10);
    }
}
