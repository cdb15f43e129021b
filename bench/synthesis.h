/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a checkpoint folder of a geometry: config.json, and safetensors files whose headers are
 * whole and whose data are holes. Served as synthetic:FOLDER it has made-up weights. */
#ifndef GLM_BENCH_SYNTHESIS_H
#define GLM_BENCH_SYNTHESIS_H

#include "spec/checkpoint.h"

/* exl3_bits 0: plain experts. Ends the program when the folder cannot be written. */
void synthesis_write(const struct glm_model *m, uint32_t exl3_bits, uint32_t n_files,
                     const char *folder);
/* The published model. */
struct glm_model synthesis_flash(void);

#endif
