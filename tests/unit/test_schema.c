/* SPDX-License-Identifier: Apache-2.0 */
/* The field table: every wrong value with its id and line, hints, defaults, explain, reference. */
#include "spec/cluster.h"
#include "spec/schema.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Line numbers below refer to this text. */
static const char good_spec[] = "apiVersion: glmctl/v1\n"                                   /* 1 */
                                "kind: Cluster\n"                                           /* 2 */
                                "name: test\n"                                              /* 3 */
                                "model: { checkpoint: synthetic:small8, served_name: m }\n" /* 4 */
                                "nodes:\n"                                                  /* 5 */
                                "  - { name: n0, memory: 2GiB, reserve: 0 }\n"              /* 6 */
                                "  - { name: n1, host: local, device: cpu }\n"              /* 7 */
                                "fabric: { transport: shm }\n"                              /* 8 */
                                "lanes:\n"                                                  /* 9 */
                                "  - name: a\n"                                             /* 10 */
                                "    ranks: [n0, n1]\n"                                     /* 11 */
                                "    streams: 4\n"                                          /* 12 */
                                "    window: 4096\n"                                        /* 13 */
                                "    formats: { dense: q4, kv: bf16 }\n"                    /* 14 */
                                "    thinking: false\n"                                     /* 15 */
                                "    limits: { max_body: 1.5MiB }\n";                       /* 16 */

struct fixture {
    struct arena arena;
    struct diag_list diags;
    struct glm_cluster *cluster;
    struct buf text;
};

static struct fixture f;

static void start(void)
{
    f = (struct fixture){0};
    arena_init(&f.arena, 64 << 20);
    diag_list_init(&f.diags, &f.arena);
}

static void stop(void)
{
    buf_release(&f.text);
    arena_release(&f.arena);
}

/* The good spec with one piece of text replaced. */
static enum glm_status parse_with(const char *piece, const char *replacement)
{
    const char *at = strstr(good_spec, piece);
    assert_non_null(at);
    buf_add(&f.text, good_spec, (size_t)(at - good_spec));
    buf_str(&f.text, replacement);
    buf_str(&f.text, at + strlen(piece));
    return glm_cluster_parse("folder/t.yaml", buf_text(&f.text), f.text.len, &f.arena, &f.diags,
                             &f.cluster);
}

static void a_good_spec_fills_every_field_and_default(void **state)
{
    (void)state;
    start();
    assert_int_equal(parse_with("name: test", "name: test"), GLM_OK);
    const struct glm_cluster *c = f.cluster;
    assert_int_equal(f.diags.n_items, 0);
    assert_string_equal(c->name, "test");
    assert_string_equal(c->served_name, "m");
    assert_int_equal(c->distribution, GLM_WEIGHTS_SHARED);
    assert_int_equal(c->n_nodes, 2);
    assert_true(c->nodes[0].memory_bytes == 2ull << 30);
    assert_true(c->nodes[1].memory_bytes == 0);
    assert_string_equal(c->nodes[0].host, "local");
    assert_string_equal(c->nodes[0].control, "127.0.0.1");
    assert_int_equal(c->nodes[0].device, GLM_DEVICE_CPU);
    assert_int_equal(c->nodes[0].threads, 0);
    assert_int_equal(c->nodes[1].at.line, 7);
    assert_int_equal(c->transport, GLM_TRANSPORT_SHM);
    assert_int_equal(c->topology, GLM_TOPOLOGY_LOOPBACK);
    const struct glm_lane *lane = &c->lanes[0];
    assert_true(lane->is_default);
    assert_int_equal(lane->n_ranks, 2);
    assert_int_equal(lane->ranks[1], 1);
    assert_string_equal(lane->listen_host, "127.0.0.1");
    assert_int_equal(lane->listen_port, 8888);
    assert_int_equal(lane->n_streams, 4);
    assert_int_equal(lane->window_tokens, 4096);
    assert_int_equal(lane->pool_tokens, 0);
    assert_int_equal(lane->prefill_rows, 512);
    assert_int_equal(lane->verify_rows, 1);
    assert_int_equal(lane->formats.experts, GLM_EXPERTS_EXL3);
    assert_int_equal(lane->formats.dense, GLM_FORM_Q4);
    assert_int_equal(lane->formats.head, GLM_FORM_BF16);
    assert_int_equal(lane->formats.kv, GLM_KV_BF16);
    assert_int_equal(lane->formats.act, GLM_ACT_F32);
    assert_false(lane->thinking);
    assert_false(lane->vision);
    assert_string_equal(lane->effort, "");
    assert_int_equal(lane->max_tokens, 4096);
    assert_true(lane->max_body_bytes == 3 * 512 * 1024);
    assert_string_equal(lane->api_key_file, "");
    assert_int_equal(lane->n_drafters, 0);
    stop();
}

