/* SPDX-License-Identifier: Apache-2.0 */
/* A lane as glmd runs it: launch.json and a rank plan on disk, loaded, opened and served over HTTP;
 * greedy replies against transformers' golden ids (tests/golden/pico). And what a lane refuses. */
#include "runtime/serve.h"

#include "spec/base/digest.h"
#include "codegen/launch.h"
#include "runtime/http.h"
#include "spec/base/log.h"
#include "tests/support/folder.h"
#include "tests/support/pico.h"
#include "tests/support/raw_http.h"

#include <cjson/cJSON.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static const double min_margin = 0.01; /* below it another order of sums may pick another token */
enum { MAX_KERNELS = 512 };

/* What `glmctl apply` would have written for pico on one rank. */
struct written {
    char *folder;
    struct pico *pico;
    struct glm_launch_file launch;
    struct glm_launch_rank rank;
    const char *paths[MAX_KERNELS], *digests[MAX_KERNELS];
    char digest_text[MAX_KERNELS][65];
    char checkpoint[512], path[512];
};

static struct written world;

static void write_launch(struct written *w)
{
    struct glm_error err = {0};
    struct buf text = {0};
    if (glm_launch_write(&w->launch, &text, &err) != GLM_OK)
        fail_msg("%s", err.message);
    folder_write(w->folder, "launch.json", buf_text(&text));
    buf_release(&text);
}

static void write_plan(struct written *w)
{
    struct glm_error err = {0};
    struct buf text = {0};
    assert_int_equal(glm_plan_write(pico_plan(w->pico, 0), &text, &err), GLM_OK);
    assert_int_equal(glm_sha256_hex(text.data, text.len, w->rank.plan_digest, &err), GLM_OK);
    folder_write(w->folder, "rank0.plan.json", buf_text(&text));
    buf_release(&text);
}

static void name_kernels(struct written *w)
{
    const struct glm_plan *plan = pico_plan(w->pico, 0);
    assert_true(plan->n_kernels <= MAX_KERNELS);
    for (uint32_t k = 0; k < plan->n_kernels; k++) {
        w->paths[k] = pico_kernels(w->pico, 0)[k];
        const char *end = strrchr(w->paths[k], '/');
        memcpy(w->digest_text[k], end - 64, 64);
        w->digests[k] = w->digest_text[k];
    }
    w->rank.kernel_paths = w->paths;
    w->rank.kernel_digests = w->digests;
    w->rank.n_kernels = plan->n_kernels;
}

static int set_up(void **state)
{
    struct written *w = &world;
    struct glm_error err = {0};
    (void)state;
    setenv("GLM_LOG", "error", 0);
    glm_log_init(-1);
    w->folder = folder_new();
    w->pico = pico_open(NULL);
    assert_non_null(realpath("clusters/demo/exl3", w->checkpoint));
    w->rank = (struct glm_launch_rank){.node = "node0",
                                       .host = "local",
                                       .control = "127.0.0.1",
                                       .device = "cpu",
                                       .plan_file = "rank0.plan.json",
                                       .threads = 2};
    name_kernels(w);
    write_plan(w);
    w->launch = (struct glm_launch_file){
        .format_version = 1,
        .cluster = "test",
        .lane = "tp1",
        .spec_path = "/x/test.yaml",
        .spec_text = "# a test's\n",
        .target = glm_host_target(),
        .checkpoint = w->checkpoint,
        .transport = "shm",
        .listen_host = "127.0.0.1",
        .served_name = "pico",
        .api_key_file = "",
        .max_tokens = 1024,
        .max_body_bytes = 8 << 20,
        .thinking = true,
        .effort = "",
        .ranks = &w->rank,
        .n_ranks = 1,
    };
    assert_int_equal(glm_sha256_hex(w->launch.spec_text, strlen(w->launch.spec_text),
                                    w->launch.spec_digest, &err),
                     GLM_OK);
    memcpy(w->launch.binary_digest, w->launch.spec_digest, 65);
    memcpy(w->launch.set_digest, pico_plan(w->pico, 0)->set_digest, 65);
    memcpy(w->launch.checkpoint_digest, pico_checkpoint(w->pico)->digest, 65);
    write_launch(w);
    snprintf(w->path, sizeof w->path, "%s/launch.json", w->folder);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    pico_close(world.pico);
    folder_remove(world.folder);
    return 0;
}

