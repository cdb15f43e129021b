/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/segments.h"

#include <dirent.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { PATIENCE_MS = 20000, LOOK_MS = 50 };

int segments_count(void)
{
    int n = 0;
    DIR *folder = opendir("/dev/shm");
    assert_non_null(folder);
    for (struct dirent *e = readdir(folder); e != NULL; e = readdir(folder))
        n += strncmp(e->d_name, "glm-", 4) == 0;
    closedir(folder);
    return n;
}

void assert_no_more_segments(int before)
{
    int n = segments_count();
    for (int ms = 0; n > before && ms < PATIENCE_MS; ms += LOOK_MS) {
        (void)poll(NULL, 0, LOOK_MS);
        n = segments_count();
    }
    if (n > before)
        fail_msg("%d shared-memory segments stay, %d were there before", n, before);
}
