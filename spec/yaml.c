/* SPDX-License-Identifier: Apache-2.0 */
/* libyaml's events → a tree with spans. libyaml accepts duplicate keys, anchors and tags and counts
 * from 0: all of that ends here. What keys mean is schema.c's. */
#include "spec/yaml.h"

#include <yaml.h>

#include <stdio.h>
#include <string.h>

struct builder {
    const char *file;
    struct arena *arena;
    struct diag_list *diags;
    yaml_parser_t parser;
    struct yaml_node *open[GLM_YAML_MAX_DEPTH + 1]; /* lists and maps around the place */
    struct yaml_node **tail[GLM_YAML_MAX_DEPTH + 1];
    uint32_t depth;
    struct yaml_node *root;
    const char *key; /* of the map's member to come; NULL: a key comes next */
    struct src_span key_at;
    uint32_t n_nodes;
    uint32_t n_documents;
};

static struct src_span span(const struct builder *b, yaml_mark_t start, yaml_mark_t end)
{
    struct src_span at = {.file = b->file,
                          .line = (uint32_t)start.line + 1,
                          .col = (uint32_t)start.column + 1,
                          .len = 1};
    if (end.line == start.line && end.column > start.column)
        at.len = (uint32_t)(end.column - start.column);
    return at;
}

static enum glm_status refuse(struct builder *b, struct src_span at, const char *id,
                              const char *hint, const char *message)
{
    diag_add(b->diags, DIAG_ERROR, at, id, hint, "%s", message);
    return GLM_ESPEC;
}

/* Reported and then passed over, so that independent errors are found in the same run. */
static void refuse_properties(struct builder *b, struct src_span at, const yaml_char_t *anchor,
                              const yaml_char_t *tag)
{
    if (anchor != NULL)
        refuse(b, at, "spec.anchor", "write the value out at each place",
               "anchors are not part of a cluster spec");
    if (tag != NULL)
        refuse(b, at, "spec.tag", "remove the '!' word", "tags are not part of a cluster spec");
}

const char *yaml_shape_text(const struct yaml_node *node)
{
    static const char *const texts[] = {"text", "a list", "a map"};
    return texts[node->shape];
}

struct yaml_node *yaml_get(const struct yaml_node *map, const char *key)
{
    if (map == NULL || map->shape != YAML_MAP)
        return NULL;
    for (struct yaml_node *n = map->first; n != NULL; n = n->next)
        if (strcmp(n->key, key) == 0)
            return n;
    return NULL;
}

/* Whether the next node is a map's key, which is no node of its own. */
static bool at_key(const struct builder *b)
{
    return b->depth > 0 && b->open[b->depth - 1]->shape == YAML_MAP && b->key == NULL;
}

static enum glm_status add_node(struct builder *b, struct yaml_node **out, enum yaml_shape shape,
                                struct src_span at)
{
    if (++b->n_nodes > GLM_YAML_MAX_NODES)
        return refuse(b, at, "spec.too-large", NULL, "more than 20000 values");
    struct yaml_node *n = ARENA_NEW(b->arena, struct yaml_node);
    if (n == NULL)
        return GLM_ENOMEM;
    *n = (struct yaml_node){.shape = shape, .at = at, .key = b->key, .key_at = b->key_at};
    b->key = NULL;
    if (b->depth == 0) {
        b->root = n;
    } else {
        *b->tail[b->depth - 1] = n;
        b->tail[b->depth - 1] = &n->next;
        b->open[b->depth - 1]->n_items++;
    }
    *out = n;
    return GLM_OK;
}

static enum glm_status take_key(struct builder *b, const yaml_event_t *e, struct src_span at)
{
    size_t len = e->data.scalar.length;
    const char *text = arena_strndup(b->arena, (const char *)e->data.scalar.value, len);
    if (text == NULL)
        return GLM_ENOMEM;
    if (strlen(text) != len)
        return refuse(b, at, "spec.encoding", NULL, "a key holds a NUL character");
    b->key = text;
    b->key_at = at;
    const struct yaml_node *other = yaml_get(b->open[b->depth - 1], text);
    if (other == NULL)
        return GLM_OK;
    diag_add(b->diags, DIAG_ERROR, at, "spec.duplicate-key", "remove one of the two",
             "key '%.100s' stands on line %u and again on line %u", text, other->key_at.line,
             at.line);
    return GLM_OK; /* goes on, to find independent errors; the first one stays in force */
}