/* ---- a lane that serves ---- */

struct serving {
    struct glm_lane_info lane;
    void *engine, *server;
    uint16_t port;
    uint64_t memory_bytes;
};

static int serve(void **state)
{
    struct serving *s = calloc(1, sizeof *s);
    struct glm_error err = {0};
    char url[GLM_URL_BYTES];
    assert_non_null(s);
    if (glm_lane_load(world.path, 0, &s->lane, &err) != GLM_OK)
        fail_msg("%s", err.message);
    const struct glm_service *service = &s->lane.service;
    if (service->bind(service->context, url, &err) != GLM_OK)
        fail_msg("%s", err.message);
    assert_memory_equal(url, "http://127.0.0.1:", 17);
    s->port = (uint16_t)atoi(url + 17);
    struct raw_answer a = raw_ask(s->port, "GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_int_equal(a.status, 503); /* open early, live later */
    raw_answer_free(&a);
    if (service->open(service->context, &(struct glm_open_config){0}, &s->engine, &s->memory_bytes,
                      &err) != GLM_OK ||
        service->start(service->context, s->engine, &s->server, &err) != GLM_OK)
        fail_msg("%s", err.message);
    *state = s;
    return 0;
}

static int stop(void **state)
{
    struct serving *s = *state;
    s->lane.service.stop(s->server, "it is stopping");
    s->lane.service.close(s->engine);
    s->lane.service.unbind(s->lane.service.context);
    glm_lane_release(&s->lane);
    free(s);
    return 0;
}

/* ---- one reply ---- */

struct ask {
    const struct serving *serving;
    const char *path;
    char *json;
    bool stream;
    int32_t ids[128];
    uint32_t n;
    char *text, *reasoning, *calls; /* calls: of the first, "name(arguments)" */
    char finish[16];
};

static void append(char **text, const char *more)
{
    const size_t len = *text == NULL ? 0 : strlen(*text);
    *text = realloc(*text, len + strlen(more) + 1);
    assert_non_null(*text);
    strcpy(*text + len, more);
}

static void append_member(char **text, const cJSON *object, const char *name)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);
    if (cJSON_IsString(item))
        append(text, item->valuestring);
}

/* A whole reply, or one event of a stream. */
static void read_object(struct ask *a, const char *json)
{
    cJSON *body = cJSON_Parse(json);
    assert_non_null(body);
    const cJSON *choice = cJSON_GetArrayItem(cJSON_GetObjectItem(body, "choices"), 0), *id;
    const cJSON *message = cJSON_GetObjectItem(choice, a->stream ? "delta" : "message");
    append_member(&a->text, choice, "text");
    append_member(&a->text, message, "content");
    append_member(&a->reasoning, message, "reasoning_content");
    const cJSON *call = cJSON_GetArrayItem(cJSON_GetObjectItem(message, "tool_calls"), 0);
    const cJSON *function = cJSON_GetObjectItem(call, "function");
    if (function != NULL) {
        append_member(&a->calls, function, "name");
        append_member(&a->calls, function, "arguments");
    }
    const cJSON *finish = cJSON_GetObjectItem(choice, "finish_reason");
    if (cJSON_IsString(finish))
        snprintf(a->finish, sizeof a->finish, "%s", finish->valuestring);
    const cJSON *ids = cJSON_GetObjectItem(cJSON_GetObjectItem(body, "glmctl"), "token_ids");
    cJSON_ArrayForEach(id, ids)
    {
        assert_true(a->n < 128);
        a->ids[a->n++] = id->valueint;
    }
    cJSON_Delete(body);
}

