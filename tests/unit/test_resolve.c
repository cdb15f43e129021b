/* SPDX-License-Identifier: Apache-2.0 */
/* Rules between fields: nodes, cables, topology, lanes, formats and the checkpoint's folder. */
#include "spec/cluster.h"
#include "tests/support/pack.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

static struct fixture {
    struct arena arena;
    struct diag_list diags;
    struct glm_cluster *cluster;
    struct buf text;
} f;

static void start(void)
{
    f = (struct fixture){0};
    arena_init(&f.arena, 128 << 20);
    diag_list_init(&f.diags, &f.arena);
}

static void stop(void)
{
    buf_release(&f.text);
    arena_release(&f.arena);
}

/* Head: lines 1 to 4. */
static enum glm_status parse_body(const char *checkpoint, const char *body)
{
    buf_printf(&f.text,
               "apiVersion: glmctl/v1\nkind: Cluster\nname: t\nmodel: { checkpoint: %s }\n%s",
               checkpoint, body);
    return glm_cluster_parse("clusters/t.yaml", buf_text(&f.text), f.text.len, &f.arena, &f.diags,
                             &f.cluster);
}

static void fail_with_diags(const char *what)
{
    struct buf out = {0};
    diag_render_text(&f.diags, false, &out);
    fail_msg("%s\n%s", what, buf_text(&out));
}

#define TWO  "nodes:\n  - { name: n0 }\n  - { name: n1 }\n" /* lines 5 to 7 */
#define LANE "lanes:\n  - { name: a, ranks: [n0, n1] }\n"   /* two lines */
/* Sparks on hosts of their own: lines 5 to 9 */
#define SPARKS                                                                                     \
    "nodes:\n  - { name: s0, host: h0, device: gb10 }\n  - { name: s1, host: h1, device: gb10 }\n" \
    "  - { name: s2, host: h2, device: gb10 }\n  - { name: s3, host: h3, device: gb10 }\n"
#define CABLE(a, b) "  - { ends: [" a ", " b "] }\n"
#define RING                                                                      \
    "cables:\n" CABLE("s0:0", "s1:1") CABLE("s1:0", "s2:1") CABLE("s2:0", "s3:1") \
        CABLE("s3:0", "s0:1") /* lines 10 to 14 */

