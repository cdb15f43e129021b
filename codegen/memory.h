/* SPDX-License-Identifier: Apache-2.0 */
/* What a plan takes of a rank's memory, by the rules the runtime lays it out with: every weight,
 * state plane, buffer and the scratch starts on 64 bytes; a buffer exists in each arena whose
 * programs name it (sample programs run in every arena). */
#ifndef GLM_CODEGEN_MEMORY_H
#define GLM_CODEGEN_MEMORY_H

#include "codegen/manifest.h"
#include "codegen/plan.h"

enum { GLM_PLAN_ALIGN = 64, GLM_PLAN_EXTENT = 2048 };

/* Bytes up to where the next thing may start. */
uint64_t glm_plan_align(uint64_t bytes);
/* Bytes of one plane (one layer) of a state under the plan's limits. */
uint64_t glm_plane_bytes(const struct glm_plan_state *s, const struct glm_plan_limits *l);
/* Bytes that one more pool extent of 2048 tokens takes over all planes. */
uint64_t glm_extent_bytes(const struct glm_plan *p);
/* Cache bytes a token, extents and alignment aside: docs/formats.md 6. */
double glm_token_bytes(const struct glm_plan *p);
/* Marks the buffers that an arena's programs name: used[n_buffers]. Errors: GLM_EPLAN. */
enum glm_status glm_arena_buffers(const struct glm_plan *p, uint32_t arena_i, bool *used,
                                  struct glm_error *err);
/* Rows of a buffer in an arena, and bytes of one of its elements (0 for an unknown dtype). */
uint64_t glm_buffer_rows(const struct glm_plan_buffer *b, const struct glm_plan_arena *a);
uint32_t glm_buffer_element_bytes(const struct glm_plan *p, const struct glm_plan_buffer *b);
/* Does a program run in this arena? Those of the sample family draw from the logits of the program
 * before them, so they run in any. */
bool glm_program_runs_in(const struct glm_plan *p, const struct glm_plan_program *g,
                         uint32_t arena_i);
/* Buffers of one arena. Errors: GLM_EPLAN for a dtype it does not know. */
enum glm_status glm_arena_bytes(const struct glm_plan *p, uint32_t arena_i, uint64_t *bytes,
                                struct glm_error *err);
/* Does the CUDA back end build the plan's kernels? */
bool glm_plan_uses_cuda(const struct glm_plan *p);
/* The largest scratch of any launch at its arena's maxima with n_threads; under CUDA, where threads
 * are nothing, the scratch and tickets of glm_cuda_scratch together. Errors: GLM_EPLAN. */
enum glm_status glm_scratch_bytes(const struct glm_plan *p, const struct glm_manifest *manifests,
                                  uint32_t n_manifests, uint32_t n_threads, uint64_t *bytes,
                                  struct glm_error *err);
/* The most that any CUDA launch takes at its arena's maxima and the whole window: bytes of scratch
 * and of tickets, each aligned. Errors: GLM_EPLAN, of a launch that no GPU takes too. */
enum glm_status glm_cuda_scratch(const struct glm_plan *p, const struct glm_manifest *manifests,
                                 uint32_t n_manifests, uint64_t *scratch_bytes,
                                 uint64_t *ticket_bytes, struct glm_error *err);

#endif