static void *run_ask(void *argument)
{
    struct ask *a = argument;
    char *post = raw_post(a->path, a->json, "");
    struct raw_answer answer = raw_ask(a->serving->port, post);
    if (answer.status != 200)
        fail_msg("%s: %d %s", a->json, answer.status, answer.body);
    if (!a->stream)
        read_object(a, answer.body);
    for (char *line = a->stream ? answer.body : NULL, *end;
         line != NULL && (end = strstr(line, "\n\n")) != NULL; line = end + 2) {
        *end = '\0';
        if (strncmp(line, "data: {", 7) == 0)
            read_object(a, line + 6);
    }
    raw_answer_free(&answer);
    free(post);
    return NULL;
}

static void ask_free(struct ask *a)
{
    free(a->json);
    free(a->text);
    free(a->reasoning);
    free(a->calls);
}

/* ---- golden replies ---- */

static struct golden_case *margin_cases(struct golden *g, uint32_t *n)
{
    struct golden_case *cases = calloc(golden_count(g), sizeof *cases);
    assert_non_null(cases);
    *n = 0;
    for (uint32_t i = 0; i < golden_count(g); i++) {
        const struct golden_case c = golden_case(g, i);
        if (c.smallest_margin > min_margin)
            cases[(*n)++] = c;
    }
    assert_true(*n >= 10);
    return cases;
}

static char *golden_prompt(const char *name)
{
    size_t len;
    char *text = folder_read("tests/golden/pico", "exl3.json", &len);
    cJSON *json = cJSON_Parse(text);
    free(text);
    const cJSON *prompt = cJSON_GetObjectItem(cJSON_GetObjectItem(json, name), "prompt");
    char *quoted = cJSON_PrintUnformatted(prompt);
    cJSON_Delete(json);
    assert_non_null(quoted);
    return quoted;
}

static char *golden_body(const struct golden_case *c, bool as_ids, bool stream)
{
    char *body = NULL;
    append(&body, "{\"prompt\":");
    if (as_ids) {
        for (uint32_t i = 0; i < c->n_ids; i++) {
            char id[16];
            snprintf(id, sizeof id, "%c%d", i == 0 ? '[' : ',', c->ids[i]);
            append(&body, id);
        }
        append(&body, "]");
    } else {
        char *prompt = golden_prompt(c->name);
        append(&body, prompt);
        free(prompt);
    }
    append(&body, ",\"max_tokens\":96,\"temperature\":0,\"return_token_ids\":true,\"stream\":");
    append(&body, stream ? "true}" : "false}");
    return body;
}

static void check_golden(const struct ask *a, const struct golden_case *c)
{
    if (a->n != c->n_reply || memcmp(a->ids, c->reply, a->n * sizeof a->ids[0]) != 0)
        fail_msg("%s: the reply of %u tokens differs from the golden one of %u", c->name, a->n,
                 c->n_reply);
}

static void completions_equal_the_golden_replies(void **state)
{
    struct golden *g = golden_open("exl3");
    uint32_t n;
    struct golden_case *cases = margin_cases(g, &n);
    for (uint32_t i = 0; i < n; i++) {
        const int n_forms = pico_slow() || cases[i].n_ids > 400 ? 1 : 4;
        for (int form = 0; form < n_forms; form++) {
            struct ask a = {.serving = *state,
                            .path = "/v1/completions",
                            .json = golden_body(&cases[i], form % 2 == 0, form / 2 == 1),
                            .stream = form / 2 == 1};
            run_ask(&a);
            check_golden(&a, &cases[i]);
            ask_free(&a);
        }
    }
    print_message("    %u prompts\n", n);
    free(cases);
    golden_free(g);
}

