/* SPDX-License-Identifier: Apache-2.0 */
/* A set of ranks as real processes (this program, started again as glmd with a fake lane), and what
 * happens when one of them is killed, hangs, differs, or finds its port taken. */
#include "runtime/client.h"
#include "runtime/clock.h"
#include "runtime/control_conn.h"
#include "runtime/launcher.h"
#include "runtime/link.h"
#include "runtime/net.h"
#include "runtime/rank.h"
#include "runtime/state_dir.h"
#include "runtime/supervise.h"
#include "tests/support/fake_lane.h"
#include "tests/support/folder.h"
#include "tests/support/pico.h"
#include "tests/support/segments.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cjson/cJSON.h>
#include <cmocka.h>

enum { LONG_MS = 20000 };

struct lane {
    char *dir;
    char launch[512], program[4096];
    struct glm_local_launcher launcher;
    struct glm_child head;
    char how[128]; /* how the head ended */
};

static void lane_prepare(struct lane *l, const char *json)
{
    struct glm_error err = {0};
    *l = (struct lane){.dir = folder_new()};
    folder_write(l->dir, "launch.json", json);
    snprintf(l->launch, sizeof l->launch, "%s/launch.json", l->dir);
    assert_true(readlink("/proc/self/exe", l->program, sizeof l->program - 1) > 0);
    assert_int_equal(glm_state_secret_create(l->dir, &err), GLM_OK);
    glm_local_launcher_init(&l->launcher, l->program, l->dir, l->launch);
}

static void lane_start(struct lane *l)
{
    struct glm_error err = {0};
    if (l->launcher.launcher.start(&l->launcher, 0, "127.0.0.1:1", 1, &l->head, &err) != GLM_OK)
        fail_msg("%s", err.message);
}

/* Waits for the head's end; its exit code stays in how. */
static void lane_wait_end(struct lane *l)
{
    struct pollfd p = {.fd = l->head.fd, .events = POLLIN};
    if (poll(&p, 1, LONG_MS) != 1) {
        kill((pid_t)l->head.pid, SIGKILL);
        fail_msg("the head did not end; see %s", l->dir);
    }
    assert_true(l->launcher.launcher.reap(&l->launcher, &l->head, l->how, sizeof l->how));
}

static void lane_clean(struct lane *l)
{
    if (l->head.running) {
        kill((pid_t)l->head.pid, SIGKILL);
        lane_wait_end(l);
    }
    folder_remove(l->dir);
}

/* A test that fails half way must not leave processes behind: its lane is ended in teardown. */
static int setup(void **state)
{
    *state = calloc(1, sizeof(struct lane));
    return *state == NULL ? -1 : 0;
}

static int teardown(void **state)
{
    struct lane *l = *state;
    if (l->dir != NULL)
        lane_clean(l);
    free(l);
    return 0;
}

static cJSON *lane_status(const struct lane *l, enum glm_status *status)
{
    struct buf json = {0};
    struct glm_error err = {0};
    *status = glm_client_status(l->dir, &json, &err);
    cJSON *tree = json.len > 0 ? cJSON_Parse(buf_text(&json)) : NULL;
    if (json.len > 0 && tree == NULL)
        fail_msg("status is no JSON: %s", buf_text(&json));
    buf_release(&json);
    return tree;
}

static const char *text(const cJSON *json, const char *key)
{
    const char *value = cJSON_GetStringValue(cJSON_GetObjectItem(json, key));
    if (value == NULL)
        fail_msg("status has no text '%s'", key);
    return value;
}

static long number(const cJSON *json, const char *key)
{
    const cJSON *item = cJSON_GetObjectItem(json, key);
    if (!cJSON_IsNumber(item))
        fail_msg("status has no number '%s'", key);
    return (long)item->valuedouble;
}

static const cJSON *rank_of(const cJSON *json, int rank)
{
    const cJSON *r = cJSON_GetArrayItem(cJSON_GetObjectItem(json, "ranks"), rank);
    assert_non_null(r);
    return r;
}

static void show_logs(const struct lane *l)
{
    for (int i = 0; i < 4; i++) {
        char name[32];
        size_t len;
        snprintf(name, sizeof name, "logs/rank%d.log", i);
        char *log = folder_read(l->dir, name, &len);
        if (log != NULL)
            fprintf(stderr, "--- %s\n%s", name, log);
        free(log);
    }
}

/* The status once the set of this epoch or a later one is in that state; the caller frees it. */
static cJSON *wait_state(const struct lane *l, const char *state, long epoch)
{
    uint64_t until = glm_now_ms() + LONG_MS;
    for (;;) {
        enum glm_status status;
        cJSON *json = lane_status(l, &status);
        if (status == GLM_OK && strcmp(text(json, "state"), state) == 0 &&
            number(json, "epoch") >= epoch)
            return json;
        if (glm_now_ms() > until) {
            show_logs(l);
            fail_msg("the lane is not %s: %s", state, json == NULL ? "gone" : text(json, "state"));
        }
        cJSON_Delete(json);
        (void)poll(NULL, 0, 10);
    }
}

