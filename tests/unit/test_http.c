/* SPDX-License-Identifier: Apache-2.0 */
/* Routes, framing, keys, errors and clients of the HTTP server, with raw bytes on real sockets.
 * What a completion answers is in test_http_reply.c. */
#include "tests/fake/http_world.h"
#include "tests/support/folder.h"

#include <cjson/cJSON.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <cmocka.h>

#define GET(path) "GET " path " HTTP/1.1\r\nHost: x\r\n\r\n"

static const char completion[] = "{\"prompt\":[5,6,7],\"max_tokens\":3}";

/* An answer whose body is the error object with all four members. */
static void check_error(const struct raw_answer *a, int status, const char *type, const char *param,
                        const char *code, const char *word)
{
    assert_int_equal(a->status, status);
    assert_string_equal(raw_header(a, "Content-Type"), "application/json");
    assert_non_null(raw_header(a, "Content-Length"));
    cJSON *body = cJSON_Parse(a->body);
    const cJSON *error = cJSON_GetObjectItemCaseSensitive(body, "error");
    assert_int_equal(cJSON_GetArraySize(error), 4);
    const char *const names[] = {"type", "param", "code"}, *const wanted[] = {type, param, code};
    for (size_t i = 0; i < 3; i++) {
        const cJSON *item = cJSON_GetObjectItemCaseSensitive(error, names[i]);
        assert_non_null(item);
        if (wanted[i] == NULL)
            assert_true(cJSON_IsNull(item));
        else
            assert_string_equal(cJSON_GetStringValue(item), wanted[i]);
    }
    const char *message = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(error, "message"));
    assert_non_null(message);
    if (strstr(message, word) == NULL)
        fail_msg("'%s' does not hold '%s'", message, word);
    cJSON_Delete(body);
}

static void expect_error(struct http_world *w, const char *request, int status, const char *type,
                         const char *param, const char *code, const char *word)
{
    struct raw_answer a = raw_ask(w->port, request);
    check_error(&a, status, type, param, code, word);
    raw_answer_free(&a);
}

static void expect_post_error(struct http_world *w, const char *path, const char *json,
                              const char *param, const char *code, const char *word)
{
    char *request = raw_post(path, json, "");
    struct raw_answer a = raw_ask(w->port, request);
    if (a.status != 400)
        fail_msg("%s was answered with %d: %s", json, a.status, a.body);
    check_error(&a, 400, "invalid_request_error", param, code, word);
    raw_answer_free(&a);
    free(request);
}

/* ---- routes ---- */

static void both_prefixes_slashes_and_queries_reach_a_route(void **state)
{
    struct http_world *w = *state;
    static const char *const paths[] = {"/v1/models",      "/models",          "/v1/models/",
                                        "/models/?beta=1", "/v1/models?x=/y/", "/v1/models/pico",
                                        "/models/pic%6f/", "/health",          "/v1/health",
                                        "/metrics",        "/v1/metrics/"};
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        char request[128];
        snprintf(request, sizeof request, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", paths[i]);
        struct raw_answer a = raw_ask(w->port, request);
        if (a.status != 200)
            fail_msg("%s was answered with %d", paths[i], a.status);
        assert_string_equal(raw_header(&a, "Access-Control-Allow-Origin"), "*");
        raw_answer_free(&a);
    }
}

static void the_catalogue_lists_one_model_with_its_window(void **state)
{
    struct http_world *w = *state;
    struct raw_answer a = raw_ask(w->port, GET("/v1/models"));
    cJSON *body = cJSON_Parse(a.body);
    const cJSON *data = cJSON_GetObjectItem(body, "data");
    assert_int_equal(cJSON_GetArraySize(data), 1);
    const cJSON *model = cJSON_GetArrayItem(data, 0);
    assert_string_equal(cJSON_GetStringValue(cJSON_GetObjectItem(model, "id")), "pico");
    assert_string_equal(cJSON_GetStringValue(cJSON_GetObjectItem(model, "owned_by")), "glmctl");
    assert_true(cJSON_IsNumber(cJSON_GetObjectItem(model, "created")));
    assert_int_equal(cJSON_GetObjectItem(model, "max_model_len")->valueint, 512);
    assert_int_equal(cJSON_GetObjectItem(model, "context_length")->valueint, 512);
    cJSON_Delete(body);
    raw_answer_free(&a);
    expect_error(w, GET("/v1/models/other"), 404, "invalid_request_error", "model",
                 "model_not_found", "'other'");
}

static void unknown_paths_are_404_and_wrong_methods_405(void **state)
{
    struct http_world *w = *state;
    static const char *const unknown[] = {
        "/slots", "/", "/v1", "/v1/v1/models", "/chat", "//models", "/models/pico/x%0a%22y"};
    for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; i++) {
        char request[128];
        snprintf(request, sizeof request, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", unknown[i]);
        struct raw_answer a = raw_ask(w->port, request);
        assert_int_equal(a.status, 404);
        cJSON *body = cJSON_Parse(a.body);
        assert_non_null(body);
        cJSON_Delete(body);
        raw_answer_free(&a);
    }
    struct raw_answer a = raw_ask(w->port, GET("/v1/chat/completions"));
    check_error(&a, 405, "invalid_request_error", NULL, NULL, "use POST");
    assert_string_equal(raw_header(&a, "Allow"), "POST, OPTIONS");
    raw_answer_free(&a);
    a = raw_ask(w->port, "DELETE /v1/models HTTP/1.1\r\nHost: x\r\n\r\n");
    check_error(&a, 405, "invalid_request_error", NULL, NULL, "use GET");
    assert_string_equal(raw_header(&a, "Allow"), "GET, HEAD, OPTIONS");
    raw_answer_free(&a);
}

