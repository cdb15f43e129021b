/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes that are GPUs of this machine, as its driver shows them: what a lane's kernels are compiled
 * for, and whether its GPUs are those that the spec says. Nothing is put on a GPU here. */
#ifndef GLM_CLI_GPU_H
#define GLM_CLI_GPU_H

#include "cli/compile.h"
#include "runtime/cuda.h"

/* The kernel target that all ranks of the compiled lane share, in c->target. A GPU that cannot be
 * asked (of another machine, without a driver) is taken for one like the lane's others, else for a
 * GB10's, with a warning that says so. Nodes of different targets are an error that names two of
 * them; both are in c->diags. GLM_ESPEC. */
enum glm_status gpu_find_target(struct compiled *c);

/* The facts of a local node's GPU. GLM_EKERNEL as glm_cuda_facts_of, and where a gb10 is none. */
enum glm_status gpu_facts(const struct glm_node *node, struct glm_cuda_facts *out,
                          struct glm_error *err);

#endif
