/* SPDX-License-Identifier: Apache-2.0 */
/* What the completion routes answer, streamed and not, and what happens when clients or the engine
 * leave meanwhile. Over the fake engine: replies are scripted or a function of prompt and seed. */
#include "tests/fake/http_world.h"

#include <cjson/cJSON.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include <cmocka.h>

#define CHAT       "/v1/chat/completions"
#define COMPLETION "/v1/completions"
#define HELLO      "\"messages\":[{\"role\":\"user\",\"content\":\"hello\"}]"
#define OFF        ",\"reasoning_effort\":\"none\""

/* ---- replies, read the same from both forms ---- */

struct reply {
    int status;
    char *id, *reasoning, *content, *finish, *calls, *ids, *stop, *error, *error_code;
    int prompt_tokens, completion_tokens, total_tokens, reasoning_tokens;
    /* streamed only */
    int n_events, n_usage, n_usage_null, n_comments;
    bool done;
};

static void reply_free(struct reply *r)
{
    char *texts[] = {r->id,  r->reasoning, r->content, r->finish,    r->calls,
                     r->ids, r->stop,      r->error,   r->error_code};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        free(texts[i]);
    *r = (struct reply){0};
}

static void append(char **text, const char *more)
{
    const size_t len = *text == NULL ? 0 : strlen(*text);
    *text = realloc(*text, len + strlen(more) + 1);
    assert_non_null(*text);
    strcpy(*text + len, more);
}

static void set(char **text, const cJSON *item)
{
    if (cJSON_IsString(item)) {
        free(*text);
        *text = NULL;
        append(text, item->valuestring);
    }
}

static const cJSON *get(const cJSON *object, const char *name)
{
    return cJSON_GetObjectItemCaseSensitive(object, name);
}

static void read_usage(struct reply *r, const cJSON *usage)
{
    if (!cJSON_IsObject(usage))
        return;
    r->n_usage++;
    r->prompt_tokens = get(usage, "prompt_tokens")->valueint;
    r->completion_tokens = get(usage, "completion_tokens")->valueint;
    r->total_tokens = get(usage, "total_tokens")->valueint;
    r->reasoning_tokens =
        get(get(usage, "completion_tokens_details"), "reasoning_tokens")->valueint;
    assert_int_equal(get(get(usage, "prompt_tokens_details"), "cached_tokens")->valueint, 0);
    assert_int_equal(r->total_tokens, r->prompt_tokens + r->completion_tokens);
}

/* "name(arguments)" of each call; ids must be new, indices must count. */
static void read_calls(struct reply *r, const cJSON *calls, bool streamed)
{
    const cJSON *call;
    cJSON_ArrayForEach(call, calls)
    {
        const cJSON *function = get(call, "function");
        char text[600];
        assert_int_equal(strlen(get(call, "id")->valuestring), 5 + 24);
        assert_memory_equal(get(call, "id")->valuestring, "call_", 5);
        assert_string_equal(get(call, "type")->valuestring, "function");
        snprintf(text, sizeof text, "%s(%s)", get(function, "name")->valuestring,
                 get(function, "arguments")->valuestring);
        if (streamed) {
            int n = 0;
            for (const char *c = r->calls; c != NULL && *c != '\0'; c++)
                n += *c == ')';
            assert_int_equal(get(call, "index")->valueint, n);
        }
        append(&r->calls, text);
    }
}

static void read_common(struct reply *r, const cJSON *body)
{
    if (get(body, "error") != NULL) {
        set(&r->error, get(get(body, "error"), "message"));
        set(&r->error_code, get(get(body, "error"), "code"));
        return;
    }
    if (r->id != NULL)
        assert_string_equal(r->id, get(body, "id")->valuestring);
    set(&r->id, get(body, "id"));
    assert_string_equal(get(body, "model")->valuestring, "pico");
    assert_true(get(body, "created")->valuedouble > 1.5e9);
    set(&r->stop, get(body, "stop_sequence"));
    const cJSON *ids = get(get(body, "glmctl"), "token_ids");
    if (ids != NULL)
        r->ids = cJSON_PrintUnformatted(ids);
    read_usage(r, get(body, "usage"));
}

static void read_whole(struct reply *r, const char *text)
{
    cJSON *body = cJSON_Parse(text);
    assert_non_null(body);
    read_common(r, body);
    const cJSON *choice = cJSON_GetArrayItem(get(body, "choices"), 0);
    const cJSON *message = get(choice, "message");
    set(&r->finish, get(choice, "finish_reason"));
    set(&r->content, message == NULL ? get(choice, "text") : get(message, "content"));
    set(&r->reasoning, get(message, "reasoning_content"));
    read_calls(r, get(message, "tool_calls"), false);
    cJSON_Delete(body);
}