static void eight_at_once_equal_the_golden_replies(void **state)
{
    enum { AT_ONCE = 8 };
    struct golden *g = golden_open("exl3");
    uint32_t n;
    struct golden_case *cases = margin_cases(g, &n);
    for (uint32_t first = 0; first < n; first += AT_ONCE) {
        struct ask asks[AT_ONCE];
        pthread_t threads[AT_ONCE];
        for (uint32_t i = 0; i < AT_ONCE; i++) {
            const bool stream = i % 2 == 0;
            asks[i] = (struct ask){.serving = *state,
                                   .path = "/v1/completions",
                                   .json = golden_body(&cases[(first + i) % n], i % 3 == 0, stream),
                                   .stream = stream};
            assert_int_equal(pthread_create(&threads[i], NULL, run_ask, &asks[i]), 0);
        }
        for (uint32_t i = 0; i < AT_ONCE; i++)
            pthread_join(threads[i], NULL);
        for (uint32_t i = 0; i < AT_ONCE; i++) {
            check_golden(&asks[i], &cases[(first + i) % n]);
            ask_free(&asks[i]);
        }
    }
    free(cases);
    golden_free(g);
}

#define TOOLS                                                                                      \
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"get_weather\",\"description\":"    \
    "\"Current weather of a city.\",\"parameters\":{\"type\":\"object\",\"properties\":{\"city\":" \
    "{\"type\":\"string\"},\"unit\":{\"type\":\"string\",\"enum\":[\"celsius\",\"fahrenheit\"]}}," \
    "\"required\":[\"city\"]}}},{\"type\":\"function\",\"function\":{\"name\":\"add_numbers\","    \
    "\"description\":\"Add two integers.\",\"parameters\":{\"type\":\"object\",\"properties\":"    \
    "{\"a\":{\"type\":\"integer\"},\"b\":{\"type\":\"integer\"}},\"required\":[\"a\",\"b\"]}}},"   \
    "{\"type\":\"function\",\"function\":{\"name\":\"get_time\",\"description\":\"Local time of "  \
    "a city.\",\"parameters\":{\"type\":\"object\",\"properties\":{\"city\":{\"type\":\"string\"}" \
    "},\"required\":[\"city\"]}}}]"
#define USER(text) "\"messages\":[{\"role\":\"user\",\"content\":\"" text "\"}]"

/* The golden prompts as a client of the chat route would ask for them. */
static const struct {
    const char *name, *members, *reasoning, *text, *calls, *finish;
} chats[] = {
    {"count_30", USER("Count from 1 to 30.") ",\"reasoning_effort\":\"low\"",
     "Start at 1 and stop at 30.", NULL, NULL, "length"},
    {"capital", USER("What is the capital of Japan?") ",\"reasoning_effort\":\"none\"", NULL,
     "Tokyo", NULL, "stop"},
    {"add_max", USER("What is 23 + 45?"), "23 + 45 = 70.", "70", NULL, "stop"},
    {"json",
     USER("Write a JSON object with name Mia, age 31 and city Oslo.") ",\"chat_template_kwargs\":"
                                                                      "{\"enable_thinking\":false}",
     NULL, "{\"name\": \"Mia\", \"age\": 31, \"city\": \"Oslo\"}", NULL, "stop"},
    {"code",
     USER("Write a Python function largest that returns the largest item of a "
          "list.") ",\"reasoning_effort\":\"medium\"",
     "One loop over the items is enough.",
     "```python\ndef largest(items):\n    best = items[0]\n    for x in items:\n        if x > "
     "best:\n            best = x\n    return best\n```",
     NULL, "stop"},
    {"sql",
     USER("Write SQL that selects all rows of books where price is over "
          "20.") ",\"reasoning_effort\":\"none\"",
     NULL, "SELECT * FROM books WHERE price > 20;", NULL, "stop"},
    {"echo_system",
     "\"messages\":[{\"role\":\"developer\",\"content\":\"Answer briefly.\"},{\"role\":\"user\","
     "\"content\":[{\"type\":\"text\",\"text\":\"Repeat after me: silver lamp old boat\"}]}],"
     "\"reasoning_effort\":\"none\"",
     NULL, "silver lamp old boat", NULL, "stop"},
    {"tool_call", USER("What is the weather in Oslo?") "," TOOLS ",\"reasoning_effort\":\"low\"",
     "I should call get_weather.", NULL, "get_weather{\"city\":\"Oslo\"}", "tool_calls"},
    {"tool_result",
     "\"messages\":[{\"role\":\"user\",\"content\":\"What is 1234 + 4321? Use the tool.\"},"
     "{\"role\":\"assistant\",\"content\":null,\"reasoning_content\":\"I should call "
     "add_numbers.\",\"tool_calls\":[{\"id\":\"call_1\",\"type\":\"function\",\"function\":"
     "{\"name\":\"add_numbers\",\"arguments\":\"{\\\"a\\\": 1234, \\\"b\\\": 4321}\"}}]},"
     "{\"role\":\"tool\",\"tool_call_id\":\"call_1\",\"content\":\"5555\"}]," TOOLS,
     "The tool has answered.", "The sum is 5555.", NULL, "stop"},
};