static bool log_has(const struct lane *l, int rank, const char *what)
{
    char name[32];
    size_t len = 0;
    snprintf(name, sizeof name, "logs/rank%d.log", rank);
    char *log = folder_read(l->dir, name, &len);
    bool found = log != NULL && strstr(log, what) != NULL;
    free(log);
    return found;
}

static void assert_log_has(const struct lane *l, int rank, const char *what)
{
    if (log_has(l, rank, what))
        return;
    show_logs(l);
    fail_msg("log of rank %d has no '%s'", rank, what);
}

/* A process that ended but was not yet waited for by whoever inherited it counts as gone. */
static bool lives(long pid)
{
    char path[64], line[256] = {0};
    snprintf(path, sizeof path, "/proc/%ld/stat", pid);
    FILE *f = fopen(path, "r");
    if (f == NULL)
        return false;
    size_t n = fread(line, 1, sizeof line - 1, f);
    fclose(f);
    const char *state = n > 0 ? strrchr(line, ')') : NULL;
    return state != NULL && state[2] != 'Z' && state[2] != 'X';
}

static void assert_gone_within(long pid, int ms)
{
    uint64_t until = glm_now_ms() + (uint64_t)ms;
    while (lives(pid)) {
        if (glm_now_ms() > until)
            fail_msg("process %ld is still there after %d ms", pid, ms);
        (void)poll(NULL, 0, 10);
    }
}

static void stop_in_order(struct lane *l)
{
    struct glm_error err = {0};
    if (glm_client_stop(l->dir, LONG_MS, &err) != GLM_OK) {
        show_logs(l);
        fail_msg("%s", err.message);
    }
    lane_wait_end(l);
    assert_string_equal(l->how, "exited with 0");
}

/* The head's failure as status tells it afterwards. */
static void assert_failed_with(const struct lane *l, const char *what)
{
    struct buf json = {0};
    struct glm_error err = {0};
    assert_int_equal(glm_client_status(l->dir, &json, &err), GLM_EPEER);
    if (strstr(err.message, what) == NULL) {
        show_logs(l);
        fail_msg("'%s' has no '%s'", err.message, what);
    }
    assert_string_equal(err.hint, "start it again with: glmctl apply");
    cJSON *tree = cJSON_Parse(buf_text(&json));
    assert_string_equal(text(tree, "state"), "failed");
    assert_non_null(strstr(text(tree, "error"), what));
    cJSON_Delete(tree);
    buf_release(&json);
}

/* ---- In order ---- */

static void serve_and_stop(struct lane *l, const char *launch, int world)
{
    struct segments segments;
    segments_list(&segments);
    long pids[8];
    char host[GLM_NET_HOST_BYTES], at[GLM_NET_TEXT_BYTES];
    uint16_t port;
    struct glm_error err = {0};
    lane_prepare(l, launch);
    lane_start(l);
    cJSON *json = wait_state(l, "live", 1);
    assert_int_equal(number(json, "format_version"), 1);
    assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(json, "ranks")), world);
    for (int i = 0; i < world; i++) {
        const cJSON *r = rank_of(json, i);
        assert_int_equal(number(r, "rank"), i);
        assert_string_equal(text(r, "state"), "live");
        assert_int_equal(number(r, "done_bytes"), 500);
        assert_int_equal(number(r, "total_bytes"), 500);
        assert_int_equal(number(r, "memory_bytes"), 1000 + i);
        assert_string_equal(text(r, "device"), i % 2 == 0 ? "cpu" : "cuda:1");
        assert_string_equal(text(r, "last_error"), "");
        pids[i] = number(r, "pid");
        assert_int_equal(kill((pid_t)pids[i], 0), 0);
    }
    assert_int_equal(pids[0], l->head.pid);
    assert_memory_equal(text(json, "url"), "http://127.0.0.1:", 17);
    assert_int_equal(glm_net_split(text(json, "url") + 7, host, &port, &err), GLM_OK);
    assert_true(cJSON_IsObject(cJSON_GetObjectItem(json, "stats")));
    cJSON_Delete(json);
    stop_in_order(l);
    for (int i = 1; i < world; i++)
        assert_gone_within(pids[i], 0);
    assert_true(segments_are_those(&segments, LONG_MS));
    assert_null(folder_read(l->dir, "head.json", &(size_t){0}));
    int fd = -1;
    assert_int_equal(glm_net_listen(host, port, &fd, at, &err), GLM_OK);
    close(fd);
    struct buf none = {0};
    assert_int_equal(glm_client_status(l->dir, &none, &err), GLM_ENOTFOUND);
    assert_string_equal(err.hint, "start it with: glmctl apply");
    struct glm_error again = {0};
    assert_int_equal(glm_client_stop(l->dir, 1000, &again), GLM_ENOTFOUND);
    lane_clean(l);
    *l = (struct lane){0};
}

