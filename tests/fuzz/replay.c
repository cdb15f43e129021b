/* SPDX-License-Identifier: Apache-2.0 */
/* main() for a fuzz target without libFuzzer: feeds every file of the folders and files named on
 * the command line. Prints how many; exits 1 when one cannot be read or there was none. */
#include "spec/base/buf.h"

#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { INPUT_LIMIT = 16 << 20 };

static int feed(const char *path)
{
    struct buf bytes = {0};
    struct glm_error err = {0};
    if (glm_file_read(path, INPUT_LIMIT, &bytes, &err) != GLM_OK) {
        fprintf(stderr, "%s\n", err.message);
        buf_release(&bytes);
        return -1;
    }
    LLVMFuzzerTestOneInput((const uint8_t *)buf_text(&bytes), bytes.len);
    buf_release(&bytes);
    return 0;
}

int main(int argc, char **argv)
{
    unsigned n = 0;
    unsigned bad = 0;
    for (int i = 1; i < argc; i++) {
        DIR *folder = opendir(argv[i]);
        if (folder == NULL) {
            n++;
            bad += feed(argv[i]) != 0;
            continue;
        }
        for (struct dirent *e; (e = readdir(folder)) != NULL;) {
            char path[4096];
            int len = snprintf(path, sizeof path, "%s/%s", argv[i], e->d_name);
            if (e->d_name[0] == '.' || len < 0 || (size_t)len >= sizeof path)
                continue;
            n++;
            bad += feed(path) != 0;
        }
        closedir(folder);
    }
    printf("%u inputs replayed, %u unreadable\n", n, bad);
    return bad > 0 || n == 0;
}