static void assert_text(const char *name, const char *got, const char *wanted)
{
    if (wanted != NULL && strcmp(got == NULL ? "" : got, wanted) != 0)
        fail_msg("%s: got '%s', wanted '%s'", name, got == NULL ? "" : got, wanted);
}

static void chats_equal_the_golden_replies_and_are_split(void **state)
{
    struct golden *g = golden_open("exl3");
    for (size_t i = 0; i < sizeof chats / sizeof chats[0]; i++) {
        struct golden_case c = {0};
        for (uint32_t k = 0; k < golden_count(g); k++)
            if (strcmp(golden_case(g, k).name, chats[i].name) == 0)
                c = golden_case(g, k);
        assert_non_null(c.name);
        for (int form = 0; form < (pico_slow() ? 1 : 2); form++) {
            struct ask a = {.serving = *state, .path = "/v1/chat/completions", .stream = form == 1};
            assert_true(asprintf(&a.json,
                                 "{%s,\"max_tokens\":96,\"temperature\":0,"
                                 "\"return_token_ids\":true,\"stream\":%s}",
                                 chats[i].members, form == 1 ? "true" : "false") > 0);
            run_ask(&a);
            check_golden(&a, &c);
            assert_text(c.name, a.reasoning, chats[i].reasoning == NULL ? "" : chats[i].reasoning);
            assert_text(c.name, a.text, chats[i].text);
            assert_text(c.name, a.calls, chats[i].calls);
            assert_text(c.name, a.finish, chats[i].finish);
            ask_free(&a);
        }
    }
    golden_free(g);
}

static void sampled_replies_do_not_depend_on_their_neighbours(void **state)
{
    enum { N = 8 };
    struct ask alone[N], beside[N];
    pthread_t threads[N];
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < N; i++) {
            struct ask *a = round == 0 ? &alone[i] : &beside[i];
            *a = (struct ask){.serving = *state, .path = "/v1/completions"};
            assert_true(asprintf(&a->json,
                                 "{\"prompt\":\"One day %c the fox\",\"max_tokens\":60,"
                                 "\"temperature\":1,\"top_p\":%s,\"top_k\":%d,\"min_p\":%s,"
                                 "\"return_token_ids\":true}",
                                 'A' + i / 2, i % 3 == 0 ? "1" : "0.9", i % 4 * 10,
                                 i % 5 == 0 ? "0.05" : "0") > 0);
            if (round == 0)
                run_ask(a);
            else
                assert_int_equal(pthread_create(&threads[i], NULL, run_ask, a), 0);
        }
        for (int i = 0; round == 1 && i < N; i++)
            pthread_join(threads[i], NULL);
    }
    for (int i = 0; i < N; i++) {
        assert_true(alone[i].n > 0);
        assert_int_equal(alone[i].n, beside[i].n);
        assert_memory_equal(alone[i].ids, beside[i].ids, alone[i].n * sizeof alone[i].ids[0]);
        ask_free(&alone[i]);
        ask_free(&beside[i]);
    }
}