static void serves_and_leaves_nothing_behind_when_stopped(void **state)
{
    serve_and_stop(*state, "{\"world\":3}", 3);
    serve_and_stop(*state, "{\"world\":2,\"tcp\":1}", 2);
    serve_and_stop(*state, "{\"world\":1}", 1);
}

static void rounds_are_counted_by_every_rank(void **state)
{
    struct lane *l = *state;
    lane_prepare(l, "{\"world\":2,\"beat_ms\":20}");
    lane_start(l);
    cJSON_Delete(wait_state(l, "live", 1));
    uint64_t until = glm_now_ms() + LONG_MS;
    for (bool moved = false; !moved;) {
        enum glm_status status;
        cJSON *json = lane_status(l, &status);
        moved = number(rank_of(json, 0), "round") > 3 && number(rank_of(json, 1), "round") > 3 &&
                number(cJSON_GetObjectItem(json, "stats"), "rounds") > 3;
        assert_true(glm_now_ms() < until);
        cJSON_Delete(json);
    }
    stop_in_order(l);
}

static void a_signal_stops_the_head_in_order(void **state)
{
    struct lane *l = *state;
    lane_prepare(l, "{}");
    lane_start(l);
    cJSON *json = wait_state(l, "live", 1);
    long other = number(rank_of(json, 2), "pid");
    cJSON_Delete(json);
    kill((pid_t)l->head.pid, SIGTERM);
    lane_wait_end(l);
    assert_string_equal(l->how, "exited with 0");
    assert_gone_within(other, 0);
}

static void stops_while_loading(void **state)
{
    struct lane *l = *state;
    lane_prepare(l, "{\"steps\":3000}");
    lane_start(l);
    cJSON *json = wait_state(l, "loading", 1);
    long other = number(rank_of(json, 1), "pid");
    cJSON_Delete(json);
    uint64_t began = glm_now_ms();
    stop_in_order(l);
    assert_true(glm_now_ms() - began < 8000);
    assert_gone_within(other, 0);
}

/* ---- Lost ranks ---- */

static void restart_after_kill(struct lane *l, const char *launch, const char *when, int signal)
{
    lane_prepare(l, launch);
    lane_start(l);
    cJSON *json = wait_state(l, when, 1);
    long killed = number(rank_of(json, 1), "pid"), other = number(rank_of(json, 2), "pid");
    char url[GLM_URL_BYTES];
    snprintf(url, sizeof url, "%s", text(json, "url"));
    cJSON_Delete(json);
    kill((pid_t)killed, signal);
    json = wait_state(l, "live", 2);
    if (strcmp(when, "live") == 0) /* clients find it where it was */
        assert_string_equal(text(json, "url"), url);
    assert_int_equal(number(json, "epoch"), 2);
    assert_int_equal(number(json, "restarts"), 1);
    char want[128];
    if (signal == SIGKILL) {
        snprintf(want, sizeof want, "rank 1 (pid %ld) was killed by signal 9", killed);
        assert_non_null(strstr(text(rank_of(json, 1), "last_error"), want));
        assert_non_null(strstr(text(rank_of(json, 1), "last_error"), when));
        assert_int_equal(number(rank_of(json, 1), "restarts"), 1);
        assert_int_equal(number(rank_of(json, 2), "restarts"), 0);
    }
    assert_int_not_equal(number(rank_of(json, 1), "pid"), killed);
    assert_int_not_equal(number(rank_of(json, 2), "pid"), other);
    assert_gone_within(killed, 0);
    assert_gone_within(other, 0);
    cJSON_Delete(json);
    stop_in_order(l);
    lane_clean(l);
    *l = (struct lane){0};
}

static void a_rank_killed_while_serving_restarts_the_set(void **state)
{
    struct segments segments;
    segments_list(&segments);
    restart_after_kill(*state, "{}", "live", SIGKILL);
    restart_after_kill(*state, "{\"tcp\":1}", "live", SIGKILL);
    assert_true(segments_are_those(&segments, LONG_MS));
}

static void a_rank_killed_while_loading_restarts_the_set(void **state)
{
    restart_after_kill(*state, "{\"steps\":60}", "loading", SIGKILL);
}