/* One event; checks the order of docs/api.md. */
static void read_event(struct reply *r, const char *data, bool chat)
{
    assert_false(r->done);
    if (strcmp(data, "[DONE]") == 0) {
        r->done = true;
        return;
    }
    cJSON *body = cJSON_Parse(data);
    assert_non_null(body);
    read_common(r, body);
    const cJSON *choices = get(body, "choices"), *choice = cJSON_GetArrayItem(choices, 0);
    const cJSON *delta = get(choice, "delta"), *usage = get(body, "usage");
    r->n_usage_null += cJSON_IsNull(usage);
    if (r->error != NULL) {
        cJSON_Delete(body);
        return;
    }
    assert_string_equal(get(body, "object")->valuestring,
                        chat ? "chat.completion.chunk" : "text_completion");
    if (chat && r->n_events == 0)
        assert_string_equal(get(delta, "role")->valuestring, "assistant");
    else
        assert_null(get(delta, "role"));
    if (choice == NULL) /* the usage chunk comes last */
        assert_non_null(r->finish);
    else
        assert_null(r->finish);
    const cJSON *text = chat ? get(delta, "content") : get(choice, "text");
    if (get(delta, "reasoning_content") != NULL) {
        assert_true(r->content == NULL || *r->content == '\0');
        append(&r->reasoning, get(delta, "reasoning_content")->valuestring);
    }
    if (text != NULL && r->n_events > 0 - !chat)
        append(&r->content, text->valuestring);
    read_calls(r, get(delta, "tool_calls"), true);
    set(&r->finish, get(choice, "finish_reason"));
    if (chat && r->finish != NULL && choice != NULL)
        assert_int_equal(cJSON_GetArraySize(delta), 0); /* never with text or arguments */
    r->n_events++;
    cJSON_Delete(body);
}

static void read_stream(struct reply *r, char *text, bool chat)
{
    char *line = text, *end;
    while ((end = strstr(line, "\n\n")) != NULL) {
        *end = '\0';
        if (strncmp(line, "data: ", 6) == 0) {
            assert_null(strchr(line, '\n'));
            read_event(r, line + 6, chat);
        } else {
            assert_string_equal(line, ": keepalive");
            assert_false(r->done);
            r->n_comments++;
        }
        line = end + 2;
    }
    assert_string_equal(line, "");
}

static struct reply read_reply(int fd, bool chat)
{
    struct raw_answer a = raw_read(fd, false);
    struct reply r = {.status = a.status};
    const char *type = a.head[0] == '\0' ? NULL : raw_header(&a, "Content-Type");
    if (type != NULL && strcmp(type, "text/event-stream") == 0) {
        assert_string_equal(raw_header(&a, "Cache-Control"), "no-cache");
        assert_string_equal(raw_header(&a, "Connection"), "close");
        read_stream(&r, a.body, chat);
    } else if (a.status != 0) {
        read_whole(&r, a.body);
    }
    raw_answer_free(&a);
    return r;
}

/* Sends members of a body ("" for none) besides `more`; path decides the kind. */
static int start(struct http_world *w, const char *path, const char *members)
{
    char *json = NULL;
    assert_true(asprintf(&json, "{%s}", members) > 0);
    char *post = raw_post(path, json, "");
    const int fd = raw_connect(w->port);
    raw_send_text(fd, post);
    free(post);
    free(json);
    return fd;
}

static struct reply ask(struct http_world *w, const char *path, const char *members)
{
    const int fd = start(w, path, members);
    struct reply r = read_reply(fd, strcmp(path, CHAT) == 0);
    close(fd);
    return r;
}

static struct reply ask_stream(struct http_world *w, const char *path, const char *members)
{
    char *all = NULL;
    assert_true(asprintf(&all, "%s,\"stream\":true", members) > 0);
    struct reply r = ask(w, path, all);
    assert_true(r.done);
    free(all);
    return r;
}

static void assert_text(const char *got, const char *wanted)
{
    if ((got == NULL) != (wanted == NULL) || (got != NULL && strcmp(got, wanted) != 0))
        fail_msg("got '%s', wanted '%s'", got == NULL ? "(none)" : got,
                 wanted == NULL ? "(none)" : wanted);
}

static void assert_same(const struct reply *a, const struct reply *b)
{
    assert_text(a->reasoning, b->reasoning);
    assert_text(a->content == NULL ? "" : a->content, b->content == NULL ? "" : b->content);
    assert_text(a->finish, b->finish);
    assert_text(a->calls, b->calls);
    assert_text(a->ids, b->ids);
    assert_text(a->stop, b->stop);
    assert_int_equal(a->prompt_tokens, b->prompt_tokens);
    assert_int_equal(a->completion_tokens, b->completion_tokens);
    assert_int_equal(a->reasoning_tokens, b->reasoning_tokens);
}