static const struct bad {
    const char *body, *id;
    uint32_t line;
    const char *message, *hint;
    uint32_t note_line;
} bad[] = {
    {TWO "lanes:\n  - { name: a, ranks: [n0, m1] }\n", "spec.unknown-node", 9,
     "rank 1 names node 'm1', but 'nodes' lists n0, n1", "did you mean 'n1'?", 0},
    {TWO "lanes:\n  - { name: a, ranks: [n0, n0] }\n", "spec.node-twice", 9,
     "ranks 0 and 1 both name node 'n0'", NULL, 9},
    {TWO "lanes:\n  - { name: a, ranks: [n0, n1], tp: 3 }\n", "spec.tp", 9,
     "'tp' is 3, but 'ranks' has 2 members", NULL, 0},
    {"nodes:\n  - { name: n0 }\n  - { name: n0 }\n" LANE, "spec.name-twice", 7,
     "two nodes are called 'n0'", NULL, 6},
    {TWO "lanes:\n  - { name: a, ranks: [n0] }\n  - { name: a, ranks: [n1] }\n", "spec.name-twice",
     10, "two lanes are called 'a'", NULL, 9},
    {TWO "lanes:\n  - { name: a, ranks: [n0], default: true }\n  - { name: b, ranks: [n1], "
         "default: true }\n",
     "spec.default-twice", 10, "lane 'b' is a second default", NULL, 9},
    {"nodes:\n  - { name: switch }\n  - { name: n0 }\n  - { name: n1 }\n" LANE, "spec.bad-name", 6,
     NULL, NULL, 0},
    {"nodes:\n  - { name: n0, device: cuda }\n  - { name: n1 }\n" LANE, "spec.device", 6,
     "'device' is 'cuda', allowed: cpu, cuda:N, gb10", "cuda:0", 0},
    {"nodes:\n  - { name: n0, device: cuda:0x }\n  - { name: n1 }\n" LANE, "spec.device", 6, NULL,
     NULL, 0},
    {"nodes:\n  - { name: n0, host: '-oProxyCommand=x' }\nlanes:\n  - { name: a, ranks: [n0] }\n",
     "spec.host", 6, NULL, NULL, 0},
    {"nodes:\n  - { name: n0, host: 'a;b' }\nlanes:\n  - { name: a, ranks: [n0] }\n", "spec.host",
     6, "'a;b' is not an ssh target", NULL, 0},
    {"nodes:\n  - { name: n0, memory: 1GiB, reserve: 1GiB }\n  - { name: n1 }\n" LANE,
     "spec.reserve", 6, "reserves 1024 MiB of 1024 MiB", NULL, 0},
    {TWO "lanes:\n  - { name: a, ranks: [n0], listen: '8881' }\n", "spec.listen", 9, NULL,
     "127.0.0.1:PORT", 0},
    {TWO "lanes:\n  - { name: a, ranks: [n0], listen: '127.0.0.1:70000' }\n", "spec.listen", 9,
     NULL, NULL, 0},
    {TWO "lanes:\n  - { name: a, ranks: [n0], listen: 'h:' }\n", "spec.listen", 9, NULL, NULL, 0},
    {TWO "lanes:\n  - { name: a, ranks: [n0], listen: '::1:80' }\n", "spec.listen", 9, NULL, NULL,
     0},
    {TWO "lanes:\n  - { name: a, ranks: [n0], window: 8256 }\n", "spec.window", 9,
     "'window' is 8256 tokens, the model's longest is 8192", NULL, 0},
    {TWO "lanes:\n  - { name: a, ranks: [n0], window: 128, prefill: 192 }\n", "spec.prefill", 9,
     NULL, NULL, 0},
    {TWO "lanes:\n  - { name: a, ranks: [n0], window: 4096, pool: 2048 }\n", "spec.pool", 9, NULL,
     NULL, 0},
    {TWO "lanes:\n  - { name: a, ranks: [n0], drafters: [mtp, copi] }\n", "spec.unknown-drafter", 9,
     "'copi' is no drafter", "did you mean 'copy'?", 0},
    {TWO "lanes:\n  - { name: a, ranks: [n0], drafters: [mtp, mtp] }\n", "spec.drafter-twice", 9,
     NULL, NULL, 0},
    {TWO "lanes:\n  - { name: a, ranks: [n0], vision: true }\n", "spec.no-vision", 9, NULL, NULL,
     0},
    {SPARKS RING "lanes:\n  - { name: a, ranks: [s0, s1, s2, s3], formats: { act: f32 } }\n",
     "spec.format-device", 16, "act 'f32' works on cpu, but node 's3' is a gb10", "use bf16", 0},
    {SPARKS RING "lanes:\n  - { name: a, ranks: [s0, s1], formats: { kv: fp32 } }\n",
     "spec.format-device", 16, NULL, "use bf16 or fp8", 0},
    {SPARKS RING "lanes:\n  - { name: a, ranks: [s0, s2, s1, s3] }\n", "spec.ring-order", 16,
     "rank order must follow the cables", "ranks: [s0, s1, s2, s3]", 0},
    {SPARKS RING "lanes:\n  - { name: a, ranks: [s2, s0, s3, s1] }\n", "spec.ring-order", 16, NULL,
     "ranks: [s2, s3, s0, s1]", 0},
    {SPARKS RING "fabric: { topology: switch }\nlanes:\n  - { name: a, ranks: [s0, s1, s2, s3] }\n",
     "spec.topology", 15, "'topology' says switch, but the nodes and cables make ring", NULL, 0},
    {SPARKS RING
     "lanes:\n  - { name: a, ranks: [s0, s1, s2, s3] }\n  - { name: b, ranks: [s0, s2] }\n",
     "spec.missing-cable", 17, "lane 'b': ranks 0 ('s0') and 1 ('s2') share no cable", NULL, 0},
    {SPARKS "cables:\n" CABLE("s0:0", "s1:1")
         CABLE("s1:0", "s2:1") "lanes:\n  - { name: a, ranks: [s0, s1, s2] }\n",
     "spec.missing-cable", 10, "nodes 's0' and 's2' share no cable", "one for each pair", 0},
    {SPARKS "cables:\n" CABLE("s0:0", "s0:1") "lanes:\n  - { name: a, ranks: [s0] }\n",
     "spec.cable-to-itself", 11, "joins node 's0' to itself", NULL, 0},
    {SPARKS "cables:\n" CABLE("s0:0", "s1:0")
         CABLE("s0:0", "s1:1") "lanes:\n  - { name: a, ranks: [s0, s1] }\n",
     "spec.port-twice", 12, "port 's0:0' already has the cable of line 11", NULL, 11},
    {SPARKS "cables:\n" CABLE("s0:2", "s1:0") "lanes:\n  - { name: a, ranks: [s0, s1] }\n",
     "spec.cable-port", 11, "a gb10 has ports 0 to 1", NULL, 0},
    {SPARKS "cables:\n" CABLE("s0", "s1:0") "lanes:\n  - { name: a, ranks: [s0, s1] }\n",
     "spec.cable-end", 11, "a cable's end is NODE:PORT, found 's0'", NULL, 0},
    {SPARKS "cables:\n" CABLE("switch", "s1:0") "lanes:\n  - { name: a, ranks: [s0, s1] }\n",
     "spec.cable-end", 11, NULL, NULL, 0},
    {SPARKS "cables:\n" CABLE("s0:0", "s9:0") "lanes:\n  - { name: a, ranks: [s0, s1] }\n",
     "spec.unknown-node", 11, "the cable names node 's9'", NULL, 0},
    {SPARKS "cables:\n  - { ends: [s0:0, s1:0], addresses: [10.0.1.1, 10.0.2.2] }\nlanes:\n  - { "
            "name: a, ranks: [s0, "
            "s1] }\n",
     "spec.cable-subnet", 11, "must share a network", NULL, 0},
    {SPARKS "cables:\n  - { ends: [s0:0, s1:0], addresses: [10.0.1.1, 10.0.1.1] }\nlanes:\n  - { "
            "name: a, ranks: [s0, "
            "s1] }\n",
     "spec.address-twice", 11, "'10.0.1.1' is used twice", NULL, 11},
    {SPARKS "cables:\n  - { ends: [s0:0, s1:0], addresses: [10.0.1.1, 10.0.1.2] }\n  - { ends: "
            "[s0:1, s1:1], "
            "addresses: [10.0.1.3, 10.0.1.4] }\nlanes:\n  - { name: a, ranks: [s0, s1] }\n",
     "spec.subnet-twice", 12, "'10.0.1.3' is in the network of another cable", NULL, 11},
    {SPARKS "cables:\n  - { ends: [s0:0, s1:0], addresses: [10.0.1.1, x] }\nlanes:\n  - { name: a, "
            "ranks: [s0, s1] }\n",
     "spec.cable-address", 11, "'x' is not an IPv4 address", NULL, 0},
    {SPARKS "cables:\n  - { ends: [s0:0, s1:0], addresses: [10.0.1.1] }\nlanes:\n  - { name: a, "
            "ranks: [s0, s1] }\n",
     "spec.cable-address", 11, "1 addresses, its node ends need 2", NULL, 0},
    {SPARKS "cables:\n  - { ends: [s0:0, switch] }\nlanes:\n  - { name: a, ranks: [s0, s1] }\n",
     "spec.missing-cable", 10, "node 's1' has no cable to the switch", NULL, 0},
    {SPARKS "lanes:\n  - { name: a, ranks: [s0, s1] }\n", "spec.no-cables", 1, "transport 'roce'",
     "topology: switch", 0},
    {SPARKS
     "fabric: { transport: shm, topology: switch }\nlanes:\n  - { name: a, ranks: [s0, s1] }\n",
     "spec.transport", 10, "lane 'a' spans 'h0' and 'h1'", "use roce or tcp", 0},
    {TWO "fabric: { transport: nccl }\n" LANE, "spec.transport", 8,
     "node 'n0' of lane 'a' is a cpu", NULL, 0},
    {"nodes:\n  - { name: g0, device: cuda:0 }\n  - { name: g1, device: cuda:1 }\n"
     "  - { name: g2, device: cuda:1 }\nfabric: { transport: nccl }\n"
     "lanes:\n  - { name: a, ranks: [g0, g1, g2] }\n",
     "spec.transport", 9, "nodes 'g1' and 'g2' of lane 'a' share cuda:1 of host 'local'",
     "give each rank a GPU of its own, or use shm", 0},
    {TWO "fabric: { transport: roce }\n" LANE, "spec.transport", 8, "share host 'local'", "use shm",
     0},
    {TWO "fabric: { topology: ring }\n" LANE, "spec.topology", 8, "make loopback", NULL, 0},
    {"nodes:\n  - { name: n0 }\n  - { name: n1, host: other }\n" LANE, "spec.control", 6,
     "which need its address", "add 'control: ADDRESS'", 0},
};