static void a_rank_that_falls_silent_is_killed_and_the_set_restarts(void **state)
{
    /* Ranks that a sanitizer slows down are not silent. */
    const int ms = pico_slow() ? 5000 : 700;
    for (int tcp = 0; tcp < 2; tcp++) {
        char launch[64];
        snprintf(launch, sizeof launch, "{\"dead_ms\":%d,\"stop_ms\":%d,\"tcp\":%d}", ms, ms, tcp);
        restart_after_kill(*state, launch, "live", SIGSTOP);
    }
}

static void a_rank_told_to_stop_by_a_signal_restarts_the_set(void **state)
{
    restart_after_kill(*state, "{}", "live", SIGTERM);
}

static void restarts_are_bounded(void **state)
{
    struct lane *l = *state;
    lane_prepare(l, "{\"crash_rank\":1,\"n_restarts\":2}");
    lane_start(l);
    lane_wait_end(l);
    assert_string_equal(l->how, "exited with 1");
    assert_failed_with(l, "gave up after 2 restarts: rank 1 (pid ");
    assert_failed_with(l, "was killed by signal 9");
    assert_failed_with(l, "logs/rank1.log");
    struct glm_error err = {0};
    struct buf json = {0};
    assert_int_equal(glm_client_stop(l->dir, 1000, &err), GLM_OK); /* clears what it left */
    assert_int_equal(glm_client_status(l->dir, &json, &err), GLM_ENOTFOUND);
}

static void the_others_leave_within_two_seconds_of_a_killed_head(void **state)
{
    struct lane *l = *state;
    static const char *const launches[] = {"{}", "{\"tcp\":1}", "{\"steps\":3000}",
                                           "{\"world\":2,\"hang_rank\":1}"};
    for (size_t i = 0; i < sizeof launches / sizeof launches[0]; i++) {
        struct segments segments;
        segments_list(&segments);
        lane_prepare(l, launches[i]);
        lane_start(l);
        cJSON *json = wait_state(l, i < 2 ? "live" : "loading", 1);
        int world = cJSON_GetArraySize(cJSON_GetObjectItem(json, "ranks"));
        long pids[4] = {0};
        for (int r = 1; r < world; r++)
            pids[r] = number(rank_of(json, r), "pid");
        cJSON_Delete(json);
        (void)poll(NULL, 0, 200); /* links are up: nothing of a segment has a name any more */
        kill((pid_t)l->head.pid, SIGKILL);
        for (int r = 1; r < world; r++)
            assert_gone_within(pids[r], pico_slow() ? LONG_MS : 2000);
        lane_wait_end(l);
        assert_failed_with(l,
                           i < 2 ? "is gone; the lane was live" : "is gone; the lane was loading");
        /* Told by control or by the data path, whichever comes first; another rank that was told
         * first is lost too. */
        if (!log_has(l, 1, "glmd ends: rank 1 lost rank "))
            assert_log_has(l, 1, "glmd ends: rank 0 is gone: the control connection is gone");
        assert_true(segments_are_those(&segments, LONG_MS));
        /* The next head takes the folder over. */
        if (i == 0) {
            lane_start(l);
            cJSON_Delete(wait_state(l, "live", 1));
            stop_in_order(l);
        }
        lane_clean(l);
        *l = (struct lane){0};
    }
}

static void a_stuck_round_dumps_stacks_and_restarts_the_set(void **state)
{
    struct lane *l = *state;
    lane_prepare(l, "{\"stuck_after\":4,\"stuck_ms\":400,\"n_restarts\":1}");
    lane_start(l);
    lane_wait_end(l);
    assert_string_equal(l->how, "exited with 1");
    assert_failed_with(l, "gave up after 1 restarts: the set is stuck: no progress for 0.");
    char want[64];
    snprintf(want, sizeof want, "stacks of pid ");
    for (int i = 0; i < 3; i++)
        assert_log_has(l, i, want);
}

static void a_load_that_hangs_ends_the_head_when_it_is_its_own(void **state)
{
    struct lane *l = *state;
    lane_prepare(l, "{\"hang_rank\":0,\"stuck_ms\":300,\"stop_ms\":500}");
    lane_start(l);
    cJSON *json = wait_state(l, "loading", 1);
    long other = number(rank_of(json, 1), "pid");
    cJSON_Delete(json);
    lane_wait_end(l);
    assert_string_equal(l->how, "exited with 1");
    assert_failed_with(l, "rank 0 cannot restart: still loading");
    assert_gone_within(other, 0);
}

/* ---- Wrong from the start ---- */