struct bad {
    const char *piece, *replacement, *id;
    uint32_t line;
    const char *message, *hint; /* parts of; NULL: any */
};

static const struct bad bad[] = {
    {"apiVersion: glmctl/v1\n", "", "spec.missing-key", 1, "'apiVersion' is missing", NULL},
    {"glmctl/v1", "glmctl/v2", "spec.unknown-word", 1, "'apiVersion' is 'glmctl/v2'", "glmctl/v1"},
    {"kind: Cluster", "kind: cluster", "spec.unknown-word", 2, NULL, "did you mean 'Cluster'?"},
    {"kind: Cluster", "kind: 'Cluster'\nkinds: x", "spec.unknown-key", 3,
     "unknown key 'kinds' in the spec", "did you mean 'kind'?"},
    {"name: test", "name: a b", "spec.bad-name", 3, "'name' is 'a b'", NULL},
    {"name: test", "name: -x", "spec.bad-name", 3, NULL, NULL},
    {"name: test", "name:", "spec.no-value", 3, "'name' has no value", NULL},
    {"name: test", "name: ~", "spec.no-value", 3, NULL, NULL},
    {"name: test", "name: [test]", "spec.not-a-value", 3,
     "'name' must be a single value, found a list", NULL},
    {"name: test", "name: ''", "spec.bad-text", 3, NULL, NULL},
    {"name: test", "name: \"a\\nb\"", "spec.bad-text", 3, "line break", NULL},
    {"model: { checkpoint: synthetic:small8, served_name: m }", "model: x", "spec.not-a-map", 4,
     "'model' must be a map, found text", NULL},
    {"checkpoint: synthetic:small8, ", "", "spec.missing-key", 4,
     "'checkpoint' is missing in 'model'", NULL},
    {"checkpoint:", "chekpoint:", "spec.unknown-key", 4, NULL,
     "did you mean 'checkpoint'?"}, /* not also missing */
    {"nodes:\n  - {", "nodes:\n  x: {", "spec.syntax", 7, NULL, NULL},
    {"nodes:\n  - { name: n0, memory: 2GiB, reserve: 0 }\n  - { name: n1, host: local, device: cpu "
     "}\n",
     "nodes: none\n", "spec.not-a-list", 5, "'nodes' must be a list, found text", NULL},
    {"nodes:\n  - { name: n0, memory: 2GiB, reserve: 0 }\n  - { name: n1, host: local, device: cpu "
     "}\n",
     "nodes: []\n", "spec.list-length", 5, "'nodes' has 0 members, allowed: 1 to 8", NULL},
    {"- { name: n0, memory: 2GiB, reserve: 0 }", "- n0", "spec.not-a-map", 6,
     "a member of 'nodes' must be a map, found text", NULL},
    {"memory: 2GiB", "memory: lots", "spec.not-a-size", 6, "'memory' must be a size, found 'lots'",
     "2GiB"},
    {"memory: 2GiB", "memory: 2gib", "spec.not-a-size", 6, NULL, NULL},
    {"memory: 2GiB", "memory: -2GiB", "spec.not-a-size", 6, NULL, NULL},
    {"memory: 2GiB", "memory: 99999999999999999999", "spec.not-a-size", 6, NULL, NULL},
    {"memory: 2GiB", "memory: 999999TiB", "spec.out-of-range", 6, "allowed: 16MiB to 16TiB", NULL},
    {"memory: 2GiB", "memory: 1MiB", "spec.out-of-range", 6, NULL, NULL},
    {"transport: shm", "transport: smh", "spec.unknown-word", 8, "allowed: shm, tcp, roce, nccl",
     "did you mean 'shm'?"},
    {"transport: shm", "streams: 2", "spec.unknown-key", 8, "unknown key 'streams' in 'fabric'",
     "'streams' belongs to 'lanes[]'"},
    {"transport: shm", "cables: []", "spec.unknown-key", 8, "unknown key 'cables' in 'fabric'",
     "'cables' belongs at the top of the file"},
    {"transport: shm", "qqq: 2", "spec.unknown-key", 8, NULL, "known here: transport, topology"},
    {"  - name: a\n    ranks", "  - ranks", "spec.missing-key", 10, "'name' is missing", NULL},
    {"    ranks: [n0, n1]\n", "", "spec.missing-key", 10, "'ranks' is missing", NULL},
    {"ranks: [n0, n1]", "ranks: n0", "spec.not-a-list", 11, "'ranks' must be a list, found text",
     NULL},
    {"ranks: [n0, n1]", "ranks: []", "spec.list-length", 11, NULL, NULL},
    {"ranks: [n0, n1]", "ranks: [n0, [n1]]", "spec.not-a-value", 11,
     "a member of 'ranks' must be a single value", NULL},
    {"ranks: [n0, n1]", "ranks: {n0: 1}", "spec.not-a-list", 11, "found a map", NULL},
    {"streams: 4", "streams: four", "spec.not-an-integer", 12,
     "'streams' must be an integer, found 'four'", NULL},
    {"streams: 4", "streams: '4'", "spec.not-an-integer", 12, NULL, "remove the quotes"},
    {"streams: 4", "streams: 4.0", "spec.not-an-integer", 12, NULL, NULL},
    {"streams: 4", "streams: 0x4", "spec.not-an-integer", 12, NULL, NULL},
    {"streams: 4", "streams: 0", "spec.out-of-range", 12,
     "'streams' is 0, allowed: 1 to 16 requests", NULL},
    {"streams: 4", "streams: 17", "spec.out-of-range", 12, NULL, NULL},
    {"streams: 4", "stream: 4", "spec.unknown-key", 12, "in 'lanes[]'", "did you mean 'streams'?"},
    {"window: 4096", "window: 100", "spec.not-a-multiple", 13,
     "'window' is 100, not a multiple of 64", "64 or 128"},
    {"window: 4096", "window: 4096\n    window: 8192", "spec.duplicate-key", 14,
     "line 13 and again on line 14", NULL},
    {"formats: {", "formats: [", "spec.syntax", 14, NULL, NULL},
    {"dense: q4", "dense: q5", "spec.unknown-word", 14, "'dense' is 'q5', allowed: bf16, q4, fp8",
     NULL},
    {"dense: q4", "dens: q4", "spec.unknown-key", 14, "in 'lanes[].formats'",
     "did you mean 'dense'?"},
    {"thinking: false", "thinking: no", "spec.not-a-boolean", 15,
     "must be true or false, found 'no'", NULL},
    {"thinking: false", "thinking: 'true'", "spec.not-a-boolean", 15, NULL, "remove the quotes"},
    {"thinking: false", "thinking: {}", "spec.not-a-value", 15, NULL, NULL},
    {"max_body: 1.5MiB", "max_body: 2TiB", "spec.out-of-range", 16, "allowed: 1KiB to 1GiB", NULL},
    {"max_body: 1.5MiB", "max_body: &a 2MiB", "spec.anchor", 16, NULL, NULL},
    {"max_body: 1.5MiB", "<<: {}", "spec.unknown-key", 16, NULL, NULL},
};