static void head_has_the_headers_of_get_and_no_body(void **state)
{
    struct http_world *w = *state;
    const int fd = raw_connect(w->port);
    raw_send_text(fd, "HEAD /v1/models HTTP/1.1\r\nHost: x\r\n\r\n" GET("/v1/models"));
    struct raw_answer head = raw_read(fd, true), get = raw_read(fd, false);
    char length[32];
    assert_int_equal(head.status, 200);
    assert_int_equal(get.status, 200);
    snprintf(length, sizeof length, "%s", raw_header(&head, "Content-Length"));
    assert_string_equal(length, raw_header(&get, "Content-Length"));
    raw_answer_free(&head);
    raw_answer_free(&get);
    close(fd);
}

static void options_tells_browsers_what_they_may_send(void **state)
{
    struct http_world *w = *state;
    struct raw_answer a =
        raw_ask(w->port, "OPTIONS /v1/chat/completions HTTP/1.1\r\nHost: x\r\nOrigin: http://y\r\n"
                         "Access-Control-Request-Method: POST\r\n\r\n");
    assert_int_equal(a.status, 204);
    assert_string_equal(raw_header(&a, "Access-Control-Allow-Origin"), "*");
    assert_string_equal(raw_header(&a, "Access-Control-Allow-Headers"), "Authorization, *");
    assert_non_null(strstr(raw_header(&a, "Access-Control-Allow-Methods"), "POST"));
    raw_answer_free(&a);
}

static void health_and_metrics_show_the_lane(void **state)
{
    struct http_world *w = *state;
    char *request = raw_post("/v1/completions", completion, "");
    struct raw_answer a = raw_ask(w->port, request);
    assert_int_equal(a.status, 200);
    raw_answer_free(&a);
    free(request);
    a = raw_ask(w->port, GET("/health"));
    cJSON *body = cJSON_Parse(a.body);
    assert_int_equal(a.status, 200);
    assert_true(cJSON_IsTrue(cJSON_GetObjectItem(body, "ok")));
    assert_true(cJSON_IsBool(cJSON_GetObjectItem(body, "busy")));
    assert_int_equal(cJSON_GetObjectItem(body, "requests_total")->valueint, 1);
    assert_int_equal(cJSON_GetObjectItem(body, "prompt_tokens_total")->valueint, 3);
    assert_int_equal(cJSON_GetObjectItem(body, "completion_tokens_total")->valueint, 3);
    assert_int_equal(cJSON_GetObjectItem(body, "context_length")->valueint, 512);
    assert_int_equal(cJSON_GetObjectItem(cJSON_GetObjectItem(body, "streams"), "max")->valueint, 4);
    cJSON_Delete(body);
    raw_answer_free(&a);
    a = raw_ask(w->port, GET("/metrics"));
    assert_int_equal(a.status, 200);
    assert_string_equal(raw_header(&a, "Content-Type"), "text/plain; version=0.0.4; charset=utf-8");
    assert_non_null(strstr(a.body, "\nglmctl_generation_tokens_total 3\n"));
    assert_non_null(strstr(a.body, "\nvllm:generation_tokens_total{model_name=\"pico\"} 3\n"));
    assert_non_null(strstr(a.body, "\nglmctl_up 1\n"));
    raw_answer_free(&a);
}

/* Value of the sample whose line begins with `name` and a space. */
static double sample(const char *body, const char *name)
{
    char line[200];
    snprintf(line, sizeof line, "\n%s ", name);
    const char *at = strstr(body, line);
    if (at == NULL)
        fail_msg("no sample '%s'", name);
    return strtod(at + strlen(line), NULL);
}

/* Buckets are cumulative, and the last holds all. */
static void assert_histogram(const char *body, const char *family, double count)
{
    char name[200];
    double before = 0;
    uint32_t n = 0;
    snprintf(name, sizeof name, "\nvllm:%s_bucket{model_name=\"pico\",le=\"", family);
    for (const char *at = strstr(body, name); at != NULL; at = strstr(at + 1, name), n++) {
        double value = strtod(strstr(at, "\"} ") + 3, NULL);
        assert_true(value >= before);
        before = value;
    }
    assert_true(n > 10);
    assert_true(before == count);
    snprintf(name, sizeof name, "vllm:%s_count{model_name=\"pico\"}", family);
    assert_true(sample(body, name) == count);
    snprintf(name, sizeof name, "glmctl_%s_bucket{le=\"+Inf\"}", family);
    assert_true(sample(body, name) == count);
    snprintf(name, sizeof name, "\n# TYPE glmctl_%s histogram\n", family);
    assert_non_null(strstr(body, name));
}