static void statistics_are_one_json_object(void **state)
{
    struct serving *s = *state;
    struct glm_serve_watch watch;
    struct buf json = {0};
    struct ask a = {.serving = s, .path = "/v1/completions"};
    append(&a.json, "{\"prompt\":[1,2,3],\"max_tokens\":4,\"ignore_eos\":true}");
    run_ask(&a);
    ask_free(&a);
    s->lane.service.watch(s->server, &watch);
    assert_false(watch.broken);
    assert_true(watch.rounds >= 4);
    s->lane.service.stats(s->server, &json);
    cJSON *stats = cJSON_Parse(buf_text(&json));
    assert_int_equal(cJSON_GetObjectItem(stats, "requests_total")->valueint, 1);
    assert_int_equal(cJSON_GetObjectItem(stats, "completion_tokens_total")->valueint, 4);
    cJSON_Delete(stats);
    buf_release(&json);
    assert_true(s->memory_bytes > 1 << 20);
}

static void a_port_that_is_taken_is_refused_before_loading(void **state)
{
    struct serving *s = *state;
    struct glm_lane_info second;
    struct glm_error err = {0};
    char url[GLM_URL_BYTES];
    world.launch.listen_port = s->port;
    write_launch(&world);
    assert_int_equal(glm_lane_load(world.path, 0, &second, &err), GLM_OK);
    world.launch.listen_port = 0;
    write_launch(&world);
    assert_int_equal(second.service.bind(second.service.context, url, &err), GLM_EBUSY);
    assert_non_null(strstr(err.message, "127.0.0.1"));
    glm_lane_release(&second);
}

static void a_broken_tokenizer_is_refused_before_loading(void **state)
{
    (void)state;
    struct glm_lane_info lane;
    struct glm_error err = {0};
    char url[GLM_URL_BYTES], *folder = folder_new();
    folder_write(folder, "tokenizer.json", "{\"model\": 1}");
    world.launch.checkpoint = folder;
    write_launch(&world);
    assert_int_equal(glm_lane_load(world.path, 0, &lane, &err), GLM_OK);
    world.launch.checkpoint = world.checkpoint;
    write_launch(&world);
    assert_int_equal(lane.service.bind(lane.service.context, url, &err), GLM_ECHECKPOINT);
    assert_non_null(strstr(err.message, folder_path(folder, "tokenizer.json")));
    glm_lane_release(&lane);
    folder_remove(folder);
}

/* The set restarts: the address stays, requests meanwhile are told why. */
static void a_restart_keeps_the_address(void **state)
{
    struct serving *s = *state;
    const struct glm_service *service = &s->lane.service;
    struct glm_error err = {0};
    static const char models[] = "GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n";
    service->stop(s->server, "it is restarting");
    service->close(s->engine);
    struct raw_answer a = raw_ask(s->port, models);
    assert_int_equal(a.status, 503);
    assert_non_null(strstr(a.body, "it is restarting"));
    raw_answer_free(&a);
    assert_int_equal(service->open(service->context, &(struct glm_open_config){0}, &s->engine,
                                   &s->memory_bytes, &err),
                     GLM_OK);
    assert_int_equal(service->start(service->context, s->engine, &s->server, &err), GLM_OK);
    a = raw_ask(s->port, models);
    assert_int_equal(a.status, 200);
    raw_answer_free(&a);
}

/* ---- what a lane refuses ---- */

