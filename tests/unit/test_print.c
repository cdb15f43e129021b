/* SPDX-License-Identifier: Apache-2.0 */
/* Golden plans: what every lane of every file in clusters/ compiles to and prints. The default lane
 * of NAME.yaml is tests/golden/clusters/NAME, another lane NAME.LANE. GLM_GOLDEN=write rewrites
 * them (`make golden`); their diff is reviewed as code. */
#include "codegen/graph.h"
#include "tests/support/geometry.h"

#include <cjson/cJSON.h>
#include <glob.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

static void golden(const char *path, const struct buf *text)
{
    struct glm_error err = {0};
    struct buf want = {0};
    const char *mode = getenv("GLM_GOLDEN");
    if (mode && strcmp(mode, "write") == 0) {
        if (glm_file_write(path, text->data, text->len, 0644, &err) != GLM_OK)
            fail_msg("%s", err.message);
        return;
    }
    if (glm_file_read(path, (size_t)1 << 20, &want, &err) != GLM_OK)
        fail_msg("%s", err.message);
    if (strcmp(buf_text(&want), buf_text(text)) != 0) {
        size_t at = 0, line = 1;
        while (want.data[at] && want.data[at] == text->data[at])
            line += want.data[at++] == '\n';
        fail_msg("%s:%zu differs from what is made now; run make golden and review the diff", path,
                 line);
    }
    buf_release(&want);
}

static const char *target_of(const struct glm_cluster *c, uint32_t lane_i)
{
    return c->nodes[c->lanes[lane_i].ranks[0]].device == GLM_DEVICE_CPU ? "x86-64-v3" : "sm_121a";
}

static void check_columns(const char *path, const char *text)
{
    for (const char *line = text; *line; line = strchr(line, '\n') + 1) {
        size_t len = strcspn(line, "\n");
        if (len > 100)
            fail_msg("%s: a line of %zu columns: %.*s", path, len, (int)len, line);
        assert_int_equal(line[len], '\n');
    }
}

static void check_lane(const char *file, struct glm_cluster *c, uint32_t lane_i,
                       struct arena *arena, struct diag_list *diags)
{
    char folder[256], path[320];
    struct glm_error err = {0};
    struct glm_plan **plans;
    const struct glm_lane *lane = &c->lanes[lane_i];
    int len = (int)strcspn(strrchr(file, '/') + 1, ".");
    bool alone = lane->is_default || c->n_lanes == 1;
    snprintf(folder, sizeof folder, "tests/golden/clusters/%.*s%s%s", len, strrchr(file, '/') + 1,
             alone ? "" : ".", alone ? "" : lane->name);
    if (getenv("GLM_GOLDEN"))
        assert_int_equal(glm_make_folders(folder, &err), GLM_OK);
    clock_t start = clock();
    if (glm_plan_build(c, lane_i, target_of(c, lane_i), arena, diags, &plans, &err) != GLM_OK)
        fail_msg("%s lane %s: %s", file, lane->name, err.message);
    struct buf text = {0};
    if (glm_plan_print(c, lane_i, plans, false, &text, &err) != GLM_OK)
        fail_msg("%s: %s", file, err.message);
    double ms = (double)(clock() - start) * 1e3 / CLOCKS_PER_SEC;
    print_message("%s lane %s: %.1f ms\n", file, lane->name, ms);
    check_columns(file, buf_text(&text));
    snprintf(path, sizeof path, "%s/plan.txt", folder);
    golden(path, &text);
    for (uint32_t r = 0; r < lane->n_ranks; r++) {
        buf_clear(&text);
        assert_int_equal(glm_plan_write(plans[r], &text, &err), GLM_OK);
        assert_true(text.len <= 300 * 1024);
        snprintf(path, sizeof path, "%s/rank%u.plan.json", folder, r);
        golden(path, &text);
        struct glm_plan *back;
        if (glm_plan_read(text.data, text.len, arena, &back, &err) != GLM_OK)
            fail_msg("%s: %s", path, err.message);
    }
    buf_release(&text);
}

static void every_cluster_file_compiles_to_its_golden_plans(void **state)
{
    (void)state;
    glob_t files;
    unsetenv("HF_HUB_CACHE");
    setenv("HF_HOME", "/nonexistent", 1); /* a pack on this machine must not change a golden */
    assert_int_equal(glob("clusters/*.yaml", 0, NULL, &files), 0);
    assert_int_equal(glob("clusters/*/*.yaml", GLOB_APPEND, NULL, &files), 0);
    assert_true(files.gl_pathc >= 5);
    for (size_t i = 0; i < files.gl_pathc; i++) {
        struct arena arena;
        struct diag_list diags;
        struct glm_cluster *c;
        arena_init(&arena, (size_t)256 << 20);
        diag_list_init(&diags, &arena);
        if (glm_cluster_load(files.gl_pathv[i], &arena, &diags, &c) != GLM_OK)
            fail_msg("%s: %s", files.gl_pathv[i], diags.items[0].message);
        for (uint32_t l = 0; l < c->n_lanes; l++)
            check_lane(files.gl_pathv[i], c, l, &arena, &diags);
        arena_release(&arena);
    }
    globfree(&files);
}

