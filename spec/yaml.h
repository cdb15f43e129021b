/* SPDX-License-Identifier: Apache-2.0 */
/* Private to spec/: YAML bytes → a node tree in which every node keeps its source span. */
#ifndef GLM_SPEC_YAML_H
#define GLM_SPEC_YAML_H

#include "spec/base/arena.h"
#include "spec/base/diag.h"

enum {
    GLM_YAML_MAX_BYTES = 1 << 20,
    GLM_YAML_MAX_DEPTH = 16,
    GLM_YAML_MAX_NODES = 20000,
};

enum yaml_shape { YAML_TEXT, YAML_LIST, YAML_MAP };

/* Lives in the arena. Members of a list and of a map are a chain, in source order. */
struct yaml_node {
    enum yaml_shape shape;
    struct src_span at; /* of a block list or map: its first character */
    const char *text;   /* YAML_TEXT: NUL-terminated, without NUL inside */
    bool quoted;        /* written with quotes or as a block: never a number or a boolean */
    const char *key;    /* of a map's member; NULL in a list */
    struct src_span key_at;
    struct yaml_node *first; /* of a list or map */
    struct yaml_node *next;  /* in the list or map that holds it */
    uint32_t n_items;
    bool bad; /* refused by the schema: its value must not be used */
};

/* Exactly one document. Refused, with a span and both places where there are two: duplicate keys,
 * anchors, aliases, tags, several documents, keys that are no text, nesting deeper than
 * GLM_YAML_MAX_DEPTH, larger than GLM_YAML_MAX_BYTES, NUL and invalid UTF-8.
 * *out is also set with GLM_ESPEC when the tree was read to its end, so that the caller can look
 * for independent errors. Errors: GLM_ESPEC with at least one diagnostic, GLM_ENOMEM. */
enum glm_status yaml_read(const char *file, const char *text, size_t len, struct arena *arena,
                          struct diag_list *diags, struct yaml_node **out);

/* The map's member of that key, or NULL. */
struct yaml_node *yaml_get(const struct yaml_node *map, const char *key);
/* "a list" and so on, for messages. */
const char *yaml_shape_text(const struct yaml_node *node);

#endif