static void each_rule_between_fields_is_kept(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        const struct bad *b = &bad[i];
        start();
        enum glm_status status = parse_body("synthetic:small8", b->body);
        const struct diag *d = &f.diags.items[0];
        bool good = status == GLM_ESPEC && f.diags.n_errors == 1 && strcmp(d->id, b->id) == 0 &&
                    d->at.line == b->line;
        good = good && (b->message == NULL || strstr(d->message, b->message) != NULL);
        good = good && (b->hint == NULL || (d->hint != NULL && strstr(d->hint, b->hint) != NULL));
        good = good && (b->note_line == 0) == (f.diags.n_items == 1);
        good = good && (b->note_line == 0 || f.diags.items[1].at.line == b->note_line);
        if (!good) {
            char what[40];
            snprintf(what, sizeof what, "case %zu", i);
            fail_with_diags(what);
        }
        stop();
    }
}

static const struct {
    const char *body;
    enum glm_transport transport;
    enum glm_topology topology;
} good[] = {
    {TWO LANE, GLM_TRANSPORT_SHM, GLM_TOPOLOGY_LOOPBACK},
    {TWO "fabric: { transport: tcp, topology: loopback }\n" LANE, GLM_TRANSPORT_TCP,
     GLM_TOPOLOGY_LOOPBACK},
    {SPARKS "cables:\n" CABLE("s0:0", "s1:0") "lanes:\n  - { name: a, ranks: [s0, s1] }\n",
     GLM_TRANSPORT_ROCE, GLM_TOPOLOGY_DIRECT},
    {SPARKS "cables:\n" CABLE("s0:0", "s1:0")
         CABLE("s0:1", "s1:1") "lanes:\n  - { name: a, ranks: [s1, s0] }\n",
     GLM_TRANSPORT_ROCE, GLM_TOPOLOGY_DIRECT},
    {SPARKS "cables:\n" CABLE("s0:0", "s1:1") CABLE("s1:0", "s2:1")
         CABLE("s2:0", "s0:1") "fabric: { transport: nccl }\nlanes:\n  - { name: a, ranks: [s2, "
                               "s0, s1] }\n  - { name: b, ranks: [s2, s1] }\n",
     GLM_TRANSPORT_NCCL, GLM_TOPOLOGY_TRIANGLE},
    {SPARKS RING "lanes:\n  - { name: a, ranks: [s1, s2, s3, s0] }\n", GLM_TRANSPORT_ROCE,
     GLM_TOPOLOGY_RING},
    {SPARKS RING "lanes:\n  - { name: a, ranks: [s0, s3, s2, s1] }\n", GLM_TRANSPORT_ROCE,
     GLM_TOPOLOGY_RING},
    {SPARKS "fabric: { topology: switch }\nlanes:\n  - { name: a, ranks: [s3, s1, s2, s0] }\n",
     GLM_TRANSPORT_ROCE, GLM_TOPOLOGY_SWITCH},
    {SPARKS "fabric: { transport: tcp }\nlanes:\n  - { name: a, ranks: [s3, s1, s2, s0] }\n",
     GLM_TRANSPORT_TCP, GLM_TOPOLOGY_SWITCH},
    {SPARKS "cables:\n  - { ends: [s0:0, switch], addresses: [10.0.1.1] }\n  - { ends: [s1:0, "
            "switch], addresses: "
            "[10.0.1.2/24] }\nlanes:\n  - { name: a, ranks: [s0, s1] }\n",
     GLM_TRANSPORT_ROCE, GLM_TOPOLOGY_SWITCH},
    {"nodes:\n  - { name: n0, host: u@a }\n  - { name: n1, host: u@b }\nlanes:\n  - { name: a, "
     "ranks: [n0, n1] }\n",
     GLM_TRANSPORT_TCP, GLM_TOPOLOGY_SWITCH},
};

