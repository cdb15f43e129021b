/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the headers of a pack of the published model's size, for timing `glmctl plan`: N_FILES
 * safetensors files with the names and shapes of every tensor, 150,000 of them with EXL3 experts,
 * and holes for data.
 *
 * Usage: bench_headers FOLDER [N_FILES [EXL3_BITS]]       (defaults 120 and 4; 0: plain experts) */
#include "bench/synthesis.h"

#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    int n_files = argc > 2 ? atoi(argv[2]) : 120, bits = argc > 3 ? atoi(argv[3]) : 4;
    if (argc < 2 || n_files < 1 || n_files > 10000 || bits < 0 || bits > 8) {
        fprintf(stderr, "usage: bench_headers FOLDER [N_FILES [EXL3_BITS]]\n");
        return 64;
    }
    struct glm_model m = synthesis_flash();
    synthesis_write(&m, (uint32_t)bits, (uint32_t)n_files, argv[1]);
    return 0;
}