static void each_wrong_value_is_refused_with_id_line_and_hint(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        const struct bad *b = &bad[i];
        start();
        enum glm_status status = parse_with(b->piece, b->replacement);
        const struct diag *d = &f.diags.items[0];
        bool good = status == GLM_ESPEC && f.diags.n_errors == 1 && strcmp(d->id, b->id) == 0 &&
                    d->at.line == b->line && f.cluster == NULL;
        good = good && (b->message == NULL || strstr(d->message, b->message) != NULL);
        good = good && (b->hint == NULL || (d->hint != NULL && strstr(d->hint, b->hint) != NULL));
        if (!good) {
            struct buf out = {0};
            diag_render_text(&f.diags, false, &out);
            fail_msg("case %zu (%s): status %d\n%s", i, b->replacement, (int)status,
                     buf_text(&out));
        }
        stop();
    }
}

static void the_whole_being_no_map_is_refused(void **state)
{
    (void)state;
    static const char *const texts[] = {"- a\n", "text\n", "[]\n"};
    for (size_t i = 0; i < 3; i++) {
        start();
        assert_int_equal(
            glm_cluster_parse("t", texts[i], strlen(texts[i]), &f.arena, &f.diags, &f.cluster),
            GLM_ESPEC);
        assert_string_equal(f.diags.items[0].id, "spec.not-a-map");
        stop();
    }
}