static void a_ranks_own_error_fails_the_set_at_once(void **state)
{
    struct lane *l = *state;
    for (int rank = 0; rank < 2; rank++) {
        char launch[64];
        snprintf(launch, sizeof launch, "{\"fail_rank\":%d}", rank);
        lane_prepare(l, launch);
        lane_start(l);
        lane_wait_end(l);
        assert_string_equal(l->how, "exited with 1");
        assert_failed_with(l, rank == 0 ? "the lane failed: cannot load 'experts' (5 GiB): 4 GiB "
                                          "are free"
                                        : "the lane failed: rank 1 failed: cannot load 'experts' "
                                          "(5 GiB): 4 GiB are free");
        lane_clean(l);
        *l = (struct lane){0};
    }
}

static void another_digest_is_refused_naming_key_and_values(void **state)
{
    struct lane *l = *state;
    lane_prepare(l, "{\"digest_rank\":2}");
    lane_start(l);
    lane_wait_end(l);
    assert_string_equal(l->how, "exited with 1");
    char want[300];
    snprintf(want, sizeof want, "rank 2 has kernels_digest %.*s, rank 0 has kernels_digest %.*s",
             64, "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", 64,
             "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb");
    memmove(strstr(want, ", rank 0 has ") + 13, strstr(want, "bbb"), 65);
    assert_failed_with(l, want);
    assert_failed_with(l, "apply the lane again");
    assert_log_has(l, 2, "the head refused this rank: rank 2 has kernels_digest");
}

static void a_second_head_is_refused_naming_the_first(void **state)
{
    struct lane *l = *state, second;
    lane_prepare(l, "{\"world\":2}");
    lane_start(l);
    cJSON *json = wait_state(l, "live", 1);
    cJSON_Delete(json);
    second = *l;
    lane_start(&second);
    lane_wait_end(&second);
    assert_string_equal(second.how, "exited with 1");
    char want[64];
    snprintf(want, sizeof want, "process %ld holds it", l->head.pid);
    assert_log_has(l, 0, want);
    cJSON_Delete(wait_state(l, "live", 1));
    stop_in_order(l);
}

static void a_taken_port_is_told_before_any_rank_starts(void **state)
{
    struct lane *l = *state;
    int fd = -1;
    char at[GLM_NET_TEXT_BYTES], host[GLM_NET_HOST_BYTES], launch[64], want[128];
    uint16_t port = 0;
    struct glm_error err = {0};
    assert_int_equal(glm_net_listen("127.0.0.1", 0, &fd, at, &err), GLM_OK);
    assert_int_equal(glm_net_split(at, host, &port, &err), GLM_OK);
    snprintf(launch, sizeof launch, "{\"port\":%u}", port);
    lane_prepare(l, launch);
    lane_start(l);
    lane_wait_end(l);
    assert_string_equal(l->how, "exited with 1");
    snprintf(want, sizeof want, "cannot listen on '127.0.0.1:%u': Address already in use", port);
    assert_failed_with(l, want);
    assert_null(folder_read(l->dir, "logs/rank1.log", &(size_t){0}));
    close(fd);
}

static void a_rank_with_another_secret_never_joins(void **state)
{
    struct lane *l = *state;
    struct glm_error err = {0};
    struct buf json = {0};
    lane_prepare(l, "{\"world\":2}");
    lane_start(l);
    cJSON_Delete(wait_state(l, "live", 1));
    /* A client of this folder with another secret: it cannot believe the head, nor the head it. */
    size_t len = 0;
    char *right = folder_read(l->dir, "secret", &len);
    assert_int_equal(len, 32);
    uint8_t wrong[32] = "not the secret of this lane.....";
    char path[512];
    snprintf(path, sizeof path, "%s/secret", l->dir);
    assert_int_equal(glm_file_write(path, wrong, 32, 0600, &err), GLM_OK);
    assert_int_equal(glm_client_status(l->dir, &json, &err), GLM_EPEER);
    assert_non_null(strstr(err.message, "its MAC is wrong, the secrets differ"));
    /* Rank 1 started again by hand with the wrong secret gets no further either. */
    struct glm_child child;
    struct glm_head_file head;
    assert_int_equal(glm_head_file_read(l->dir, &head, &err), GLM_OK);
    struct glm_error none = {0};
    assert_int_equal(l->launcher.launcher.start(&l->launcher, 1, head.control, 1, &child, &none),
                     GLM_OK);
    struct pollfd p = {.fd = child.fd, .events = POLLIN};
    assert_int_equal(poll(&p, 1, LONG_MS), 1);
    assert_true(l->launcher.launcher.reap(&l->launcher, &child, l->how, sizeof l->how));
    assert_string_equal(l->how, "exited with 1");
    assert_log_has(l, 1, "its MAC is wrong, the secrets differ");
    assert_int_equal(glm_file_write(path, right, 32, 0600, &none), GLM_OK);
    free(right);
    cJSON *after = wait_state(l, "live", 1);
    assert_int_equal(number(after, "epoch"), 1);
    cJSON_Delete(after);
    /* With the right secret it is one too many. */
    assert_int_equal(l->launcher.launcher.start(&l->launcher, 1, head.control, 1, &child, &none),
                     GLM_OK);
    p.fd = child.fd;
    assert_int_equal(poll(&p, 1, LONG_MS), 1);
    assert_true(l->launcher.launcher.reap(&l->launcher, &child, l->how, sizeof l->how));
    assert_log_has(l, 1, "the head refused this rank: rank 1 has joined already");
    after = wait_state(l, "live", 1);
    assert_int_equal(number(after, "epoch"), 1);
    cJSON_Delete(after);
    buf_release(&json);
    stop_in_order(l);
}

