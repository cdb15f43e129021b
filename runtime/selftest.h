/* SPDX-License-Identifier: Apache-2.0 */
/* Every step of a rank's programs on a GPU against the same step on the host, with the same inputs.
 * The host's engine runs operation lists (with bf16 activations: the oracle of the CUDA bodies); a
 * second engine of the same plan on the GPU runs no lists: behind every step of the first, the
 * step's inputs as they were are put there, what it will write is filled with NaN, it runs alone,
 * and what it left is compared.
 *
 * Owner: the round thread of the host's engine. */
#ifndef GLM_RUNTIME_SELFTEST_H
#define GLM_RUNTIME_SELFTEST_H

#include "runtime/engine.h"

/* What was seen of one kernel template. */
struct glm_selftest_row {
    const char *template_name;
    uint64_t n_steps;
    double worst_ulp; /* |gpu - host| of bf16 values, in units of the last place of a bf16 at
                         max(|host|, root mean square of the host's row) */
    double worst_l2;  /* |gpu - host| / |host| of rows of fp32 values */
    uint64_t n_codes, n_other_codes; /* integers and fp8 rows: compared, and not equal */
    char where[192];                 /* the worst of them: kernel, program, layer, argument, row */
};

/* Lists that make a rank run its programs with random tokens: prompts in slices, then rounds of
 * several rows a stream, of which some are kept; as many streams and tokens as window and pool
 * hold. The larger sampling programs run when a draw needs them. run: as glm_engine_run. */
struct glm_selftest_load {
    uint32_t prompt_rows; /* of the longest of three prompts; the others have a sixth and a 20th */
    uint32_t n_rounds;
};
enum glm_status glm_selftest_run(const struct glm_plan *plan, const struct glm_selftest_load *load,
                                 enum glm_status (*run)(void *context, const struct glm_op *ops,
                                                        uint32_t n_ops,
                                                        struct glm_round_result *result,
                                                        struct glm_error *err),
                                 void *context, struct glm_error *err);

struct glm_selftest;
/* Both engines of the same plan but for the target; borrowed. Errors: GLM_EINVAL when their
 * programs differ, GLM_ENOMEM. */
enum glm_status glm_selftest_new(struct glm_engine *host, struct glm_engine *gpu,
                                 struct glm_selftest **out, struct glm_error *err);
/* Before the host's engine is freed. NULL: nothing. */
void glm_selftest_free(struct glm_selftest *t);

/* Device forms as the GPU has them against the host's, byte by byte. GLM_EKERNEL naming the first
 * weight that differs. */
enum glm_status glm_selftest_weights(struct glm_selftest *t, struct glm_error *err);

/* What the lists so far have shown, one row a template; status: GLM_OK, or the error that ended
 * the comparing. */
const struct glm_selftest_row *glm_selftest_rows(const struct glm_selftest *t, uint32_t *n,
                                                 enum glm_status *status, struct glm_error *err);
/* Has the plan's kernel of that index been compared? */
bool glm_selftest_ran(const struct glm_selftest *t, uint32_t kernel_i);
/* Is a row within what the CUDA back end promises: 1 unit in the last place, 1e-5, equal codes? */
bool glm_selftest_passed(const struct glm_selftest_row *row);

#endif