/* Every reply is this text from now on. Returns its tokens. */
static uint32_t script(struct http_world *w, const char *text)
{
    struct glm_ids ids = {0};
    assert_int_equal(glm_tokenizer_encode(w->tokenizer, text, strlen(text), true, &ids), GLM_OK);
    fake_engine_script(w->engine, ids.ids, (uint32_t)ids.n);
    const uint32_t n = (uint32_t)ids.n;
    glm_ids_release(&ids);
    return n;
}

/* Both forms; they must agree. */
static struct reply ask_both(struct http_world *w, const char *path, const char *members)
{
    struct reply whole = ask(w, path, members), stream = ask_stream(w, path, members);
    if (whole.status != 200)
        fail_msg("%s: %d %s", members, whole.status, whole.error);
    assert_same(&whole, &stream);
    reply_free(&stream);
    return whole;
}

/* ---- content ---- */

static void a_stream_says_what_the_whole_reply_says(void **state)
{
    struct http_world *w = *state;
    for (int i = 0; i < 30; i++) {
        char members[400];
        snprintf(members, sizeof members,
                 "\"messages\":[{\"role\":\"user\",\"content\":\"number %d\"}],\"max_tokens\":%d,"
                 "\"return_token_ids\":true,\"seed\":%d,\"reasoning_effort\":\"none\"",
                 i, 5 + i * 2, i / 2);
        struct reply r = ask_both(w, CHAT, members);
        assert_true(r.completion_tokens <= 5 + i * 2);
        reply_free(&r);
        snprintf(members, sizeof members,
                 "\"prompt\":\"number %d\",\"max_tokens\":%d,\"return_token_ids\":true", i,
                 5 + i * 2);
        r = ask_both(w, COMPLETION, members);
        assert_memory_equal(r.id, "cmpl-", 5);
        reply_free(&r);
    }
}

static void usage_is_null_until_its_own_chunk_when_asked_for(void **state)
{
    struct http_world *w = *state;
    script(w, "a b c</think>d e f");
    struct reply r = ask_stream(w, CHAT, HELLO ",\"stream_options\":{\"include_usage\":true}");
    assert_int_equal(r.n_usage, 1);
    assert_int_equal(r.n_usage_null, r.n_events - 1);
    reply_free(&r);
    r = ask_stream(w, CHAT, HELLO);
    assert_int_equal(r.n_usage, 1);
    assert_int_equal(r.n_usage_null, 0);
    reply_free(&r);
}

static void reasoning_is_split_from_the_answer(void **state)
{
    struct http_world *w = *state;
    const uint32_t n = script(w, "Let me see.</think>\nThe <b>answer</b>.");
    struct reply r = ask_both(w, CHAT, HELLO);
    assert_text(r.reasoning, "Let me see.");
    assert_text(r.content, "The <b>answer</b>.");
    assert_text(r.finish, "stop");
    assert_int_equal(r.completion_tokens, n + 1); /* with the end id */
    assert_true(r.reasoning_tokens > 1 && r.reasoning_tokens < (int)n);
    reply_free(&r);
    /* thinking off: the prompt closes the block, a later tag is text */
    script(w, "No thought.");
    r = ask_both(w, CHAT, HELLO ",\"chat_template_kwargs\":{\"enable_thinking\":false}");
    assert_text(r.reasoning, NULL);
    assert_text(r.content, "No thought.");
    assert_int_equal(r.reasoning_tokens, 0);
    reply_free(&r);
    r = ask_both(w, CHAT, HELLO ",\"reasoning_effort\":\"none\"");
    assert_text(r.content, "No thought.");
    reply_free(&r);
}

static void an_answer_inside_an_open_think_block_is_content(void **state)
{
    struct http_world *w = *state;
    script(w, "Paris.");
    struct reply whole = ask(w, CHAT, HELLO), stream = ask_stream(w, CHAT, HELLO);
    assert_text(whole.reasoning, NULL);
    assert_text(whole.content, "Paris.");
    assert_text(stream.content, "Paris."); /* once more, after the reasoning it came as */
    assert_text(stream.reasoning, "Paris.");
    reply_free(&whole);
    reply_free(&stream);
    /* cut by the limit it stays reasoning */
    struct reply r = ask_both(w, CHAT, HELLO ",\"max_tokens\":2");
    assert_text(r.finish, "length");
    assert_text(r.content, "");
    assert_non_null(r.reasoning);
    assert_int_equal(r.completion_tokens, 2);
    reply_free(&r);
}

