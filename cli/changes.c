/* SPDX-License-Identifier: Apache-2.0 */
/* Compares a compiled lane with the launch document in its state folder. Differences are shown as
 * the fields of the spec that were edited, where that explains them; what checkpoint, program or
 * machine changed is added. Restarting is apply.c's. */
#include "cli/changes.h"

#include "cli/lane.h"
#include "spec/yaml.h"

#include <string.h>

/* ---- fields of two specs ---- */

struct spec_diff {
    struct arena *arena;
    const char *lane;                        /* other lanes do not matter */
    const struct glm_launch_file *old, *new; /* nor do nodes that no rank is on */
    struct launch_differences *out;
};

static const char absent[] = "(default)";

static void write_flow(const struct yaml_node *n, struct buf *out)
{
    const char *ends = n->shape == YAML_LIST ? "[]" : "{}";
    if (n->shape == YAML_TEXT) {
        buf_str(out, n->text);
        return;
    }
    buf_char(out, ends[0]);
    for (const struct yaml_node *m = n->first; m != NULL; m = m->next) {
        if (m->key != NULL)
            buf_printf(out, "%s: ", m->key);
        write_flow(m, out);
        if (m->next != NULL)
            buf_str(out, ", ");
    }
    buf_char(out, ends[1]);
}

static const char *flow(const struct spec_diff *d, const struct yaml_node *n)
{
    struct buf text = {0};
    if (n == NULL)
        return absent;
    write_flow(n, &text);
    const char *copy = arena_strdup(d->arena, buf_text(&text));
    buf_release(&text);
    return copy;
}

static const char *name_of(const struct yaml_node *n)
{
    const struct yaml_node *name = n->shape == YAML_MAP ? yaml_get(n, "name") : NULL;
    return name != NULL && name->shape == YAML_TEXT ? name->text : NULL;
}

static bool on_node(const struct glm_launch_file *l, const char *name)
{
    for (uint32_t r = 0; r < l->n_ranks; r++)
        if (strcmp(l->ranks[r].node, name) == 0)
            return true;
    return false;
}

static bool matters(const struct spec_diff *d, const char *path, const char *name)
{
    if (strcmp(path, "lanes") == 0)
        return strcmp(name, d->lane) == 0;
    if (strcmp(path, "nodes") == 0)
        return on_node(d->old, name) || on_node(d->new, name);
    return true;
}

static const struct yaml_node *named(const struct yaml_node *list, const char *name)
{
    for (const struct yaml_node *m = list->first; m != NULL; m = m->next) {
        const char *own = name_of(m);
        if (own != NULL && strcmp(own, name) == 0)
            return m;
    }
    return NULL;
}

static void diff(struct spec_diff *d, const char *path, const struct yaml_node *a,
                 const struct yaml_node *b);

static void diff_map(struct spec_diff *d, const char *path, const struct yaml_node *a,
                     const struct yaml_node *b)
{
    const char *dot = *path == '\0' ? "" : ".";
    for (const struct yaml_node *m = a->first; m != NULL; m = m->next)
        diff(d, arena_printf(d->arena, "%s%s%s", path, dot, m->key), m, yaml_get(b, m->key));
    for (const struct yaml_node *m = b->first; m != NULL; m = m->next)
        if (yaml_get(a, m->key) == NULL)
            diff(d, arena_printf(d->arena, "%s%s%s", path, dot, m->key), NULL, m);
}

/* Members with names (nodes, lanes) are paired by them. */
static void diff_named(struct spec_diff *d, const char *path, const struct yaml_node *a,
                       const struct yaml_node *b)
{
    for (const struct yaml_node *m = a->first; m != NULL; m = m->next) {
        const char *name = name_of(m);
        if (name != NULL && matters(d, path, name))
            diff(d, arena_printf(d->arena, "%s[%s]", path, name), m, named(b, name));
    }
    for (const struct yaml_node *m = b->first; m != NULL; m = m->next) {
        const char *name = name_of(m);
        if (name != NULL && matters(d, path, name) && named(a, name) == NULL)
            diff(d, arena_printf(d->arena, "%s[%s]", path, name), NULL, m);
    }
}

static void diff(struct spec_diff *d, const char *path, const struct yaml_node *a,
                 const struct yaml_node *b)
{
    if (path == NULL)
        return;
    const bool both = a != NULL && b != NULL && a->shape == b->shape;
    if (both && a->shape == YAML_MAP) {
        diff_map(d, path, a, b);
        return;
    }
    if (both && a->shape == YAML_LIST && a->first != NULL && name_of(a->first) != NULL) {
        diff_named(d, path, a, b);
        return;
    }
    const char *from = flow(d, a), *to = flow(d, b);
    if (from != NULL && to != NULL && strcmp(from, to) != 0)
        launch_difference_add(d->out, path, from, to, true);
}