static enum glm_status on_scalar(struct builder *b, const yaml_event_t *e)
{
    struct src_span at = span(b, e->start_mark, e->end_mark);
    refuse_properties(b, at, e->data.scalar.anchor, e->data.scalar.tag);
    if (at_key(b))
        return take_key(b, e, at);
    struct yaml_node *n;
    enum glm_status status = add_node(b, &n, YAML_TEXT, at);
    if (status != GLM_OK)
        return status;
    size_t len = e->data.scalar.length;
    n->text = arena_strndup(b->arena, (const char *)e->data.scalar.value, len);
    n->quoted = e->data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
    if (n->text == NULL)
        return GLM_ENOMEM;
    if (strlen(n->text) != len)
        return refuse(b, at, "spec.encoding", NULL, "a value holds a NUL character");
    return GLM_OK;
}

static enum glm_status on_start(struct builder *b, const yaml_event_t *e, enum yaml_shape shape,
                                const yaml_char_t *anchor, const yaml_char_t *tag)
{
    struct src_span at = span(b, e->start_mark, e->end_mark);
    refuse_properties(b, at, anchor, tag);
    if (at_key(b))
        return refuse(b, at, "spec.key-not-text", NULL,
                      "a key must be a word, not a list or a map");
    if (b->depth == GLM_YAML_MAX_DEPTH)
        return refuse(b, at, "spec.too-deep", NULL, "more than 16 levels of nesting");
    struct yaml_node *n;
    enum glm_status status = add_node(b, &n, shape, at);
    if (status != GLM_OK)
        return status;
    b->open[b->depth] = n;
    b->tail[b->depth++] = &n->first;
    return GLM_OK;
}

/* A flow list or map of one line spans it all; a block has no end worth marking. */
static void widen(struct yaml_node *n, const yaml_event_t *e)
{
    bool closed = e->end_mark.index > e->start_mark.index; /* its bracket; a block's end is empty */
    if (closed && e->end_mark.line + 1 == n->at.line && e->end_mark.column + 1 > n->at.col)
        n->at.len = (uint32_t)e->end_mark.column + 1 - n->at.col;
}

static enum glm_status on_event(struct builder *b, const yaml_event_t *e)
{
    struct src_span at = span(b, e->start_mark, e->end_mark);
    switch (e->type) {
    case YAML_DOCUMENT_START_EVENT:
        if (++b->n_documents > 1)
            return refuse(b, at, "spec.documents", "keep one file for each cluster",
                          "a second document starts here, but a spec is one document");
        if (e->data.document_start.tag_directives.start !=
            e->data.document_start.tag_directives.end)
            return refuse(b, at, "spec.tag", "remove the %TAG line",
                          "tags are not part of a cluster spec");
        return GLM_OK;
    case YAML_ALIAS_EVENT:
        return refuse(b, at, "spec.alias", "write the value out at each place",
                      "aliases are not part of a cluster spec");
    case YAML_SCALAR_EVENT:
        return on_scalar(b, e);
    case YAML_SEQUENCE_START_EVENT:
        return on_start(b, e, YAML_LIST, e->data.sequence_start.anchor, e->data.sequence_start.tag);
    case YAML_MAPPING_START_EVENT:
        return on_start(b, e, YAML_MAP, e->data.mapping_start.anchor, e->data.mapping_start.tag);
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT:
        b->depth--;
        widen(b->open[b->depth], e);
        return GLM_OK;
    case YAML_NO_EVENT:
    case YAML_STREAM_START_EVENT:
    case YAML_STREAM_END_EVENT:
    case YAML_DOCUMENT_END_EVENT:
        return GLM_OK;
    }
    return GLM_OK;
}