/* Joins by hand; answers what the head says to it. */
static void assert_join_is_refused(const struct lane *l, const char *rank, const char *says)
{
    struct glm_error err = {0};
    struct glm_head_file head;
    struct glm_conn conn;
    struct glm_control_frame f;
    uint8_t secret[32];
    char fields[128];
    assert_int_equal(glm_head_file_read(l->dir, &head, &err), GLM_OK);
    assert_int_equal(glm_state_secret_read(l->dir, secret, &err), GLM_OK);
    snprintf(fields, sizeof fields, "\"role\":\"rank\",\"rank\":%s,\"world\":2,\"epoch\":1", rank);
    uint64_t deadline_ms = glm_now_ms() + LONG_MS;
    assert_int_equal(glm_conn_open(&conn, head.control, secret, fields, deadline_ms, &err), GLM_OK);
    assert_int_equal(glm_conn_receive(&conn, deadline_ms, &f, &err), GLM_OK);
    assert_int_equal(f.type, GLM_CONTROL_REFUSED);
    cJSON *json = cJSON_ParseWithLength((const char *)f.payload, f.len);
    assert_string_equal(text(json, "message"), says);
    cJSON_Delete(json);
    glm_conn_release(&conn);
}

static void a_rank_that_there_is_not_is_refused_by_its_whole_number(void **state)
{
    struct lane *l = *state;
    lane_prepare(l, "{\"world\":2}");
    lane_start(l);
    cJSON_Delete(wait_state(l, "live", 1));
    static const char *const numbers[] = {"0", "2", "4294967295", "4294967296", "4294967297"};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        char want[128];
        snprintf(want, sizeof want, "there is no rank %s to join as: the set has 1 to 1",
                 numbers[i]);
        assert_join_is_refused(l, numbers[i], want);
    }
    cJSON_Delete(wait_state(l, "live", 1));
    stop_in_order(l);
}

/* Clock ticks of processor time that a process has used. */
static long ticks_of(long pid)
{
    char path[64], line[1024];
    unsigned long user = 0, system = 0;
    snprintf(path, sizeof path, "/proc/%ld/stat", pid);
    FILE *f = fopen(path, "re");
    assert_non_null(f);
    assert_non_null(fgets(line, sizeof line, f));
    fclose(f);
    const char *p = strrchr(line, ')');
    assert_int_equal(
        sscanf(p, ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system), 2);
    return (long)(user + system);
}

static void strangers_that_fill_all_connections_cost_no_processor(void **state)
{
    struct lane *l = *state;
    int fds[GLM_LINK_MAX_WORLD + 40]; /* more than a head takes */
    struct glm_error none = {0};
    struct glm_head_file head;
    lane_prepare(l, "{\"world\":1}");
    lane_start(l);
    cJSON_Delete(wait_state(l, "live", 1));
    assert_int_equal(glm_head_file_read(l->dir, &head, &none), GLM_OK);
    for (size_t i = 0; i < sizeof fds / sizeof fds[0]; i++)
        assert_int_equal(glm_net_connect_start(head.control, &fds[i], &none), GLM_OK);
    (void)poll(NULL, 0, 200);
    long before = ticks_of(l->head.pid);
    (void)poll(NULL, 0, 1500);
    long used = ticks_of(l->head.pid) - before;
    for (size_t i = 0; i < sizeof fds / sizeof fds[0]; i++)
        close(fds[i]);
    if (used > 15)
        fail_msg("%ld ticks in 1.5 s", used);
    cJSON_Delete(wait_state(l, "live", 1));
    stop_in_order(l);
}