static void topology_and_transport_follow_from_nodes_and_cables(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        start();
        if (parse_body("synthetic:small8", good[i].body) != GLM_OK)
            fail_with_diags(good[i].body);
        assert_int_equal(f.cluster->transport, good[i].transport);
        assert_int_equal(f.cluster->topology, good[i].topology);
        stop();
    }
}

static void defaults_follow_device_model_and_drafters(void **state)
{
    (void)state;
    start();
    assert_int_equal(
        parse_body("synthetic:small8",
                   SPARKS RING "lanes:\n  - { name: a, ranks: [s0, s1], drafters: [copy, ./d/x] }\n"
                               "  - { name: b, ranks: [s2], effort: low, api_key_file: keys }\n"),
        GLM_OK);
    const struct glm_lane *a = &f.cluster->lanes[0];
    assert_int_equal(a->formats.kv, GLM_KV_BF16);
    assert_int_equal(a->formats.act, GLM_ACT_BF16);
    assert_int_equal(a->window_tokens, 8192); /* small8's longest */
    assert_int_equal(a->max_tokens, 8192);
    assert_int_equal(a->verify_rows, 16);
    assert_string_equal(a->drafters[1], "clusters/d/x");
    assert_false(a->is_default);
    assert_string_equal(f.cluster->lanes[1].effort, "low");
    assert_string_equal(f.cluster->lanes[1].api_key_file, "clusters/keys");
    assert_true(f.cluster->nodes[0].reserve_bytes == 14ull << 30);
    assert_string_equal(f.cluster->nodes[0].control, "h0");
    assert_string_equal(f.cluster->served_name, "small8");
    stop();
    start();
    assert_int_equal(parse_body("synthetic:glm-5.3-flash",
                                TWO "lanes:\n  - { name: a, ranks: [n0], prefill: 64, "
                                    "limits: { max_tokens: 100 } }\n"),
                     GLM_OK);
    assert_int_equal(f.cluster->lanes[0].window_tokens, 32768);
    assert_int_equal(f.cluster->lanes[0].max_tokens, 100);
    assert_int_equal(f.cluster->lanes[0].prefill_rows, 64);
    assert_int_equal(f.cluster->lanes[0].formats.kv, GLM_KV_FP32);
    stop();
}