static void completions_show_every_token_but_the_end(void **state)
{
    struct http_world *w = *state;
    script(w, "a<think>b</think><tool_call>c<|assistant|>");
    struct reply r = ask_both(w, COMPLETION, "\"prompt\":\"x\"");
    assert_text(r.content, "a<think>b</think><tool_call>c<|assistant|>");
    assert_text(r.finish, "stop");
    reply_free(&r);
    /* with ignore_eos the end ids are part of it */
    r = ask_both(w, COMPLETION, "\"prompt\":\"x\",\"ignore_eos\":true,\"max_tokens\":12");
    assert_non_null(strstr(r.content, "<|assistant|><|user|>"));
    assert_text(r.finish, "length");
    assert_int_equal(r.completion_tokens, 12);
    reply_free(&r);
}

static void tool_calls_come_back_as_calls(void **state)
{
    struct http_world *w = *state;
    static const char tools[] =
        HELLO ",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"get_weather\","
              "\"parameters\":{\"type\":\"object\",\"properties\":{\"city\":{\"type\":\"string\"},"
              "\"days\":{\"type\":\"integer\"}}}}}]";
    char members[800];
    script(w, "Call.</think>On it.<tool_call>get_weather<arg_key>city</arg_key><arg_value>Os\"lo"
              "</arg_value><arg_key>days</arg_key><arg_value>3</arg_value></tool_call>"
              "<tool_call>get_weather</tool_call>");
    struct reply r = ask_both(w, CHAT, tools);
    assert_text(r.calls, "get_weather({\"city\":\"Os\\\"lo\",\"days\":3})get_weather({})");
    assert_text(r.content, "On it.");
    assert_text(r.finish, "tool_calls");
    reply_free(&r);
    snprintf(members, sizeof members, "%s,\"parallel_tool_calls\":false", tools);
    r = ask_both(w, CHAT, members);
    assert_text(r.calls, "get_weather({\"city\":\"Os\\\"lo\",\"days\":3})");
    reply_free(&r);
    /* not offered: text */
    snprintf(members, sizeof members, "%s,\"tool_choice\":\"none\"", tools);
    r = ask_both(w, CHAT, members);
    assert_text(r.calls, NULL);
    assert_text(r.finish, "stop");
    assert_non_null(strstr(r.content, "get_weather"));
    reply_free(&r);
    /* cut within a call: it is not sent */
    snprintf(members, sizeof members, "%s,\"max_tokens\":12", tools);
    r = ask_both(w, CHAT, members);
    assert_text(r.calls, NULL);
    assert_text(r.finish, "length");
    reply_free(&r);
}

/* Character by character over token borders; the match is not shown, what follows not counted. */
static void stop_strings_cut_the_visible_answer(void **state)
{
    struct http_world *w = *state;
    static const char text[] = "STOP it</think>The quick brown fox jumps over the lazy dog";
    const uint32_t n = script(w, text);
    static const char *const stops[] = {"brown", "n fox j", "STOP", "T", "dog", " over", "cat"};
    const char *answer = strstr(text, "</think>") + 8;
    for (size_t i = 0; i < sizeof stops / sizeof stops[0]; i++) {
        char members[200], expected[100];
        const char *at = strstr(answer, stops[i]);
        snprintf(members, sizeof members, HELLO ",\"stop\":[\"%s\",\"no such text\"]", stops[i]);
        struct reply r = ask_both(w, CHAT, members);
        snprintf(expected, sizeof expected, "%.*s",
                 (int)(at == NULL ? strlen(answer) : (size_t)(at - answer)), answer);
        assert_text(r.content, expected);
        assert_text(r.reasoning, "STOP it");
        assert_text(r.stop, at == NULL ? NULL : stops[i]);
        assert_text(r.finish, "stop");
        if (at != NULL && at[strlen(stops[i])] != '\0')
            assert_true(r.completion_tokens < (int)n);
        reply_free(&r);
    }
    struct reply r = ask_both(w, COMPLETION, "\"prompt\":\"x\",\"stop\":\"think>The\"");
    assert_text(r.content, "STOP it</");
    assert_text(r.stop, "think>The");
    reply_free(&r);
    WAIT_FOR(w, stats.running == 0);
    assert_int_equal(glm_scheduler_stats(w->scheduler).canceled_total, 0);
}