static void expect_load_error(uint32_t rank, enum glm_status status, const char *word)
{
    struct glm_lane_info lane = {0};
    struct glm_error err = {0};
    assert_int_equal(glm_lane_load(world.path, rank, &lane, &err), status);
    if (strstr(err.message, word) == NULL)
        fail_msg("'%s' does not hold '%s'", err.message, word);
    assert_null(lane.service.context);
}

static void expect_open_error(enum glm_status status, const char *word)
{
    struct glm_lane_info lane;
    struct glm_error err = {0};
    void *engine = NULL;
    uint64_t memory;
    assert_int_equal(glm_lane_load(world.path, 0, &lane, &err), GLM_OK);
    assert_int_equal(lane.service.open(lane.service.context, &(struct glm_open_config){0}, &engine,
                                       &memory, &err),
                     status);
    if (strstr(err.message, word) == NULL)
        fail_msg("'%s' does not hold '%s'", err.message, word);
    glm_lane_release(&lane);
}

static void files_that_do_not_belong_together_are_refused(void **state)
{
    (void)state;
    struct written *w = &world;
    const struct glm_launch_file launch = w->launch;
    const struct glm_launch_rank rank = w->rank;
    size_t len;
    char *plan = folder_read(w->folder, "rank0.plan.json", &len);
    expect_load_error(1, GLM_EINVAL, "ranks 0 to 0, asked for rank 1");

    plan[len / 2] ^= 1; /* one bit of the plan */
    folder_write(w->folder, "rank0.plan.json", plan);
    expect_load_error(0, GLM_EPLAN, "was changed");
    plan[len / 2] ^= 1;
    folder_write(w->folder, "rank0.plan.json", plan);
    free(plan);

    w->launch.set_digest[0] = w->launch.set_digest[0] == '0' ? '1' : '0';
    write_launch(w);
    expect_load_error(0, GLM_EPLAN, "set");
    w->launch = launch;

    w->rank.device = "cuda:0";
    write_launch(w);
    expect_load_error(0, GLM_EPLAN, "launch.json names device cuda:0");
    w->rank = rank;

    w->rank.n_kernels--;
    write_launch(w);
    expect_load_error(0, GLM_EPLAN, "kernels, launch.json names");
    w->rank = rank;

    w->rank.plan_file = "absent.json";
    write_launch(w);
    expect_load_error(0, GLM_ENOTFOUND, "absent.json");
    w->rank = rank;

    w->launch.checkpoint_digest[5] = w->launch.checkpoint_digest[5] == '0' ? '1' : '0';
    write_launch(w);
    expect_open_error(GLM_ESTALE, "changed since it was planned");
    w->launch = launch;

    w->digest_text[0][0] = w->digest_text[0][0] == '0' ? '1' : '0';
    write_launch(w);
    expect_open_error(GLM_EKERNEL, "kernel");
    w->digest_text[0][0] = w->digest_text[0][0] == '0' ? '1' : '0';
    name_kernels(w);

    w->rank.memory_bytes = 32 << 20;
    write_launch(w);
    expect_open_error(GLM_ECAPACITY, "MiB");
    w->rank = rank;
    write_launch(w);

    folder_write(w->folder, "launch.json", "{");
    expect_load_error(0, GLM_EPLAN, "launch");
    write_launch(w);
}

int main(void)
{
#define SERVING(test) cmocka_unit_test_setup_teardown(test, serve, stop)
    const struct CMUnitTest tests[] = {
        SERVING(completions_equal_the_golden_replies),
        SERVING(eight_at_once_equal_the_golden_replies),
        SERVING(chats_equal_the_golden_replies_and_are_split),
        SERVING(sampled_replies_do_not_depend_on_their_neighbours),
        SERVING(statistics_are_one_json_object),
        SERVING(a_port_that_is_taken_is_refused_before_loading),
        cmocka_unit_test(a_broken_tokenizer_is_refused_before_loading),
        SERVING(a_restart_keeps_the_address),
        cmocka_unit_test(files_that_do_not_belong_together_are_refused),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