static void experts_are_served_as_stored_or_decoded(void **state)
{
    (void)state;
    static const char lane[] =
        TWO "lanes:\n  - { name: a, ranks: [n0], formats: { experts: bf16 } }\n";
    start();
    assert_int_equal(parse_body("synthetic:small8", lane), GLM_OK);
    assert_int_equal(f.cluster->lanes[0].formats.experts, GLM_EXPERTS_BF16);
    stop();
    start();
    assert_int_equal(
        parse_body("synthetic:small8-bf16",
                   TWO "lanes:\n  - { name: a, ranks: [n0], formats: { experts: exl3 } }\n"),
        GLM_ESPEC);
    assert_string_equal(f.diags.items[0].id, "spec.experts");
    assert_non_null(strstr(f.diags.items[0].message,
                           "'experts' is exl3, but the checkpoint stores them as bf16"));
    stop();
}

static void lanes_are_found_by_name_or_default(void **state)
{
    (void)state;
    struct glm_error err = {0};
    uint32_t lane = 9;
    start();
    assert_int_equal(parse_body("synthetic:small8", TWO "lanes:\n  - { name: a, ranks: [n0] }\n"
                                                        "  - { name: b, ranks: [n1] }\n"),
                     GLM_OK);
    assert_int_equal(glm_cluster_lane(f.cluster, "b", &lane, &err), GLM_OK);
    assert_int_equal(lane, 1);
    assert_int_equal(glm_cluster_lane(f.cluster, "c", &lane, &err), GLM_ENOTFOUND);
    assert_non_null(strstr(err.message, "no lane 'c' in 'clusters/t.yaml': it has a, b"));
    err = (struct glm_error){0};
    assert_int_equal(glm_cluster_lane(f.cluster, NULL, &lane, &err), GLM_ENOTFOUND);
    assert_non_null(strstr(err.hint, "--lane"));
    f.cluster->lanes[1].is_default = true;
    assert_int_equal(glm_cluster_lane(f.cluster, NULL, &lane, &err), GLM_OK);
    assert_int_equal(lane, 1);
    stop();
}