static void independent_errors_come_in_one_run_in_source_order(void **state)
{
    (void)state;
    static const char text[] = "apiVersion: glmctl/v1\n"
                               "kind: Cluster\n"
                               "nme: x\n"
                               "model: { checkpoint: synthetic:nothing }\n"
                               "nodes:\n"
                               "  - { name: n0, memory: 1MiB }\n"
                               "  - { name: n1, host: '-oProxy' }\n"
                               "lanes:\n"
                               "  - { name: a, ranks: [n0, n9], streams: 99 }\n"
                               "  - { name: b, ranks: [n1, n1], window: 65 }\n";
    static const struct {
        const char *id;
        uint32_t line;
    } wanted[] = {
        {"spec.unknown-key", 3},     {"spec.out-of-range", 6},   {"spec.host", 7},
        {"spec.unknown-node", 9},    {"spec.out-of-range", 9},   {"spec.node-twice", 10},
        {"spec.not-a-multiple", 10}, {"checkpoint.geometry", 0},
    };
    start();
    assert_int_equal(glm_cluster_parse("t", text, sizeof text - 1, &f.arena, &f.diags, &f.cluster),
                     GLM_ESPEC);
    size_t n = 0;
    for (size_t i = 0; i < f.diags.n_items; i++) {
        if (f.diags.items[i].level == DIAG_NOTE)
            continue;
        if (n < sizeof wanted / sizeof wanted[0]) {
            assert_string_equal(f.diags.items[i].id, wanted[n].id);
            assert_int_equal(f.diags.items[i].at.line, wanted[n].line);
        }
        n++;
    }
    assert_int_equal(n, sizeof wanted / sizeof wanted[0]);
    stop();
}

static void explain_finds_fields_by_path_section_and_last_key(void **state)
{
    (void)state;
    struct buf out = {0};
    struct glm_error err = {0};
    assert_int_equal(glm_schema_explain("lanes[].window", &out, &err), GLM_OK);
    assert_non_null(strstr(buf_text(&out), "lanes[].window\n"));
    assert_non_null(strstr(buf_text(&out), "integer, 64 to 1073741824 tokens, a multiple of 64"));
    assert_non_null(strstr(buf_text(&out), "default: the model's longest, at most 32768"));
    size_t len = out.len;
    buf_clear(&out);
    assert_int_equal(glm_schema_explain("lanes.window", &out, &err), GLM_OK);
    assert_int_equal(out.len, len);
    buf_clear(&out);
    assert_int_equal(glm_schema_explain("window", &out, &err), GLM_OK);
    assert_int_equal(out.len, len);
    buf_clear(&out);
    assert_int_equal(glm_schema_explain("lanes.formats", &out, &err), GLM_OK);
    assert_non_null(strstr(buf_text(&out), "lanes[].formats.kv\n"));
    assert_null(strstr(buf_text(&out), "lanes[].window\n"));
    buf_clear(&out);
    assert_int_equal(glm_schema_explain("", &out, &err), GLM_OK);
    assert_non_null(strstr(buf_text(&out), "apiVersion\n"));
    assert_non_null(strstr(buf_text(&out), "lanes[].api_key_file\n"));
    buf_clear(&out);
    assert_int_equal(glm_schema_explain("windw", &out, &err), GLM_ENOTFOUND);
    assert_string_equal(err.hint, "did you mean 'window'?");
    assert_string_equal(buf_text(&out), "");
    buf_release(&out);
}

static void the_checked_in_reference_page_is_the_generated_one(void **state)
{
    (void)state;
    struct buf made = {0};
    struct buf file = {0};
    glm_schema_reference(&made);
    assert_non_null(
        strstr(buf_text(&made), "| `lanes[].streams` | integer, 1 to 16 requests | 8 |"));
    if (getenv("GLM_GOLDEN") != NULL) /* rewrites it; review its diff as code */
        assert_int_equal(glm_file_write("docs/spec.md", made.data, made.len, 0644, NULL), GLM_OK);
    assert_int_equal(glm_file_read("docs/spec.md", 1 << 20, &file, NULL), GLM_OK);
    assert_string_equal(buf_text(&file), buf_text(&made));
    buf_release(&made);
    buf_release(&file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_good_spec_fills_every_field_and_default),
        cmocka_unit_test(each_wrong_value_is_refused_with_id_line_and_hint),
        cmocka_unit_test(the_whole_being_no_map_is_refused),
        cmocka_unit_test(independent_errors_come_in_one_run_in_source_order),
        cmocka_unit_test(explain_finds_fields_by_path_section_and_last_key),
        cmocka_unit_test(the_checked_in_reference_page_is_the_generated_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