static void lengths_are_kept_exactly(void **state)
{
    struct http_world *w = *state;
    struct reply r = ask_both(w, CHAT,
                              HELLO OFF ",\"ignore_eos\":true,\"max_tokens\":100,"
                                        "\"min_tokens\":100,\"stop\":[]");
    assert_int_equal(r.completion_tokens, 100);
    assert_text(r.finish, "length");
    reply_free(&r);
    r = ask_both(w, CHAT,
                 HELLO OFF ",\"min_tokens\":\"60\",\"max_completion_tokens\":90,"
                           "\"max_tokens\":95");
    assert_int_equal(r.completion_tokens, 61);
    reply_free(&r);
    r = ask_both(w, CHAT,
                 HELLO OFF ",\"min_tokens\":500,\"max_completion_tokens\":90,"
                           "\"max_tokens\":null");
    assert_int_equal(r.completion_tokens, 90);
    reply_free(&r);
}

static void the_same_request_has_the_same_reply(void **state)
{
    struct http_world *w = *state;
    static const char *const requests[][2] = {
        /* the default seed is the prompt's, however the prompt is sent */
        {COMPLETION, "\"prompt\":\"<|user|>What is\",\"return_token_ids\":true"},
        {COMPLETION, "\"prompt\":[2019,489,321],\"return_token_ids\":true"},
        {COMPLETION, "\"prompt\":[\"<|user|>What is\"],\"return_token_ids\":true,\"seed\":null"},
        {COMPLETION, "\"prompt\":[[2019,489,321]],\"return_token_ids\":true,\"temperature\":0.3"},
        {COMPLETION, "\"prompt\":[2019,489,321],\"return_token_ids\":true,\"seed\":1"},
        {COMPLETION, "\"prompt\":[2019,489,321],\"return_token_ids\":true,\"seed\":\"1\""},
        {COMPLETION, "\"prompt\":[2019,489,321],\"return_token_ids\":true,"
                     "\"seed\":18446744073709551615"},
        {COMPLETION, "\"prompt\":[2019,489,321],\"return_token_ids\":true,\"seed\":-1"},
    };
    char *ids[8];
    for (size_t i = 0; i < 8; i++) {
        struct reply r = ask_both(w, requests[i][0], requests[i][1]);
        ids[i] = strdup(r.ids);
        reply_free(&r);
    }
    for (size_t i = 1; i < 4; i++)
        assert_string_equal(ids[0], ids[i]);
    assert_string_not_equal(ids[0], ids[4]);
    assert_string_equal(ids[4], ids[5]);
    assert_string_not_equal(ids[4], ids[6]);
    assert_string_equal(ids[6], ids[7]);
    int32_t expected[64];
    char text[600] = "[";
    const int32_t prompt[] = {2019, 489, 321};
    const uint32_t n = fake_engine_reply(prompt, 3, 1, expected, 64);
    for (uint32_t i = 0; i < n; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%d", i > 0 ? "," : "",
                 expected[i]);
    strcat(text, "]");
    assert_string_equal(ids[4], text);
    for (size_t i = 0; i < 8; i++)
        free(ids[i]);
}

/* ---- many at once ---- */

struct crowd {
    struct http_world *w;
    int i;
    struct reply reply;
};

static void *ask_in_crowd(void *argument)
{
    struct crowd *c = argument;
    char members[200];
    snprintf(members, sizeof members,
             "\"prompt\":[%d,7,8],\"max_tokens\":60,\"return_token_ids\":true%s", c->i,
             c->i % 2 == 0 ? ",\"stream\":true" : "");
    c->reply = ask(c->w, COMPLETION, members);
    return NULL;
}

static void sixty_four_clients_get_what_each_gets_alone(void **state)
{
    struct http_world *w = *state;
    enum { N = 64 };
    static struct crowd crowd[N];
    pthread_t threads[N];
    fake_engine_slow(w->engine, 100);
    for (int i = 0; i < N; i++) {
        crowd[i] = (struct crowd){.w = w, .i = i};
        assert_int_equal(pthread_create(&threads[i], NULL, ask_in_crowd, &crowd[i]), 0);
    }
    for (int i = 0; i < N; i++)
        pthread_join(threads[i], NULL);
    fake_engine_slow(w->engine, 0);
    for (int i = 0; i < N; i++) {
        struct crowd alone = {.w = w, .i = i};
        ask_in_crowd(&alone);
        assert_int_equal(crowd[i].reply.status, 200);
        assert_same(&crowd[i].reply, &alone.reply);
        reply_free(&crowd[i].reply);
        reply_free(&alone.reply);
    }
}

/* ---- clients that leave, and slow ones ---- */

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static const char long_reply[] =
    "\"prompt\":[5,6],\"ignore_eos\":true,\"max_tokens\":500,\"stream\":";