static void memory_of_nodes_that_share_a_host_is_summed(void **state)
{
    (void)state;
    start();
    assert_int_equal(parse_body("synthetic:small8",
                                "nodes:\n"
                                "  - { name: n0, memory: 2GiB }\n"
                                "  - { name: n1, memory: 3GiB }\n"
                                "  - { name: g0, device: cuda:0, memory: 8GiB }\n"
                                "  - { name: g1, device: cuda:1, memory: 9GiB }\n"
                                "  - { name: r0, host: h, memory: 5GiB }\n"
                                "  - { name: r1, host: h }\n"
                                "lanes:\n  - { name: a, ranks: [n1] }\n"),
                     GLM_OK);
    const struct glm_cluster *c = f.cluster;
    assert_true(glm_cluster_host_bytes(c, NULL, 0) == 5ull << 30);
    assert_true(glm_cluster_host_bytes(c, NULL, 2) == 8ull << 30);
    assert_true(glm_cluster_host_bytes(c, NULL, 4) == 0); /* r1 declares none */
    assert_true(glm_cluster_host_bytes(c, &c->lanes[0], 0) == 3ull << 30);
    stop();
}

static void every_checked_in_cluster_resolves(void **state)
{
    (void)state;
    static const struct {
        const char *path;
        enum glm_topology topology;
        bool absent;
        uint32_t n_ranks; /* of the default lane */
    } files[] = {
        {"clusters/demo/demo.yaml", GLM_TOPOLOGY_LOOPBACK, false, 1},
        {"clusters/tp2-direct.yaml", GLM_TOPOLOGY_DIRECT, true, 2},
        {"clusters/tp3-triangle.yaml", GLM_TOPOLOGY_TRIANGLE, true, 3},
        {"clusters/tp4-switch.yaml", GLM_TOPOLOGY_SWITCH, true, 4},
        {"clusters/tp4-ring.yaml", GLM_TOPOLOGY_RING, true, 4},
    };
    setenv("HF_HUB_CACHE", "/nonexistent", 1);
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        uint32_t lane;
        start();
        if (glm_cluster_load(files[i].path, &f.arena, &f.diags, &f.cluster) != GLM_OK)
            fail_with_diags(files[i].path);
        assert_int_equal(f.cluster->topology, files[i].topology);
        assert_int_equal(f.cluster->checkpoint_absent, files[i].absent);
        assert_int_equal(f.diags.n_items, files[i].absent);
        if (files[i].absent)
            assert_string_equal(f.diags.items[0].id, "checkpoint.absent");
        assert_int_equal(glm_cluster_lane(f.cluster, NULL, &lane, NULL), GLM_OK);
        assert_int_equal(f.cluster->lanes[lane].n_ranks, files[i].n_ranks);
        assert_int_equal(strlen(f.cluster->spec_digest), 64);
        stop();
    }
}

static void a_hub_id_is_looked_up_in_the_cache_snapshots(void **state)
{
    (void)state;
    char cache[256];
    char path[512];
    char command[1200];
    pack_folder(cache, sizeof cache);
    setenv("HF_HUB_CACHE", cache, 1);
    start();
    assert_int_equal(parse_body("some/Other-model", TWO LANE), GLM_ESPEC);
    assert_string_equal(f.diags.items[0].id, "checkpoint.absent");
    assert_int_equal(f.diags.items[0].level, DIAG_ERROR);
    stop();

    snprintf(path, sizeof path, "%s/models--some--Other-model/snapshots", cache);
    assert_int_equal(glm_make_folders(path, NULL), GLM_OK);
    snprintf(path, sizeof path, "%s/models--some--Other-model/refs", cache);
    assert_int_equal(glm_make_folders(path, NULL), GLM_OK);
    pack_write_text(path, "main", "0123abcd\n");
    snprintf(command, sizeof command,
             "ln -s \"$PWD/clusters/demo/exl3\" '%s/models--some--Other-model/snapshots/0123abcd'",
             cache);
    assert_int_equal(system(command), 0);
    start();
    if (parse_body("some/Other-model", TWO LANE) != GLM_OK)
        fail_with_diags("hub");
    snprintf(path, sizeof path, "%s/models--some--Other-model/snapshots/0123abcd", cache);
    assert_string_equal(f.cluster->checkpoint_path, path);
    assert_string_equal(f.cluster->served_name, "Other-model");
    assert_false(f.cluster->checkpoint_absent);
    stop();
    snprintf(command, sizeof command, "rm -r '%s'", cache);
    assert_int_equal(system(command), 0);
}

