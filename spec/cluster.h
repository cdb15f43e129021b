/* SPDX-License-Identifier: Apache-2.0 */
/* The spec (v1) and the resolved cluster: what codegen needs to know of one YAML file.
 * schema.c holds the one field table; yaml.c the tree with spans; resolve.c fills these structs. */
#ifndef GLM_SPEC_CLUSTER_H
#define GLM_SPEC_CLUSTER_H

#include "spec/base/diag.h"
#include "spec/checkpoint.h"

enum {
    GLM_MAX_NODES = 8,
    GLM_MAX_RANKS = 8,
    GLM_MAX_LANES = 16,
    GLM_MAX_CABLES = 32,
    GLM_MAX_DRAFTERS = 4
};

enum glm_device_kind { GLM_DEVICE_CPU, GLM_DEVICE_CUDA, GLM_DEVICE_GB10 };
enum glm_transport { GLM_TRANSPORT_SHM, GLM_TRANSPORT_TCP, GLM_TRANSPORT_ROCE, GLM_TRANSPORT_NCCL };
enum glm_topology {
    GLM_TOPOLOGY_LOOPBACK,
    GLM_TOPOLOGY_DIRECT,
    GLM_TOPOLOGY_TRIANGLE,
    GLM_TOPOLOGY_RING,
    GLM_TOPOLOGY_SWITCH
};
enum glm_expert_form { GLM_EXPERTS_EXL3, GLM_EXPERTS_BF16 };
enum glm_matrix_form { GLM_FORM_BF16, GLM_FORM_Q4, GLM_FORM_FP8 };
enum glm_kv_form { GLM_KV_FP32, GLM_KV_BF16, GLM_KV_FP8 };
enum glm_act { GLM_ACT_F32, GLM_ACT_BF16 };
/* How a checkpoint gets to the nodes: every node reads the same path, or apply copies it there. */
enum glm_distribution { GLM_WEIGHTS_SHARED, GLM_WEIGHTS_COPY };

/* A cable's end that is a switch and no node. */
#define GLM_SWITCH_END UINT32_MAX

struct glm_node {
    const char *name;
    const char *host;    /* "local" or an ssh target */
    const char *control; /* address for ssh and control; default the host */
    enum glm_device_kind device;
    uint32_t device_index; /* cuda:N */
    uint64_t memory_bytes; /* 0: not declared, found at apply */
    uint64_t reserve_bytes;
    uint32_t threads; /* host ranks; 0: cores / ranks on the host, at least 1 */
    struct src_span at;
};

struct glm_cable_end {
    uint32_t node; /* or GLM_SWITCH_END: the b end of a cable to a switch */
    uint32_t port;
    const char *address; /* IPv4; "" : discovered, or a switch */
};
struct glm_cable {
    struct glm_cable_end a, b;
    struct src_span at;
};

struct glm_formats {
    enum glm_expert_form experts;
    enum glm_matrix_form dense, head;
    enum glm_kv_form kv;
    enum glm_act act;
};

struct glm_lane {
    const char *name;
    bool is_default;
    uint32_t ranks[GLM_MAX_RANKS]; /* node indices in rank order */
    uint32_t n_ranks;              /* = tensor-parallel size */
    const char *listen_host;       /* default 127.0.0.1 */
    uint16_t listen_port;          /* 0: any free port */
    uint32_t n_streams;            /* 1..16, default 8 */
    uint32_t window_tokens;        /* multiple of 64, at most max_position */
    uint32_t pool_tokens;          /* 0: what memory leaves, at most streams * window */
    uint32_t prefill_rows;         /* multiple of 64: rows of a prefill slice at most */
    uint32_t verify_rows;          /* 1 without drafters, else 16 */
    struct glm_formats formats;
    const char *drafters[GLM_MAX_DRAFTERS]; /* "mtp", "copy", "dflash2" or its folder */
    uint32_t n_drafters;
    bool rotate_uneven; /* the uneven unit rotates by layer */
    bool vision;
    bool thinking;       /* server default: thinking on */
    const char *effort;  /* server default effort, "" = template's Max */
    uint32_t max_tokens; /* default reply length */
    uint64_t max_body_bytes;
    const char *api_key_file; /* "" = open */
    struct src_span at;
};