static void latencies_are_counted_by_interval(void **state)
{
    struct http_world *w = *state;
    static const struct {
        const char *family;
        double count;
    } families[] = {
        {"time_to_first_token_seconds", 2}, {"inter_token_latency_seconds", 4},
        {"request_queue_time_seconds", 2},  {"request_prefill_time_seconds", 2},
        {"request_decode_time_seconds", 2}, {"request_inference_time_seconds", 2},
        {"e2e_request_latency_seconds", 2},
    };
    fake_engine_slow(w->engine, 30 * 1000); /* a round */
    for (int i = 0; i < 2; i++) {
        char *request = raw_post("/v1/completions", completion, "");
        struct raw_answer a = raw_ask(w->port, request);
        assert_int_equal(a.status, 200);
        raw_answer_free(&a);
        free(request);
    }
    struct raw_answer a = raw_ask(w->port, GET("/metrics"));
    assert_int_equal(a.status, 200);
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++)
        assert_histogram(a.body, families[i].family, families[i].count);
    /* Two replies of three tokens, a round of 30 ms each. */
    assert_true(sample(a.body, "glmctl_inter_token_latency_seconds_bucket{le=\"0.025\"}") == 0);
    assert_true(sample(a.body, "glmctl_time_to_first_token_seconds_bucket{le=\"0.02\"}") == 0);
    assert_true(sample(a.body, "glmctl_inter_token_latency_seconds_sum") >= 0.12);
    double total = sample(a.body, "glmctl_e2e_request_latency_seconds_sum");
    double parts = sample(a.body, "glmctl_request_queue_time_seconds_sum") +
                   sample(a.body, "glmctl_request_prefill_time_seconds_sum") +
                   sample(a.body, "glmctl_request_decode_time_seconds_sum");
    assert_true(total >= 0.18 && total - parts < 1e-6 && parts - total < 1e-6);
    raw_answer_free(&a);
}

/* ---- bodies ---- */

static void a_body_is_read_however_it_is_framed(void **state)
{
    struct http_world *w = *state;
    static const char *const requests[] = {
        "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 33\r\n\r\n"
        "{\"prompt\":[5,6,7],\"max_tokens\":3}",
        "POST /completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json; charset=utf-8\r\n"
        "Transfer-Encoding: chunked\r\n\r\n"
        "1\r\n{\r\n2\r\n\"p\r\n1e\r\nrompt\":[5,6,7],\"max_tokens\":3}\r\n0\r\nTrailer: "
        "x\r\n\r\n",
        "POST /v1/completions/?q HTTP/1.1\r\nHost: x\r\nContent-Type: text/json\r\n"
        "Content-Length: 33\r\nConnection: close\r\n\r\n{\"prompt\":[5,6,7],\"max_tokens\":3}",
        "POST /v1/completions HTTP/1.0\r\nContent-Length: 33\r\n\r\n"
        "{\"prompt\":[5,6,7],\"max_tokens\":3}",
    };
    for (size_t i = 0; i < sizeof requests / sizeof requests[0]; i++) {
        struct raw_answer a = raw_ask(w->port, requests[i]);
        if (a.status != 200)
            fail_msg("request %zu was answered with %d: %s", i, a.status, a.body);
        assert_non_null(strstr(a.body, "\"completion_tokens\":3"));
        raw_answer_free(&a);
    }
}

/* The reply without what differs from request to request. */
static char *reply_text(const struct raw_answer *a)
{
    cJSON *body = cJSON_Parse(a->body);
    assert_non_null(body);
    char *text = cJSON_PrintUnformatted(cJSON_GetObjectItem(body, "choices"));
    cJSON_Delete(body);
    return text;
}

static void a_request_cut_at_every_offset_gives_the_same_reply(void **state)
{
    struct http_world *w = *state;
    static const char request[] =
        "POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        "10\r\n{\"prompt\":[5,6,7\r\n12\r\n],\"max_tokens\":20}\r\n0\r\n\r\n";
    struct raw_answer whole = raw_ask(w->port, request);
    assert_int_equal(whole.status, 200);
    char *expected = reply_text(&whole);
    raw_answer_free(&whole);
    const int fd = raw_connect(w->port); /* one connection: each request must end where it ends */
    for (size_t cut = 1; cut < sizeof request - 1; cut++) {
        raw_send(fd, request, cut);
        usleep(300);
        raw_send(fd, request + cut, sizeof request - 1 - cut);
        struct raw_answer a = raw_read(fd, false);
        assert_int_equal(a.status, 200);
        char *text = reply_text(&a);
        assert_string_equal(text, expected);
        free(text);
        raw_answer_free(&a);
    }
    close(fd);
    free(expected);
}

static void pipelined_requests_are_answered_in_order(void **state)
{
    struct http_world *w = *state;
    char *post = raw_post("/v1/completions", completion, ""), *all = NULL;
    assert_true(asprintf(&all, "%s%s%s%s", post, GET("/nothing"), post, GET("/health")) > 0);
    const int fd = raw_connect(w->port);
    raw_send_text(fd, all);
    static const int expected[] = {200, 404, 200, 200};
    for (size_t i = 0; i < 4; i++) {
        struct raw_answer a = raw_read(fd, false);
        assert_int_equal(a.status, expected[i]);
        raw_answer_free(&a);
    }
    close(fd);
    free(all);
    free(post);
}

/* The dropped body must not be taken for the next request. */
static void a_refused_body_is_dropped_and_the_connection_goes_on(void **state)
{
    struct http_world *w = *state;
    static const char *const refused[] = {
        "POST /nothing HTTP/1.1\r\nHost: x\r\nContent-Length: 33\r\n\r\n" GET("/health"),
        "POST /models HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        "21\r\n" GET("/health") "\r\n0\r\n\r\n",
        "PUT /completions HTTP/1.1\r\nHost: x\r\nContent-Length: 33\r\n\r\n" GET("/health"),
        "POST /completions HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\n"
        "Content-Length: 33\r\n\r\n" GET("/health"),
        "GET /nothing HTTP/1.1\r\nHost: x\r\nContent-Length: 33\r\n\r\n" GET("/health"),
        "OPTIONS /x HTTP/1.1\r\nHost: x\r\nContent-Length: 33\r\n\r\n" GET("/health"),
    };
    static const int status[] = {404, 405, 405, 415, 404, 204};
    assert_int_equal(strlen(GET("/health")), 33);
    const int fd = raw_connect(w->port);
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        raw_send_text(fd, refused[i]);
        struct raw_answer a = raw_read(fd, false);
        assert_int_equal(a.status, status[i]);
        assert_null(raw_header(&a, "Connection"));
        raw_answer_free(&a);
    }
    raw_send_text(fd, GET("/v1/models"));
    struct raw_answer a = raw_read(fd, false);
    assert_int_equal(a.status, 200);
    assert_non_null(strstr(a.body, "\"list\""));
    raw_answer_free(&a);
    close(fd);
}