static void a_relative_checkpoint_lies_beside_the_spec(void **state)
{
    (void)state;
    start();
    assert_int_equal(parse_body("./demo/exl3", TWO LANE), GLM_OK);
    assert_string_equal(f.cluster->checkpoint_path, "clusters/demo/exl3");
    assert_int_equal(f.cluster->checkpoint->kind, GLM_CHECKPOINT_FILES);
    stop();
    start();
    assert_int_equal(parse_body("synthetic:demo/exl3", TWO LANE), GLM_OK);
    assert_int_equal(f.cluster->checkpoint->kind, GLM_CHECKPOINT_SYNTHETIC);
    stop();
    start();
    assert_int_equal(parse_body("./nowhere", TWO LANE), GLM_ECHECKPOINT);
    assert_string_equal(f.diags.items[0].id, "checkpoint.config");
    assert_int_equal(f.diags.items[1].level, DIAG_NOTE);
    assert_int_equal(f.diags.items[1].at.line, 4);
    stop();
}

static void an_unreadable_spec_says_so(void **state)
{
    (void)state;
    start();
    assert_int_equal(glm_cluster_load("clusters/none.yaml", &f.arena, &f.diags, &f.cluster),
                     GLM_ESPEC);
    assert_string_equal(f.diags.items[0].id, "spec.file");
    assert_non_null(strstr(f.diags.items[0].message, "cannot open 'clusters/none.yaml'"));
    stop();
}

/* Every allocation fails once: the answer is GLM_ENOMEM, or an error that was found before. */
static void too_little_memory_is_an_answer_and_no_crash(void **state)
{
    (void)state;
    struct buf text = {0};
    size_t limit = 0;
    enum glm_status status = GLM_ENOMEM;
    assert_int_equal(glm_file_read("clusters/demo/demo.yaml", 1 << 20, &text, NULL), GLM_OK);
    buf_str(&text, "    api_key_file: keys\n    drafters: [./d/x]\n");
    for (; limit < (1 << 20) && status != GLM_OK; limit += limit < 40000 ? 16 : 1000) {
        f = (struct fixture){0};
        arena_init(&f.arena, limit);
        diag_list_init(&f.diags, &f.arena);
        status = glm_cluster_parse("clusters/demo/demo.yaml", text.data, text.len, &f.arena,
                                   &f.diags, &f.cluster);
        if (status != GLM_OK && status != GLM_ENOMEM)
            fail_with_diags("out of memory");
        assert_true((status == GLM_OK) == (f.cluster != NULL));
        stop();
    }
    assert_int_equal(status, GLM_OK);
    assert_true(limit > 100000);
    buf_release(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_rule_between_fields_is_kept),
        cmocka_unit_test(topology_and_transport_follow_from_nodes_and_cables),
        cmocka_unit_test(defaults_follow_device_model_and_drafters),
        cmocka_unit_test(experts_are_served_as_stored_or_decoded),
        cmocka_unit_test(lanes_are_found_by_name_or_default),
        cmocka_unit_test(memory_of_nodes_that_share_a_host_is_summed),
        cmocka_unit_test(every_checked_in_cluster_resolves),
        cmocka_unit_test(a_hub_id_is_looked_up_in_the_cache_snapshots),
        cmocka_unit_test(a_relative_checkpoint_lies_beside_the_spec),
        cmocka_unit_test(an_unreadable_spec_says_so),
        cmocka_unit_test(too_little_memory_is_an_answer_and_no_crash),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