static void strangers_that_fill_all_connections_keep_nobody_out(void **state)
{
    struct lane *l = *state;
    int fds[2 * GLM_LINK_MAX_WORLD + 80];
    struct glm_error none = {0};
    struct glm_head_file head;
    lane_prepare(l, "{\"world\":2}");
    lane_start(l);
    cJSON_Delete(wait_state(l, "live", 1));
    assert_int_equal(glm_head_file_read(l->dir, &head, &none), GLM_OK);
    for (size_t i = 0; i < sizeof fds / sizeof fds[0]; i++) {
        assert_int_equal(glm_net_connect_start(head.control, &fds[i], &none), GLM_OK);
        struct pollfd p = {.fd = fds[i], .events = POLLOUT};
        assert_int_equal(poll(&p, 1, LONG_MS), 1);
    }
    uint64_t began = glm_now_ms();
    cJSON *after = wait_state(l, "live", 1); /* and no rank was dropped for them */
    if (glm_now_ms() - began > 2500)
        fail_msg("asking took %llu ms", (unsigned long long)(glm_now_ms() - began));
    assert_int_equal(number(after, "restarts"), 0);
    cJSON_Delete(after);
    for (size_t i = 0; i < sizeof fds / sizeof fds[0]; i++)
        close(fds[i]);
    stop_in_order(l);
}

static void a_folder_that_cannot_be_written_is_named(void **state)
{
    struct lane *l = *state;
    char path[512];
    lane_prepare(l, "{\"world\":1}");
    assert_int_equal(mkdir(strcat(strcpy(path, l->dir), "/lock"), 0700), 0);
    lane_start(l);
    lane_wait_end(l);
    assert_string_equal(l->how, "exited with 1");
    char want[600];
    snprintf(want, sizeof want, "cannot open lock '%s/lock': Is a directory", l->dir);
    assert_log_has(l, 0, want);
}

static void a_secret_that_others_can_read_is_refused(void **state)
{
    struct lane *l = *state;
    char path[512];
    uint8_t secret[32];
    struct glm_error err = {0};
    lane_prepare(l, "{\"world\":1}");
    snprintf(path, sizeof path, "%s/secret", l->dir);
    assert_int_equal(glm_state_secret_read(l->dir, secret, &err), GLM_OK);
    uint8_t again[32];
    assert_int_equal(glm_state_secret_create(l->dir, &err), GLM_OK); /* keeps the one there is */
    assert_int_equal(glm_state_secret_read(l->dir, again, &err), GLM_OK);
    assert_memory_equal(secret, again, 32);
    assert_int_equal(chmod(path, 0640), 0);
    assert_int_equal(glm_state_secret_read(l->dir, secret, &err), GLM_EINVAL);
    assert_non_null(strstr(err.message, "mode 640"));
    lane_start(l);
    lane_wait_end(l);
    assert_failed_with(l, "cannot trust the lane's secret");
    assert_int_equal(chmod(path, 0600), 0);
    assert_int_equal(truncate(path, 31), 0);
    err = (struct glm_error){0};
    assert_int_equal(glm_state_secret_read(l->dir, secret, &err), GLM_EINVAL);
    assert_non_null(strstr(err.message, "31 bytes, want 32"));
}

/* ---- Ranks as threads of one process, for the thread sanitizer ---- */

struct thread_rank {
    struct thread_set *set;
    struct glm_lane_info lane;
    uint8_t secret[32];
    char control[GLM_NET_TEXT_BYTES];
    uint64_t epoch;
    uint32_t rank;
    int stop_fd, ended_fd;
    pthread_t thread;
    enum glm_status status;
    bool hung;
};

struct thread_set {
    char *dir;
    char launch[512];
    struct thread_rank ranks[4];
    pthread_mutex_t mutex;
    int n_started;
};

static void *thread_rank_main(void *argument)
{
    struct thread_rank *r = argument;
    struct glm_error err = {0};
    struct glm_rank_config config = {.lane = &r->lane,
                                     .secret = r->secret,
                                     .control = r->control,
                                     .epoch = r->epoch,
                                     .stop_fd = r->stop_fd};
    r->status = glm_rank_run(&config, &r->hung, &err);
    assert_int_equal(eventfd_write(r->ended_fd, 1), 0);
    return NULL;
}

static enum glm_status thread_start(void *context, uint32_t rank, const char *control,
                                    uint64_t epoch, struct glm_child *out, struct glm_error *err)
{
    struct thread_set *set = context;
    struct thread_rank *r = &set->ranks[rank];
    *r = (struct thread_rank){.set = set, .rank = rank, .epoch = epoch};
    snprintf(r->control, sizeof r->control, "%s", control);
    enum glm_status status = fake_lane_load(set->launch, rank, &r->lane, err);
    if (status == GLM_OK)
        status = glm_state_secret_read(set->dir, r->secret, err);
    if (status != GLM_OK)
        return status;
    r->stop_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    r->ended_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (r->stop_fd < 0 || r->ended_fd < 0 ||
        pthread_create(&r->thread, NULL, thread_rank_main, r) != 0)
        return glm_fail(err, GLM_EIO, "cannot start a thread");
    pthread_mutex_lock(&set->mutex);
    set->n_started++;
    pthread_mutex_unlock(&set->mutex);
    *out = (struct glm_child){.running = true, .pid = 1000 + (long)rank, .fd = r->ended_fd};
    return GLM_OK;
}