static void wrong_content_types_and_codings_are_415(void **state)
{
    struct http_world *w = *state;
    static const char *const types[] = {
        "Content-Type: application/x-www-form-urlencoded", "Content-Type: application/jsonp",
        "Content-Type: text/plain", "Content-Type: application/json\r\nContent-Encoding: gzip"};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        char request[256];
        snprintf(request, sizeof request,
                 "POST /v1/completions HTTP/1.1\r\nHost: x\r\n%s\r\nContent-Length: 2\r\n\r\n{}",
                 types[i]);
        expect_error(w, request, 415, "invalid_request_error", NULL, NULL, "content");
    }
}

static void an_uncertain_end_of_a_request_closes_the_connection(void **state)
{
    struct http_world *w = *state;
    static const char *const requests[] = {
        ("POST /completions HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n"
         "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        "POST /completions HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
        "POST /completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n{}",
        "POST /completions HTTP/1.1\r\nHost: x\r\nContent-Length: -2\r\n\r\n{}",
        "POST /completions HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999999\r\n\r\n",
    };
    for (size_t i = 0; i < sizeof requests / sizeof requests[0]; i++) {
        const int fd = raw_connect(w->port);
        raw_send_text(fd, requests[i]);
        struct raw_answer a = raw_read(fd, false);
        if (a.status < 400 || a.status >= 500)
            fail_msg("request %zu was answered with %d", i, a.status);
        raw_answer_free(&a);
        /* libmicrohttpd's own refusals repeat their head; what matters is that it closes and does
         * not answer what follows */
        raw_send_text(fd, GET("/health"));
        char rest[4096] = "";
        const ssize_t n = recv(fd, rest, sizeof rest - 1, MSG_WAITALL);
        assert_true(n < (ssize_t)sizeof rest - 1);
        assert_null(strstr(rest, "200 OK"));
        close(fd);
    }
}

static void bodies_over_the_limit_are_413(void **state)
{
    (void)state;
    struct http_world *w = http_world_new(&(struct http_world_options){.max_body_bytes = 1000});
    char body[2100], request[2400], fits[1001];
    memset(body, ' ', sizeof body);
    memset(fits, ' ', sizeof fits);
    /* exactly the limit is read */
    memcpy(fits, completion, strlen(completion));
    fits[1000] = '\0';
    char *post = raw_post("/v1/completions", fits, "");
    struct raw_answer a = raw_ask(w->port, post);
    assert_int_equal(a.status, 200);
    raw_answer_free(&a);
    free(post);
    snprintf(request, sizeof request,
             "POST /completions HTTP/1.1\r\nHost: x\r\nContent-Length: 1001\r\n\r\n%.1001s", body);
    expect_error(w, request, 413, "invalid_request_error", NULL, "request_too_large", "1000 bytes");
    snprintf(request, sizeof request,
             "POST /completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
             "3e9\r\n%.1001s\r\n0\r\n\r\n",
             body);
    expect_error(w, request, 413, "invalid_request_error", NULL, "request_too_large", "1000 bytes");
    /* far over: answered before it is sent, and the connection ends */
    const int fd = raw_connect(w->port);
    raw_send_text(fd, "POST /completions HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n");
    a = raw_read(fd, false);
    check_error(&a, 413, "invalid_request_error", NULL, "request_too_large", "1000 bytes");
    assert_string_equal(raw_header(&a, "Connection"), "close");
    raw_answer_free(&a);
    assert_true(raw_closed(fd));
    close(fd);
    /* chunks without an end: cut at twice the limit */
    const int endless = raw_connect(w->port);
    raw_send_text(endless,
                  "POST /completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
    snprintf(request, sizeof request, "7d0\r\n%.2000s\r\n", body);
    raw_send_text(endless, request);
    raw_send_text(endless, request);
    assert_true(raw_closed(endless));
    close(endless);
    http_world_free(w);
}

static void many_large_bodies_share_one_budget(void **state)
{
    (void)state;
    enum { N = 8, BODY = 6 << 20, PIECE = 1 << 20 };
    struct http_world *w = http_world_new(&(struct http_world_options){
        .max_body_bytes = 8 << 20, .limits = {.held_bytes = 32 << 20}});
    char head[128], *piece = malloc(PIECE);
    int fds[N], refused = 0;
    assert_non_null(piece);
    memset(piece, ' ', PIECE);
    snprintf(head, sizeof head,
             "POST /completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", BODY);
    for (int i = 0; i < N; i++) {
        fds[i] = raw_connect(w->port);
        raw_send_text(fds[i], head);
        for (int at = 0; at < BODY - PIECE; at += PIECE)
            raw_send(fds[i], piece, PIECE);
    }
    for (int i = 0; i < N; i++) {
        raw_send(fds[i], piece, PIECE);
        struct raw_answer a = raw_read(fds[i], false);
        refused += a.status == 429;
        if (a.status == 429)
            check_error(&a, 429, "rate_limit_error", NULL, "server_busy", "try again");
        else
            assert_int_equal(a.status, 400); /* spaces are no JSON */
        raw_answer_free(&a);
        close(fds[i]);
    }
    assert_true(refused > 0);
    free(piece);
    char *post = raw_post("/v1/completions", completion, "");
    struct raw_answer a = raw_ask(w->port, post);
    assert_int_equal(a.status, 200); /* all of it came back */
    raw_answer_free(&a);
    free(post);
    http_world_free(w);
}

static void what_is_not_json_is_400(void **state)
{
    struct http_world *w = *state;
    static const char *const paths[] = {"/v1/completions", "/v1/chat/completions", "/tokenize",
                                        "/detokenize"};
    for (size_t i = 0; i < 4; i++) {
        expect_post_error(w, paths[i], "{\"prompt\":", NULL, NULL, "not JSON");
        expect_post_error(w, paths[i], "", NULL, NULL, "not JSON");
        expect_post_error(w, paths[i], "[1]", NULL, NULL, "JSON object");
        expect_post_error(w, paths[i], "{} {}", NULL, NULL, "not JSON");
    }
}

static void a_body_of_too_many_values_is_413(void **state)
{
    (void)state;
    struct http_world *w =
        http_world_new(&(struct http_world_options){.limits = {.held_bytes = 32 << 20}});
    const size_t n = 1 << 19;
    char *json = malloc(n + 64);
    assert_non_null(json);
    size_t len = (size_t)sprintf(json, "{\"x\":[1");
    while (len < n)
        len += (size_t)sprintf(json + len, ",1");
    sprintf(json + len, "]}");
    char *post = raw_post("/v1/completions", json, "");
    struct raw_answer a = raw_ask(w->port, post);
    check_error(&a, 413, "invalid_request_error", NULL, "request_too_large", "too many values");
    raw_answer_free(&a);
    free(post);
    free(json);
    http_world_free(w);
}

/* ---- keys ---- */

static void requests_without_a_key_are_401_and_unknown_paths_still_404(void **state)
{
    (void)state;
    char *folder = folder_new();
    folder_write(folder, "keys", "# people\nsecret-1\n\n  secret-2  # agents\n");
    struct http_world *w =
        http_world_new(&(struct http_world_options){.key_file = folder_path(folder, "keys")});
    static const struct {
        const char *headers;
        int status;
    } cases[] = {
        {"", 401},
        {"Authorization: Bearer secret-1\r\n", 200},
        {"authorization: bearer secret-2\r\n", 200},
        {"x-api-key: secret-2\r\n", 200},
        {"Authorization: Bearer secret\r\n", 401},
        {"Authorization: Bearer secret-11\r\n", 401},
        {"Authorization: Bearer # people\r\n", 401},
        {"Authorization: Bearer \r\n", 401},
        {"Authorization: Basic secret-1\r\n", 401},
        {"Authorization: Bearer wrong\r\nx-api-key: secret-1\r\n", 401},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *post = raw_post("/v1/completions", completion, cases[i].headers);
        struct raw_answer a = raw_ask(w->port, post);
        if (a.status != cases[i].status)
            fail_msg("'%s' was answered with %d", cases[i].headers, a.status);
        if (a.status == 401) {
            check_error(&a, 401, "invalid_request_error", NULL, "invalid_api_key", "API key");
            assert_string_equal(raw_header(&a, "WWW-Authenticate"), "Bearer");
        }
        raw_answer_free(&a);
        free(post);
    }
    static const struct {
        const char *request;
        int status;
    } open[] = {{GET("/health"), 200},
                {GET("/slots"), 404},
                {GET("/metrics"), 401},
                {GET("/v1/models"), 401},
                {"OPTIONS /v1/models HTTP/1.1\r\nHost: x\r\n\r\n", 204}};
    for (size_t i = 0; i < sizeof open / sizeof open[0]; i++) {
        struct raw_answer a = raw_ask(w->port, open[i].request);
        assert_int_equal(a.status, open[i].status);
        raw_answer_free(&a);
    }
    http_world_free(w);
    folder_remove(folder);
}

static void a_large_body_is_not_read_before_the_key_is_known(void **state)
{
    (void)state;
    char *folder = folder_new();
    folder_write(folder, "keys", "k\n");
    struct http_world *w =
        http_world_new(&(struct http_world_options){.key_file = folder_path(folder, "keys")});
    /* waits to be asked for its body: it is not */
    int fd = raw_connect(w->port);
    raw_send_text(fd, "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 33\r\n"
                      "Expect: 100-continue\r\n\r\n");
    struct raw_answer a = raw_read(fd, false);
    assert_int_equal(a.status, 401);
    assert_string_equal(raw_header(&a, "Connection"), "close");
    raw_answer_free(&a);
    assert_true(raw_closed(fd));
    close(fd);
    /* does not wait: answered all the same */
    fd = raw_connect(w->port);
    raw_send_text(fd, "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 900000\r\n\r\n");
    a = raw_read(fd, false);
    assert_int_equal(a.status, 401);
    raw_answer_free(&a);
    assert_true(raw_closed(fd));
    close(fd);
    /* with the key it is asked for */
    fd = raw_connect(w->port);
    raw_send_text(fd, "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 33\r\n"
                      "x-api-key: k\r\nExpect: 100-continue\r\n\r\n");
    a = raw_read(fd, false);
    assert_int_equal(a.status, 100);
    raw_answer_free(&a);
    raw_send_text(fd, completion);
    a = raw_read(fd, false);
    assert_int_equal(a.status, 200);
    raw_answer_free(&a);
    close(fd);
    http_world_free(w);
    folder_remove(folder);
}

static void a_key_file_without_keys_is_refused(void **state)
{
    (void)state;
    char *folder = folder_new();
    folder_write(folder, "keys", "# none\n\n");
    struct glm_engine *engine = fake_engine_new(&(struct fake_options){0});
    struct glm_launch_file launch = {.listen_host = "127.0.0.1",
                                     .api_key_file = folder_path(folder, "keys")};
    struct glm_http *http;
    struct glm_error err = {0};
    uint16_t port;
    assert_int_equal(glm_http_start(&launch, fake_engine_plan(engine), &http, &port, &err),
                     GLM_EINVAL);
    assert_non_null(strstr(err.message, "holds no key"));
    launch.api_key_file = folder_path(folder, "absent");
    assert_int_equal(glm_http_start(&launch, fake_engine_plan(engine), &http, &port, &err),
                     GLM_ENOTFOUND);
    fake_engine_free(engine);
    folder_remove(folder);
}

/* ---- the lane comes and goes ---- */

static void a_port_that_is_taken_is_named(void **state)
{
    struct http_world *w = *state;
    struct glm_launch_file launch = w->launch;
    struct glm_http *http;
    struct glm_error err = {0};
    uint16_t port;
    launch.listen_port = w->port;
    assert_int_equal(glm_http_start(&launch, fake_engine_plan(w->engine), &http, &port, &err),
                     GLM_EBUSY);
    char word[32];
    snprintf(word, sizeof word, "127.0.0.1:%u", w->port);
    assert_non_null(strstr(err.message, word));
    assert_non_null(strstr(err.hint, "ss -ltnp"));
}

static void without_a_lane_requests_are_503_until_it_is_attached(void **state)
{
    (void)state;
    struct http_world *w = http_world_new(&(struct http_world_options){.not_attached = true});
    char *post = raw_post("/v1/completions", completion, "");
    struct raw_answer a = raw_ask(w->port, post);
    check_error(&a, 503, "unavailable_error", NULL, NULL, "it is loading");
    assert_string_equal(raw_header(&a, "Retry-After"), "5");
    raw_answer_free(&a);
    a = raw_ask(w->port, GET("/health"));
    assert_int_equal(a.status, 503);
    assert_string_equal(a.body, "{\"ok\":false,\"state\":\"it is loading\"}");
    raw_answer_free(&a);
    a = raw_ask(w->port, GET("/metrics"));
    assert_int_equal(a.status, 200);
    assert_non_null(strstr(a.body, "\nglmctl_up 0\n"));
    assert_null(strstr(a.body, "pool_tokens"));
    raw_answer_free(&a);
    http_world_attach(w);
    a = raw_ask(w->port, post);
    assert_int_equal(a.status, 200);
    raw_answer_free(&a);
    glm_http_detach(w->http, "it restarts");
    a = raw_ask(w->port, post);
    check_error(&a, 503, "unavailable_error", NULL, NULL, "it restarts");
    raw_answer_free(&a);
    http_world_attach(w);
    a = raw_ask(w->port, post);
    assert_int_equal(a.status, 200);
    raw_answer_free(&a);
    free(post);
    http_world_free(w);
}

/* ---- slow clients ---- */

static void who_sends_headers_or_bodies_too_slowly_is_cut(void **state)
{
    (void)state;
    struct http_world *w =
        http_world_new(&(struct http_world_options){.limits = {.idle_ms = 300, .body_ms = 300}});
    const int headers = raw_connect(w->port), body = raw_connect(w->port),
              idle = raw_connect(w->port), patient = raw_connect(w->port);
    raw_send_text(body, "POST /completions HTTP/1.1\r\nHost: x\r\nContent-Length: 33\r\n\r\n{");
    fake_engine_hold(w->engine);
    char *post = raw_post("/v1/completions", completion, "");
    raw_send_text(patient, post); /* who waits for an answer is not cut */
    for (int i = 0; i < 12; i++) {
        raw_send(headers, &"GET /health HTTP/1.1\r\nHost: x\r\n"[i], 1);
        raw_send(body, &"\"prompt\":[5,6,7]"[i], 1);
        usleep(50000);
    }
    assert_true(raw_closed(headers));
    assert_true(raw_closed(body));
    assert_true(raw_closed(idle));
    fake_engine_let_go(w->engine);
    struct raw_answer a = raw_read(patient, false);
    assert_int_equal(a.status, 200);
    raw_answer_free(&a);
    close(headers);
    close(body);
    close(idle);
    close(patient);
    free(post);
    http_world_free(w);
}

static void headers_without_end_are_refused(void **state)
{
    struct http_world *w = *state;
    const int fd = raw_connect(w->port);
    char line[1024];
    memset(line, 'a', sizeof line);
    line[1] = ':';
    line[1022] = '\r';
    line[1023] = '\n';
    raw_send_text(fd, "GET /health HTTP/1.1\r\nHost: x\r\n");
    for (int i = 0; i < 200; i++)
        raw_send(fd, line, sizeof line);
    struct raw_answer a = raw_read(fd, false);
    assert_true(a.status == 0 || a.status == 431 || a.status == 413 || a.status == 400);
    raw_answer_free(&a);
    close(fd);
}

/* ---- bad fields over the wire ---- */

static void bad_fields_name_the_field(void **state)
{
    struct http_world *w = *state;
    expect_post_error(w, "/v1/completions", "{}", "prompt", NULL, "missing");
    expect_post_error(w, "/v1/completions", "{\"prompt\":\"\"}", "prompt", NULL, "empty");
    expect_post_error(w, "/v1/completions", "{\"prompt\":[]}", "prompt", NULL, "empty");
    expect_post_error(w, "/v1/completions", "{\"prompt\":[1,2048]}", "prompt", NULL, "entry 1");
    expect_post_error(w, "/v1/completions", "{\"prompt\":[1,-1]}", "prompt", NULL, "entry 1");
    expect_post_error(w, "/v1/completions", "{\"prompt\":[1,2.5]}", "prompt", NULL, "entry 1");
    expect_post_error(w, "/v1/completions", "{\"prompt\":[1,\"a\"]}", "prompt", NULL, "entry 1");
    expect_post_error(w, "/v1/completions", "{\"prompt\":[\"a\",\"b\"]}", "prompt", NULL,
                      "2 prompts");
    expect_post_error(w, "/v1/completions", "{\"prompt\":[[[1]]]}", "prompt", NULL, "entry 0");
    expect_post_error(w, "/v1/completions", "{\"prompt\":{}}", "prompt", NULL, "token ids");
    expect_post_error(w, "/v1/completions", "{\"prompt\":\"a\",\"n\":2}", "n",
                      "unsupported_parameter", "'n'");
    expect_post_error(w, "/v1/chat/completions", "{\"messages\":[]}", "messages", NULL, "empty");
    expect_post_error(w, "/v1/chat/completions",
                      "{\"messages\":[{\"role\":\"user\",\"content\":5}]}", "messages", NULL,
                      "content");
    expect_post_error(w, "/v1/chat/completions",
                      "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\","
                      "\"image_url\":{\"url\":\"data:\"}}]}]}",
                      "messages", "unsupported_parameter", "vision");
    expect_post_error(w, "/detokenize", "{}", "tokens", NULL, "tokens");
    expect_post_error(w, "/detokenize", "{\"tokens\":[1,[],2]}", "tokens", NULL, "entry 1");
    expect_post_error(w, "/detokenize", "{\"tokens\":[99999999999999]}", "tokens", NULL, "entry 0");
    expect_post_error(w, "/tokenize", "{}", NULL, NULL, "missing");
    expect_post_error(w, "/tokenize", "{\"prompt\":5}", "prompt", NULL, "string");
    expect_post_error(w, "/tokenize", "{\"messages\":[{\"role\":\"king\"}]}", "messages", NULL,
                      "role");
}

static void prompts_over_the_window_say_so_in_words_agents_know(void **state)
{
    struct http_world *w = *state;
    char json[4000] = "{\"prompt\":[1", tail[64];
    for (int i = 1; i < 512; i++)
        strcat(json, ",1");
    strcat(json, "]}");
    expect_post_error(w, "/v1/completions", json, "prompt", "context_length_exceeded",
                      "maximum context length is 512 tokens");
    /* room for one: the default length is cut, a given one is not */
    char *end = strrchr(json, ',');
    strcpy(end, "]}");
    char *post = raw_post("/v1/completions", json, "");
    struct raw_answer a = raw_ask(w->port, post);
    assert_int_equal(a.status, 200);
    assert_non_null(strstr(a.body, "\"completion_tokens\":1"));
    raw_answer_free(&a);
    free(post);
    /* text that cannot fit is not tokenized first */
    char *long_text = malloc(600000);
    assert_non_null(long_text);
    memset(long_text, 'a', 600000);
    memcpy(long_text, "{\"prompt\":\"", 11);
    strcpy(long_text + 590000, "\"}");
    expect_post_error(w, "/v1/completions", long_text, "prompt", "context_length_exceeded",
                      "at least");
    free(long_text);
    snprintf(tail, sizeof tail, "],\"max_tokens\":2}");
    strcpy(end, tail);
    expect_post_error(w, "/v1/completions", json, "prompt", "context_length_exceeded",
                      "maximum context length is 512 tokens");
}

/* ---- tokenizer ---- */

static void tokenizes_prompts_and_messages_and_back(void **state)
{
    struct http_world *w = *state;
    static const struct {
        const char *path, *json, *expected;
    } cases[] = {
        {"/tokenize", "{\"prompt\":\"<|user|>Hi<|assistant|></think>\"}",
         "\"count\":5,\"max_model_len\":512,\"tokens\":[2019,39,72,2020,2034]"},
        {"/v1/tokenize", "{\"content\":\"<|user|>\"}", "\"tokens\":[2019],\"token_strs\":null}"},
        {"/tokenize", "{\"prompt\":\"<|user|>\",\"return_token_strs\":true}",
         "\"token_strs\":[\"<|user|>\"]}"},
        {"/tokenize",
         "{\"prompt\":null,\"messages\":[{\"role\":\"user\",\"content\":\"What is the capital of "
         "Japan?\"}],\"chat_template_kwargs\":{\"enable_thinking\":false}}",
         "\"tokens\":[2014,2016,2019,489,321,259,868,342,1508,30,2020,2033,2034]"},
        {"/tokenize",
         "{\"messages\":[{\"role\":\"user\",\"content\":\"What is the capital of Japan?\"}],"
         "\"chat_template_kwargs\":{\"enable_thinking\":false},\"add_generation_prompt\":false}",
         "\"tokens\":[2014,2016,2019,489,321,259,868,342,1508,30]"},
        {"/tokenize",
         "{\"messages\":[{\"role\":\"user\",\"content\":\"Count from 1 to 30.\"}],"
         "\"reasoning_effort\":\"minimal\"}",
         "[2014,2016,2018,367,368,25,502,2019,915,821,220,16,281,220,886,13,2020,2033]"},
        {"/detokenize", "{\"tokens\":[2019,489,321]}", "{\"prompt\":\"<|user|>What is\"}"},
        {"/v1/detokenize", "{\"tokens\":[]}", "{\"prompt\":\"\"}"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *post = raw_post(cases[i].path, cases[i].json, "");
        struct raw_answer a = raw_ask(w->port, post);
        assert_int_equal(a.status, 200);
        if (strstr(a.body, cases[i].expected) == NULL)
            fail_msg("%s gave %s", cases[i].json, a.body);
        raw_answer_free(&a);
        free(post);
    }
}

static int setup(void **state)
{
    *state = http_world_new(&(struct http_world_options){0});
    return 0;
}

static int teardown(void **state)
{
    http_world_free(*state);
    return 0;
}

int main(void)
{
#define WITH_WORLD(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
    const struct CMUnitTest tests[] = {
        WITH_WORLD(both_prefixes_slashes_and_queries_reach_a_route),
        WITH_WORLD(the_catalogue_lists_one_model_with_its_window),
        WITH_WORLD(unknown_paths_are_404_and_wrong_methods_405),
        WITH_WORLD(head_has_the_headers_of_get_and_no_body),
        WITH_WORLD(options_tells_browsers_what_they_may_send),
        WITH_WORLD(health_and_metrics_show_the_lane),
        WITH_WORLD(latencies_are_counted_by_interval),
        WITH_WORLD(a_body_is_read_however_it_is_framed),
        WITH_WORLD(a_request_cut_at_every_offset_gives_the_same_reply),
        WITH_WORLD(pipelined_requests_are_answered_in_order),
        WITH_WORLD(a_refused_body_is_dropped_and_the_connection_goes_on),
        WITH_WORLD(wrong_content_types_and_codings_are_415),
        WITH_WORLD(an_uncertain_end_of_a_request_closes_the_connection),
        cmocka_unit_test(bodies_over_the_limit_are_413),
        cmocka_unit_test(many_large_bodies_share_one_budget),
        WITH_WORLD(what_is_not_json_is_400),
        cmocka_unit_test(a_body_of_too_many_values_is_413),
        cmocka_unit_test(requests_without_a_key_are_401_and_unknown_paths_still_404),
        cmocka_unit_test(a_large_body_is_not_read_before_the_key_is_known),
        cmocka_unit_test(a_key_file_without_keys_is_refused),
        WITH_WORLD(a_port_that_is_taken_is_named),
        cmocka_unit_test(without_a_lane_requests_are_503_until_it_is_attached),
        cmocka_unit_test(who_sends_headers_or_bodies_too_slowly_is_cut),
        WITH_WORLD(headers_without_end_are_refused),
        WITH_WORLD(bad_fields_name_the_field),
        WITH_WORLD(prompts_over_the_window_say_so_in_words_agents_know),
        WITH_WORLD(tokenizes_prompts_and_messages_and_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