static void who_leaves_while_decoding_frees_the_stream(void **state)
{
    struct http_world *w = *state;
    fake_engine_slow(w->engine, 2000);
    for (int i = 0; i < 6; i++) {
        char members[200];
        snprintf(members, sizeof members, "%s%s", long_reply, i % 2 == 0 ? "true" : "false");
        const int fd = start(w, COMPLETION, members);
        WAIT_FOR(w, stats.decoding == 1);
        if (i < 2)
            close(fd); /* an end */
        else if (i < 4)
            shutdown(fd, SHUT_WR); /* half an end is one too */
        else {
            const struct linger reset = {.l_onoff = 1};
            setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
            close(fd); /* a reset */
        }
        const double began = now_s();
        WAIT_FOR(w, stats.running == 0 && stats.pool_free_tokens == stats.pool_tokens);
        assert_true(now_s() - began < 2);
        if (i >= 2 && i < 4)
            close(fd);
        assert_int_equal(glm_scheduler_stats(w->scheduler).canceled_total, i + 1);
    }
}

static void who_leaves_the_queue_is_gone_at_once(void **state)
{
    struct http_world *w = *state;
    char members[200];
    int busy[4];
    snprintf(members, sizeof members, "%strue", long_reply);
    fake_engine_hold(w->engine); /* rounds stand still: nothing but the queue can move */
    for (int i = 0; i < 4; i++)
        busy[i] = start(w, COMPLETION, members);
    fake_engine_wait_held(w->engine);
    WAIT_FOR(w, stats.requests_total == 4);
    const uint32_t waiting = glm_scheduler_stats(w->scheduler).waiting;
    double fastest = 10;
    for (int i = 0; i < 4; i++) {
        snprintf(members, sizeof members, "%s%s", long_reply, i % 2 == 0 ? "true" : "false");
        const int fd = start(w, COMPLETION, members);
        WAIT_FOR(w, stats.waiting == waiting + 1);
        close(fd);
        const double began = now_s();
        WAIT_FOR(w, stats.waiting == waiting);
        fastest = now_s() - began < fastest ? now_s() - began : fastest;
    }
    assert_true(fastest < 0.2); /* of four, for a machine that is busy */
    for (int i = 0; i < 4; i++)
        close(busy[i]);
    fake_engine_slow(w->engine, 2000); /* slow enough to notice that they left */
    fake_engine_let_go(w->engine);
    WAIT_FOR(w, stats.running + stats.waiting == 0);
    assert_int_equal(glm_scheduler_stats(w->scheduler).canceled_total, 8);
}

static void who_leaves_while_filling_ends_after_the_slice(void **state)
{
    (void)state;
    struct http_world *w = http_world_new(&(struct http_world_options){
        .engine = {.window = 8192, .n_extents = 16, .prefill_rows = 64}});
    char *members = malloc(40000);
    assert_non_null(members);
    strcpy(members, "\"prompt\":[1");
    for (int i = 0; i < 6000; i++)
        strcpy(members + 11 + 2 * i, ",1");
    strcat(members, "],\"max_tokens\":5");
    fake_engine_slow(w->engine, 5000);
    const int fd = start(w, COMPLETION, members);
    WAIT_FOR(w, stats.filling == 1);
    close(fd);
    WAIT_FOR(w, stats.running == 0);
    assert_true(fake_engine_counts(w->engine).n_lists < 60); /* of 94 slices */
    assert_int_equal(glm_scheduler_stats(w->scheduler).completion_tokens_total, 0);
    free(members);
    http_world_free(w);
}

static void a_client_that_does_not_read_holds_nobody(void **state)
{
    (void)state;
    struct http_world *w = http_world_new(
        &(struct http_world_options){.engine = {.n_streams = 1, .window = 16384, .n_extents = 8}});
    const int fd = start(w, COMPLETION,
                         "\"prompt\":[5],\"ignore_eos\":true,\"max_tokens\":4000,"
                         "\"stream\":true");
    WAIT_FOR(w, stats.requests_total == 1 && stats.running == 0 && stats.waiting == 0);
    struct reply r = ask(w, COMPLETION, "\"prompt\":[6]");
    assert_int_equal(r.status, 200);
    reply_free(&r);
    r = read_reply(fd, false); /* and it still gets all of it */
    assert_true(r.done);
    assert_int_equal(r.completion_tokens, 4000);
    reply_free(&r);
    close(fd);
    http_world_free(w);
}

/* Waiting for the engine is not stalling; taking nothing of an answer larger than all buffers is.
 */