static void thread_signal(void *context, const struct glm_child *child, int signal_)
{
    (void)signal_;
    struct thread_set *set = context;
    pthread_mutex_lock(&set->mutex); /* the test signals while the head may reap */
    eventfd_write(set->ranks[child->pid - 1000].stop_fd, 1);
    pthread_mutex_unlock(&set->mutex);
}

static bool thread_reap(void *context, struct glm_child *child, char *how, size_t capacity)
{
    struct thread_set *set = context;
    struct thread_rank *r = &set->ranks[child->pid - 1000];
    eventfd_t value;
    if (eventfd_read(r->ended_fd, &value) != 0)
        return false;
    pthread_join(r->thread, NULL);
    snprintf(how, capacity, "ended with status %d", (int)r->status);
    fake_lane_release(&r->lane);
    close(r->ended_fd);
    pthread_mutex_lock(&set->mutex);
    close(r->stop_fd);
    r->stop_fd = -1;
    pthread_mutex_unlock(&set->mutex);
    *child = (struct glm_child){.fd = -1};
    return true;
}

struct thread_head {
    const struct thread_set *set;
    struct glm_supervise_config config;
    enum glm_status status;
    bool hung;
};

static void *thread_head_main(void *argument)
{
    struct thread_head *h = argument;
    struct glm_error err = {0};
    h->status = glm_supervise_run(&h->config, &h->hung, &err);
    return NULL;
}

static void a_set_of_threads_restarts_and_stops(void **state)
{
    struct lane *l = *state;
    lane_prepare(l, "{\"steps\":3}");
    struct thread_set set = {.dir = l->dir, .mutex = PTHREAD_MUTEX_INITIALIZER};
    memcpy(set.launch, l->launch, sizeof set.launch);
    struct glm_launcher launcher = {
        .context = &set, .start = thread_start, .signal = thread_signal, .reap = thread_reap};
    struct glm_lane_info lane;
    struct glm_error err = {0};
    assert_int_equal(fake_lane_load(l->launch, 0, &lane, &err), GLM_OK);
    int stop_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    struct thread_head head = {
        .set = &set,
        .config = {.dir = l->dir, .lane = &lane, .launcher = &launcher, .stop_fd = stop_fd}};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, thread_head_main, &head), 0);
    cJSON_Delete(wait_state(l, "live", 1));
    struct glm_child second = {.pid = 1002};
    thread_signal(&set, &second, SIGTERM);
    cJSON *json = wait_state(l, "live", 2);
    assert_non_null(strstr(text(rank_of(json, 2), "last_error"), "told to stop by a signal"));
    cJSON_Delete(json);
    assert_int_equal(eventfd_write(stop_fd, 1), 0);
    pthread_join(thread, NULL);
    assert_int_equal(head.status, GLM_OK);
    assert_false(head.hung);
    assert_int_equal(set.n_started, 4);
    fake_lane_release(&lane);
    close(stop_fd);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--launch") == 0)
        return fake_glmd_main(argc, argv);
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        TEST(serves_and_leaves_nothing_behind_when_stopped),
        TEST(rounds_are_counted_by_every_rank),
        TEST(a_signal_stops_the_head_in_order),
        TEST(stops_while_loading),
        TEST(a_rank_killed_while_serving_restarts_the_set),
        TEST(a_rank_killed_while_loading_restarts_the_set),
        TEST(a_rank_that_falls_silent_is_killed_and_the_set_restarts),
        TEST(a_rank_told_to_stop_by_a_signal_restarts_the_set),
        TEST(restarts_are_bounded),
        TEST(the_others_leave_within_two_seconds_of_a_killed_head),
        TEST(a_stuck_round_dumps_stacks_and_restarts_the_set),
        TEST(a_load_that_hangs_ends_the_head_when_it_is_its_own),
        TEST(a_ranks_own_error_fails_the_set_at_once),
        TEST(another_digest_is_refused_naming_key_and_values),
        TEST(a_second_head_is_refused_naming_the_first),
        TEST(a_taken_port_is_told_before_any_rank_starts),
        TEST(a_rank_with_another_secret_never_joins),
        TEST(a_rank_that_there_is_not_is_refused_by_its_whole_number),
        TEST(strangers_that_fill_all_connections_cost_no_processor),
        TEST(strangers_that_fill_all_connections_keep_nobody_out),
        TEST(a_folder_that_cannot_be_written_is_named),
        TEST(a_secret_that_others_can_read_is_refused),
        TEST(a_set_of_threads_restarts_and_stops),
#undef TEST
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
