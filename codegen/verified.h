/* SPDX-License-Identifier: Apache-2.0 */
/* The register of CUDA bodies that passed on a GPU: kernels-templates/gpu_verified.txt, a line
 * "TEMPLATE DIGEST DATE GPU" each, written by tests/gpu (make gpu-check). */
#ifndef GLM_CODEGEN_VERIFIED_H
#define GLM_CODEGEN_VERIFIED_H

#include "codegen/manifest.h"

#define GLM_VERIFIED_FILE "gpu_verified.txt"

/* Of what a GPU runs of a template whatever its parameters are: the CUDA body, the headers that it
 * reaches, the manifest's launch. Errors: GLM_EKERNEL when there is no body or a header lacks. */
enum glm_status glm_body_digest(const struct glm_manifest *m, struct arena *arena, char digest[65],
                                struct glm_error *err);

/* *unverified: the register has no line of the template with its body's digest. */
enum glm_status glm_body_unverified(const struct glm_manifest *m, struct arena *arena,
                                    bool *unverified, struct glm_error *err);

#endif