/* libyaml's words, with its place. */
static enum glm_status on_error(struct builder *b)
{
    const yaml_parser_t *p = &b->parser;
    struct src_span at = span(b, p->problem_mark, p->problem_mark);
    if (p->error == YAML_MEMORY_ERROR)
        return GLM_ENOMEM;
    const char *problem = p->problem != NULL ? p->problem : "it cannot be read";
    if (strstr(problem, "undefined tag handle") != NULL)
        return refuse(b, at, "spec.tag", "remove the '!' word",
                      "tags are not part of a cluster spec");
    bool tab = strstr(problem, "cannot start any token") != NULL;
    diag_add(
        b->diags, DIAG_ERROR, at, "spec.syntax",
        tab ? "indent with spaces, not tabs, and put quotes around text that starts with a sign"
            : NULL,
        "not valid YAML: %s%s%s", problem, p->context != NULL ? " " : "",
        p->context != NULL ? p->context : "");
    return GLM_ESPEC;
}

static enum glm_status run(struct builder *b)
{
    for (;;) {
        yaml_event_t e;
        if (!yaml_parser_parse(&b->parser, &e))
            return on_error(b);
        yaml_event_type_t type = e.type;
        enum glm_status status = on_event(b, &e);
        yaml_event_delete(&e);
        if (status != GLM_OK || type == YAML_STREAM_END_EVENT)
            return status;
    }
}

/* Bytes of the character at p, or 0 when it is not UTF-8 or a control character that YAML forbids.
 */
static size_t character_length(const unsigned char *p, size_t left)
{
    if (p[0] < 0x80)
        return p[0] >= 0x20 ? p[0] != 0x7F : p[0] == '\t' || p[0] == '\n' || p[0] == '\r';
    size_t n = p[0] >= 0xF0 ? 4 : p[0] >= 0xE0 ? 3 : 2;
    if (p[0] < 0xC2 || p[0] > 0xF4 || n > left)
        return 0;
    uint32_t value = p[0] & (0xFFu >> (n + 1));
    for (size_t i = 1; i < n; i++) {
        if ((p[i] & 0xC0) != 0x80)
            return 0;
        value = value << 6 | (p[i] & 0x3F);
    }
    static const uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
    bool surrogate = value >= 0xD800 && value < 0xE000;
    return value < smallest[n] || value > 0x10FFFF || surrogate ? 0 : n;
}

static enum glm_status check_bytes(const char *file, const char *text, size_t len,
                                   struct diag_list *diags)
{
    struct src_span at = {.file = file, .line = 1, .col = 1, .len = 1};
    if (len > GLM_YAML_MAX_BYTES) {
        diag_add(diags, DIAG_ERROR, at, "spec.too-large", NULL,
                 "the file has %zu bytes, a spec has at most %d", len, (int)GLM_YAML_MAX_BYTES);
        return GLM_ESPEC;
    }
    for (size_t i = 0; i < len;) {
        size_t n = character_length((const unsigned char *)text + i, len - i);
        if (n == 0) {
            diag_add(diags, DIAG_ERROR, at, "spec.encoding", "save the file as UTF-8 text",
                     "byte 0x%02X at offset %zu is not UTF-8 text", (unsigned char)text[i], i);
            return GLM_ESPEC;
        }
        at.col++;
        if (text[i] == '\n') {
            at.line++;
            at.col = 1;
        }
        i += n;
    }
    return GLM_OK;
}

enum glm_status yaml_read(const char *file, const char *text, size_t len, struct arena *arena,
                          struct diag_list *diags, struct yaml_node **out)
{
    enum glm_status status = check_bytes(file, text, len, diags);
    if (status != GLM_OK)
        return status;
    struct builder b = {.file = file, .arena = arena, .diags = diags};
    size_t errors = diags->n_errors;
    if (!yaml_parser_initialize(&b.parser))
        return GLM_ENOMEM;
    yaml_parser_set_encoding(&b.parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&b.parser, (const unsigned char *)text, len);
    status = run(&b);
    yaml_parser_delete(&b.parser);
    if (status == GLM_OK && b.root == NULL)
        status =
            refuse(&b, (struct src_span){.file = file, .line = 1, .col = 1, .len = 1}, "spec.empty",
                   "glmctl init writes one to start from", "the file holds no document");
    if (status != GLM_OK)
        return status;
    *out = b.root;
    return diags->n_errors > errors ? GLM_ESPEC : GLM_OK;
}