static const struct yaml_node *read_tree(struct arena *arena, const char *text)
{
    struct diag_list ignored;
    struct yaml_node *root = NULL;
    diag_list_init(&ignored, arena);
    if (yaml_read("spec", text, strlen(text), arena, &ignored, &root) != GLM_OK)
        return NULL;
    return root;
}

/* ---- what differs ---- */

/* The spec's edited fields explain what the documents differ in; the rest is told as it is. */
static void explain(struct compiled *c, const struct glm_launch_file *old,
                    const struct glm_launch_file *new, struct launch_differences *out)
{
    struct launch_differences raw = {0};
    launch_compare(old, new, &c->arena, &raw);
    if (raw.n == 0)
        return;
    const struct yaml_node *a = read_tree(&c->arena, old->spec_text);
    const struct yaml_node *b = read_tree(&c->arena, new->spec_text);
    struct spec_diff d = {&c->arena, new->lane, old, new, out};
    if (a != NULL && b != NULL)
        diff(&d, "", a, b);
    const bool explained = out->n > 0;
    for (uint32_t i = 0; i < raw.n; i++)
        if (!explained || !raw.items[i].of_spec)
            launch_difference_add(out, raw.items[i].what, raw.items[i].from, raw.items[i].to,
                                  raw.items[i].of_spec);
}

static enum glm_status presence(const char *folder, bool ask, struct changes *out, bool *running,
                                struct glm_error *err)
{
    struct lane_status s = {0};
    enum glm_status status = GLM_OK;
    if (ask)
        status = lane_status_read(folder, &s, err);
    else
        lane_status_guess(folder, &s);
    *running = s.running;
    snprintf(out->state, sizeof out->state, "%s", s.state);
    snprintf(out->error, sizeof out->error, "%s", s.error);
    return status;
}

enum glm_status changes_find(struct compiled *c, bool ask, struct changes *out,
                             struct glm_error *err)
{
    struct buf folder = {0};
    struct glm_launch_file *old = NULL;
    struct glm_launch_file new;
    struct glm_error ignored = {0};
    bool running = false;
    *out = (struct changes){.kind = CHANGE_START};
    enum glm_status status = lane_folder(c->cluster->name, compiled_lane(c)->name, &folder, err);
    if (status == GLM_OK)
        status = presence(buf_text(&folder), ask, out, &running, err);
    if (status == GLM_OK && running) {
        out->kind = CHANGE_RESTART;
        status = launch_make(c, &new, err);
        if (status == GLM_OK &&
            lane_launch_read(buf_text(&folder), &c->arena, &old, &ignored) != GLM_OK) {
            launch_difference_add(&out->list, "launch.json", "not readable", "written anew", false);
        } else if (status == GLM_OK) {
            explain(c, old, &new, &out->list);
            if (out->list.n == 0)
                out->kind = CHANGE_NONE;
        }
    }
    buf_release(&folder);
    return status;
}

/* ---- printing ---- */

void changes_text(const struct compiled *c, const struct changes *changes, struct buf *out)
{
    const struct glm_lane *lane = compiled_lane(c);
    switch (changes->kind) {
    case CHANGE_NONE:
        buf_printf(out, "changes   none: lane %s is %s with exactly this\n", lane->name,
                   changes->state);
        return;
    case CHANGE_START:
        buf_printf(out, "changes   + lane %s is %s: apply starts %u rank%s\n", lane->name,
                   strcmp(changes->state, "failed") == 0 ? "down" : "not running", lane->n_ranks,
                   lane->n_ranks == 1 ? "" : "s");
        if (changes->error[0] != '\0')
            buf_printf(out, "            %s\n", changes->error);
        return;
    case CHANGE_RESTART:
        buf_printf(out, "changes   ~ lane %s is %s with other settings: apply restarts it\n",
                   lane->name, changes->state);
        for (uint32_t i = 0; i < changes->list.n; i++) {
            const struct launch_difference *d = &changes->list.items[i];
            buf_printf(out, "            %s: %.70s -> %.70s\n", d->what, d->from, d->to);
        }
        return;
    }
}

void changes_json(const struct changes *changes, struct buf *out)
{
    static const char *const actions[] = {
        [CHANGE_NONE] = "none", [CHANGE_START] = "start", [CHANGE_RESTART] = "restart"};
    json_member(out, "{", "action", actions[changes->kind]);
    json_member(out, ", ", "state", changes->state);
    buf_str(out, ", \"differences\": [");
    for (uint32_t i = 0; i < changes->list.n; i++) {
        const struct launch_difference *d = &changes->list.items[i];
        json_member(out, i == 0 ? "{" : ", {", "what", d->what);
        json_member(out, ", ", "from", d->from);
        json_member(out, ", ", "to", d->to);
        buf_char(out, '}');
    }
    buf_str(out, "]}");
}