static void only_who_takes_nothing_is_cut(void **state)
{
    (void)state;
    struct http_world *w = http_world_new(&(struct http_world_options){
        .engine = {.n_streams = 2, .window = 1 << 17, .n_extents = 128}, .limits = {.stall_s = 1}});
    const int fd = start(w, COMPLETION,
                         "\"prompt\":[5],\"ignore_eos\":true,\"max_tokens\":120000,"
                         "\"stream\":true");
    WAIT_FOR(w, stats.requests_total == 1 && stats.running + stats.waiting == 0);
    fake_engine_hold(w->engine);
    const int stream = start(w, CHAT, HELLO ",\"max_tokens\":3,\"stream\":true");
    const int whole = start(w, CHAT, HELLO ",\"max_tokens\":3");
    usleep(3500000);
    fake_engine_let_go(w->engine);
    struct reply r = read_reply(stream, true);
    assert_true(r.done);
    reply_free(&r);
    r = read_reply(whole, true);
    assert_int_equal(r.status, 200);
    reply_free(&r);
    struct raw_answer a = raw_read(fd, false);
    assert_true(a.cut);
    raw_answer_free(&a);
    close(fd);
    close(stream);
    close(whole);
    http_world_free(w);
}

static void a_silent_stream_is_kept_alive_and_not_after_its_end(void **state)
{
    (void)state;
    struct http_world *w =
        http_world_new(&(struct http_world_options){.limits = {.keepalive_ms = 60}});
    fake_engine_hold(w->engine);
    const int fd = start(w, CHAT, HELLO ",\"max_tokens\":3,\"stream\":true");
    const int whole = start(w, CHAT, HELLO ",\"max_tokens\":3"); /* must stay silent */
    usleep(400000);
    fake_engine_let_go(w->engine);
    struct reply r = read_reply(fd, true);
    assert_true(r.done);
    assert_in_range(r.n_comments, 1, 7); /* one on a machine that is busy */
    reply_free(&r);
    r = read_reply(whole, true);
    assert_int_equal(r.status, 200);
    reply_free(&r);
    close(fd);
    close(whole);
    http_world_free(w);
}

/* ---- the engine leaves ---- */