static struct buf print(struct fixture *f, bool json)
{
    struct buf out = {0};
    struct glm_plan **plans;
    struct glm_error err = {0};
    if (glm_plan_build(&f->cluster, 0, "sm_121a", &f->arena, &f->diags, &plans, &err) != GLM_OK ||
        glm_plan_print(&f->cluster, 0, plans, json, &out, &err) != GLM_OK)
        fail_msg("%s", err.message);
    return out;
}

static void json_says_what_the_text_says(void **state)
{
    (void)state;
    struct fixture f;
    fixture_full(&f, 4);
    f.cluster.nodes[2].memory_bytes = UINT64_C(128) << 30;
    struct buf out = print(&f, true);
    cJSON *j = cJSON_ParseWithLength(out.data, out.len);
    assert_non_null(j);
    assert_int_equal(cJSON_GetObjectItem(j, "format_version")->valueint, 1);
    assert_int_equal(cJSON_GetObjectItem(j, "tp")->valueint, 4);
    assert_int_equal(cJSON_GetObjectItem(j, "exchanges_a_round")->valueint, 91);
    cJSON *ranks = cJSON_GetObjectItem(j, "ranks"), *r = cJSON_GetArrayItem(ranks, 2);
    assert_int_equal(cJSON_GetArraySize(ranks), 4);
    assert_string_equal(cJSON_GetObjectItem(r, "node")->valuestring, "node2");
    double total = cJSON_GetObjectItem(r, "total_bytes")->valuedouble, sum = 0;
    static const char *const parts[] = {"weight_bytes", "pool_bytes",    "stream_bytes",
                                        "buffer_bytes", "process_bytes", "request_bytes"};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        sum += cJSON_GetObjectItem(r, parts[i])->valuedouble;
    assert_true(total == sum && total > 0);
    assert_true(cJSON_GetObjectItem(r, "memory_bytes")->valuedouble == 128.0 * (1 << 30));
    cJSON_Delete(j);
    buf_release(&out);
    fixture_free(&f);
}

static void predicts_no_speed_for_devices_without_figures(void **state)
{
    (void)state;
    struct fixture f;
    fixture_pico(&f, 2);
    struct buf out = print(&f, false);
    assert_non_null(strstr(out.data, "no speed predicted"));
    assert_null(strstr(out.data, "tok/s"));
    buf_release(&out);
    out = print(&f, true);
    assert_non_null(strstr(out.data, "\"predicted\": null"));
    buf_release(&out);
    fixture_free(&f);
}

static void shows_no_absolute_path(void **state)
{
    (void)state;
    struct fixture f;
    fixture_pico(&f, 1);
    f.cluster.checkpoint_where = "/data/models/pico";
    for (int json = 0; json < 2; json++) {
        struct buf out = print(&f, json);
        assert_null(strstr(out.data, "/data"));
        assert_non_null(strstr(out.data, "pico"));
        buf_release(&out);
    }
    fixture_free(&f);
}

static void counts_cables_of_a_pair_and_names_relayed_pairs(void **state)
{
    (void)state;
    struct fixture f;
    fixture_full(&f, 4);
    f.cluster.topology = GLM_TOPOLOGY_RING;
    static const uint32_t cables[][2] = {{0, 1}, {2, 1}, {2, 3}, {3, 0}, {0, 1}};
    for (uint32_t i = 0; i < 5; i++)
        f.cluster.cables[f.cluster.n_cables++] =
            (struct glm_cable){.a = {.node = cables[i][0]}, .b = {.node = cables[i][1]}};
    struct buf out = print(&f, false);
    assert_non_null(strstr(out.data, "fabric    roce, ring: ranks 0-1 (2 cables), 0-3, 1-2, 2-3; "
                                     "relayed 0-2, 1-3\n"));
    buf_release(&out);
    fixture_free(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_cluster_file_compiles_to_its_golden_plans),
        cmocka_unit_test(json_says_what_the_text_says),
        cmocka_unit_test(predicts_no_speed_for_devices_without_figures),
        cmocka_unit_test(shows_no_absolute_path),
        cmocka_unit_test(counts_cables_of_a_pair_and_names_relayed_pairs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