struct glm_cluster {
    const char *name;
    const char *spec_path;
    const char *spec_text;        /* the whole file */
    char spec_digest[65];         /* SHA-256 of it, hex */
    const char *checkpoint_where; /* as written */
    const char *checkpoint_path;  /* folder, or "synthetic:…", after hub-cache look-up */
    bool checkpoint_absent;       /* hub id not found: built-in geometry, apply refuses */
    const char *served_name;
    enum glm_distribution distribution;
    struct glm_checkpoint *checkpoint;
    enum glm_transport transport;
    enum glm_topology topology; /* of the lane with the most ranks */
    struct glm_node nodes[GLM_MAX_NODES];
    uint32_t n_nodes;
    struct glm_cable cables[GLM_MAX_CABLES];
    uint32_t n_cables;
    struct glm_lane lanes[GLM_MAX_LANES];
    uint32_t n_lanes;
};

/* Parses, validates and resolves a spec, opening its checkpoint. Every independent problem is in
 * diags; GLM_ESPEC or GLM_ECHECKPOINT when there was an error. `path` names the file in
 * diagnostics; relative checkpoint and key paths are taken from its folder. */
enum glm_status glm_cluster_load(const char *path, struct arena *arena, struct diag_list *diags,
                                 struct glm_cluster **out);
/* The same from memory, for tests, fuzzing and saved plans. */
enum glm_status glm_cluster_parse(const char *path, const char *text, size_t len,
                                  struct arena *arena, struct diag_list *diags,
                                  struct glm_cluster **out);

/* A device as specs write it, "cpu", "gb10" or "cuda:0" to "cuda:999", and back. false for any
 * other text. */
bool glm_device_parse(const char *text, enum glm_device_kind *kind, uint32_t *index);
enum { GLM_DEVICE_TEXT_BYTES = 16 };
void glm_node_device_text(const struct glm_node *n, char text[GLM_DEVICE_TEXT_BYTES]);

/* Whether two nodes take from one memory: the same host, and either both in host memory (cpu and
 * gb10) or on the same cuda:N. */
bool glm_node_shares_memory(const struct glm_node *a, const struct glm_node *b);
/* Memory declared for the nodes that share the memory of node `node`. lane NULL: all nodes; else
 * those of its ranks. 0 when any of them declares none. */
uint64_t glm_cluster_host_bytes(const struct glm_cluster *c, const struct glm_lane *lane,
                                uint32_t node);

/* Lane index by name; name NULL: the default lane (`default: true`, or the only one).
 * GLM_ENOTFOUND with the list of lanes. */
enum glm_status glm_cluster_lane(const struct glm_cluster *c, const char *name, uint32_t *lane,
                                 struct glm_error *err);

/* `glmctl explain FIELD`: help from the field table; "" lists all. GLM_ENOTFOUND with the nearest
 * field as hint. */
enum glm_status glm_schema_explain(const char *field, struct buf *out, struct glm_error *err);
/* The reference page of all fields (Markdown), generated into docs/spec.md. */
void glm_schema_reference(struct buf *out);
/* One row of the field table, for whoever prints it in another form. */
struct glm_field_doc {
    const char *path; /* "lanes[].window" */
    const char *help;
    const char *const *words; /* allowed words, NULL-terminated; NULL: any */
    char value[256];          /* "integer, 64 to 1073741824 tokens, a multiple of 64" */
    char fallback[160];       /* the default; "" when there is none */
    bool required;
};
/* false past the last field. */
bool glm_schema_field(size_t i, struct glm_field_doc *out);

/* Name and lanes of a spec, as far as they can be read of text that may be otherwise wrong, without
 * opening its checkpoint: enough to find what runs of it. Only `name`, `spec_path` and the lanes'
 * `name`, `is_default`, `n_ranks` and `at` are set. Errors: as glm_cluster_parse. */
enum glm_status glm_cluster_outline(const char *path, const char *text, size_t len,
                                    struct arena *arena, struct diag_list *diags,
                                    struct glm_cluster **out);

const char *glm_device_text(enum glm_device_kind d);
const char *glm_transport_text(enum glm_transport t);
const char *glm_topology_text(enum glm_topology t);
const char *glm_matrix_form_text(enum glm_matrix_form f);
const char *glm_expert_form_text(enum glm_expert_form f);
const char *glm_kv_form_text(enum glm_kv_form f);
const char *glm_act_text(enum glm_act a);

#endif