static void a_lost_rank_ends_replies_with_an_error_and_health_says_so(void **state)
{
    (void)state;
    struct http_world *w = http_world_new(&(struct http_world_options){0});
    fake_engine_slow(w->engine, 1000);
    const int stream = start(w, CHAT,
                             HELLO ",\"ignore_eos\":true,\"max_tokens\":400,"
                                   "\"stream\":true");
    const int whole = start(w, CHAT, HELLO ",\"ignore_eos\":true,\"max_tokens\":400");
    WAIT_FOR(w, stats.decoding == 2);
    fake_engine_fail_after(w->engine, 5);
    struct reply r = read_reply(stream, true);
    assert_int_equal(r.status, 200);
    assert_text(r.error, "rank 1 was lost");
    assert_text(r.error_code, "engine_dead");
    assert_true(r.done);
    assert_text(r.finish, NULL);
    reply_free(&r);
    r = read_reply(whole, true);
    assert_int_equal(r.status, 500);
    assert_text(r.error, "rank 1 was lost");
    assert_text(r.error_code, "engine_dead");
    reply_free(&r);
    r = ask(w, CHAT, HELLO ",\"stream\":true");
    assert_int_equal(r.status, 503); /* before any event */
    assert_text(r.error_code, "engine_dead");
    reply_free(&r);
    struct raw_answer a = raw_ask(w->port, "GET /health HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_int_equal(a.status, 503);
    assert_non_null(strstr(a.body, "\"ok\":false"));
    raw_answer_free(&a);
    a = raw_ask(w->port, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_non_null(strstr(a.body, "\nglmctl_up 0\n"));
    raw_answer_free(&a);
    close(stream);
    close(whole);
    http_world_free(w);
}

static void stopping_ends_replies_with_an_error(void **state)
{
    (void)state;
    struct http_world *w = http_world_new(&(struct http_world_options){0});
    int fds[8];
    fake_engine_slow(w->engine, 1000);
    for (int i = 0; i < 8; i++) {
        char members[200];
        snprintf(members, sizeof members, "%s%s", long_reply, i % 2 == 0 ? "true" : "false");
        fds[i] = start(w, COMPLETION, members);
    }
    WAIT_FOR(w, stats.decoding == 4 && stats.waiting == 4);
    glm_scheduler_stop(w->scheduler);
    glm_http_detach(w->http, "it is stopping");
    for (int i = 0; i < 8; i++) {
        struct reply r = read_reply(fds[i], false);
        assert_int_equal(r.status, i % 2 == 0 ? 200 : 503);
        assert_text(r.error, "the server is stopping");
        assert_text(r.error_code, "server_stopping");
        assert_int_equal(r.done, i % 2 == 0);
        reply_free(&r);
        close(fds[i]);
    }
    http_world_free(w);
}

/* A client that never reads must not hold up a restart. */
static void detaching_cuts_clients_that_do_not_read(void **state)
{
    (void)state;
    struct http_world *w = http_world_new(
        &(struct http_world_options){.engine = {.n_streams = 2, .window = 65536, .n_extents = 64}});
    const int small = 4096;
    const int fd = raw_connect(w->port);
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    char *post = raw_post(COMPLETION,
                          "{\"prompt\":[5],\"ignore_eos\":true,\"max_tokens\":60000,"
                          "\"stream\":true}",
                          "");
    raw_send_text(fd, post);
    WAIT_FOR(w, stats.requests_total == 1 && stats.running + stats.waiting == 0);
    glm_scheduler_stop(w->scheduler);
    const double began = now_s();
    glm_http_detach(w->http, "it restarts");
    assert_in_range((long)(1000 * (now_s() - began)), 0, 30000);
    struct reply r = ask(w, COMPLETION, "\"prompt\":[6]");
    assert_int_equal(r.status, 503);
    reply_free(&r);
    close(fd);
    free(post);
    http_world_free(w);
}

/* Clients come, go and stay while the lane is taken away and given back. */
struct coming_and_going {
    struct http_world *w;
    _Atomic bool stop;
    _Atomic int n_answered;
};

static void *come_and_go(void *argument)
{
    struct coming_and_going *c = argument;
    for (unsigned i = 0; !c->stop; i++) {
        char members[200];
        snprintf(members, sizeof members,
                 "\"prompt\":[%u,7],\"ignore_eos\":true,\"max_tokens\":50,\"stream\":%s", i % 50,
                 i % 2 == 0 ? "true" : "false");
        const int fd = start(c->w, COMPLETION, members);
        if (i % 3 == 0) {
            usleep(i % 7 * 200);
        } else {
            struct reply r = read_reply(fd, false);
            c->n_answered += r.status == 200 || r.status == 503;
            reply_free(&r);
        }
        close(fd);
    }
    return NULL;
}

static void lanes_come_and_go_under_load(void **state)
{
    (void)state;
    struct http_world *w = http_world_new(&(struct http_world_options){0});
    struct coming_and_going c = {.w = w};
    pthread_t threads[4];
    fake_engine_slow(w->engine, 200);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, come_and_go, &c), 0);
    for (int i = 0; i < 10; i++) {
        struct glm_error err = {0};
        usleep(60000);
        glm_scheduler_stop(w->scheduler);
        glm_http_detach(w->http, "it restarts");
        glm_scheduler_free(w->scheduler); /* a request that still used it would be seen */
        struct glm_engine *old = w->engine;
        w->engine = fake_engine_new(&(struct fake_options){0});
        fake_engine_slow(w->engine, 200);
        assert_int_equal(
            glm_scheduler_new(w->engine, fake_engine_plan(w->engine), &w->scheduler, &err), GLM_OK);
        http_world_attach(w);
        if (i > 0)
            fake_engine_free(old); /* the first holds the plan that the server borrows */
        else
            w->first = old;
    }
    c.stop = true;
    for (size_t i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    assert_true(c.n_answered > 50);
    http_world_free(w);
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
        WITH_WORLD(a_stream_says_what_the_whole_reply_says),
        WITH_WORLD(usage_is_null_until_its_own_chunk_when_asked_for),
        WITH_WORLD(reasoning_is_split_from_the_answer),
        WITH_WORLD(an_answer_inside_an_open_think_block_is_content),
        WITH_WORLD(completions_show_every_token_but_the_end),
        WITH_WORLD(tool_calls_come_back_as_calls),
        WITH_WORLD(stop_strings_cut_the_visible_answer),
        WITH_WORLD(lengths_are_kept_exactly),
        WITH_WORLD(the_same_request_has_the_same_reply),
        WITH_WORLD(sixty_four_clients_get_what_each_gets_alone),
        WITH_WORLD(who_leaves_while_decoding_frees_the_stream),
        WITH_WORLD(who_leaves_the_queue_is_gone_at_once),
        cmocka_unit_test(who_leaves_while_filling_ends_after_the_slice),
        cmocka_unit_test(a_client_that_does_not_read_holds_nobody),
        cmocka_unit_test(only_who_takes_nothing_is_cut),
        cmocka_unit_test(a_silent_stream_is_kept_alive_and_not_after_its_end),
        cmocka_unit_test(a_lost_rank_ends_replies_with_an_error_and_health_says_so),
        cmocka_unit_test(stopping_ends_replies_with_an_error),
        cmocka_unit_test(detaching_cuts_clients_that_do_not_read),
        cmocka_unit_test(lanes_come_and_go_under_load),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
