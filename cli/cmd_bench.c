/* SPDX-License-Identifier: Apache-2.0 */
/* glmctl bench: decode and prefill speed of a running lane through its API, one CSV row a context
 * point and run. Random token ids as prompts, so that no text or tokenizer plays a part. Times are
 * the server's own. */
#include "cli/compile.h"
#include "cli/http_client.h"
#include "cli/lane.h"
#include "cli/progress.h"

#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>

struct bench_options {
    struct common_options common;
    const char *prompts;
    int64_t reply_tokens, runs;
};

static const struct opt_def bench_options[] = {
    COMMON_LANE_OPTION,
    {"prompts", 0, OPT_STR, offsetof(struct bench_options, prompts), "LIST", NULL,
     "prompt lengths in tokens (default 64,512,2048)", NULL, 0, 0},
    {"reply", 0, OPT_INT, offsetof(struct bench_options, reply_tokens), "N", NULL,
     "reply length in tokens (default 64)", NULL, 2, 100000},
    {"runs", 0, OPT_INT, offsetof(struct bench_options, runs), "N", NULL,
     "runs of each point (default 3)", NULL, 1, 1000},
    COMMON_OUTPUT_OPTION,
    COMMON_COLOR_OPTION,
    OPTIONS_END,
};

enum { DEFAULT_REPLY = 64, DEFAULT_RUNS = 3, REQUEST_TIMEOUT_S = 3600 };

static void prompt_body(uint32_t n_prompt, int64_t n_reply, uint32_t d_vocab, uint32_t seed,
                        struct buf *out)
{
    uint32_t state = seed * 2654435761u + 1;
    buf_clear(out);
    buf_str(out, "{\"prompt\":[");
    for (uint32_t i = 0; i < n_prompt; i++) {
        state = state * 1664525u + 1013904223u;
        buf_printf(out, "%s%u", i > 0 ? "," : "", (unsigned)(((uint64_t)state * d_vocab) >> 32));
    }
    buf_printf(out, "],\"max_tokens\":%lld,\"ignore_eos\":true,\"temperature\":0}",
               (long long)n_reply);
}

struct point {
    double queue_s, prefill_s, decode_s;
    double n_reply;
};

static enum glm_status read_point(const struct buf *answer, struct point *p, struct glm_error *err)
{
    cJSON *json = cJSON_ParseWithLength(buf_text(answer), answer->len);
    const cJSON *block = cJSON_GetObjectItemCaseSensitive(json, "glmctl");
    const cJSON *usage = cJSON_GetObjectItemCaseSensitive(json, "usage");
    const cJSON *queue = cJSON_GetObjectItemCaseSensitive(block, "queue_s");
    const cJSON *prefill = cJSON_GetObjectItemCaseSensitive(block, "prefill_s");
    const cJSON *decode = cJSON_GetObjectItemCaseSensitive(block, "decode_s");
    const cJSON *reply = cJSON_GetObjectItemCaseSensitive(usage, "completion_tokens");
    enum glm_status status = GLM_OK;
    if (cJSON_IsNumber(queue) && cJSON_IsNumber(prefill) && cJSON_IsNumber(decode) &&
        cJSON_IsNumber(reply))
        *p = (struct point){queue->valuedouble, prefill->valuedouble, decode->valuedouble,
                            reply->valuedouble};
    else
        status =
            glm_fail(err, GLM_EIO, "the lane's answer has no timings: %.200s", buf_text(answer));
    cJSON_Delete(json);
    return status;
}

struct bench {
    const struct bench_options *options;
    const struct glm_lane *lane;
    const char *url;
    uint32_t d_vocab;
    uint32_t n_points; /* printed so far */
};

static enum glm_status run_point(const struct bench *b, const struct buf *body, struct point *p,
                                 struct glm_error *err)
{
    struct buf where = {0}, answer = {0};
    long http_status = 0;
    buf_printf(&where, "%s/v1/completions", b->url);
    enum glm_status status =
        http_request(buf_text(&where), b->lane->api_key_file, buf_text(body), REQUEST_TIMEOUT_S,
                     &answer, &http_status, NULL, NULL, err);
    if (status == GLM_OK && http_status != 200)
        status = glm_fail(err, GLM_EIO, "the lane answered HTTP %ld: %.300s", http_status,
                          buf_text(&answer));
    if (status == GLM_OK)
        status = read_point(&answer, p, err);
    buf_release(&where);
    buf_release(&answer);
    return status;
}

static double rate(double n, double seconds)
{
    return seconds > 0 ? n / seconds : 0;
}

static void print_point(struct bench *b, unsigned long n_prompt, int64_t run, const struct point *p)
{
    const double ttft_ms = 1e3 * (p->queue_s + p->prefill_s);
    const double prefill = rate((double)n_prompt, p->prefill_s);
    const double decode = rate(p->n_reply - 1, p->decode_s);
    if (wants_json(&b->options->common))
        printf(
            "%s{\"prompt_tokens\": %lu, \"reply_tokens\": %.0f, \"run\": %lld, \"ttft_ms\": %.2f, "
            "\"prefill_tok_s\": %.1f, \"decode_tok_s\": %.1f}",
            b->n_points > 0 ? ", " : "", n_prompt, p->n_reply, (long long)run, ttft_ms, prefill,
            decode);
    else
        printf("%s,%u,%u,%lu,%.0f,%lld,%.2f,%.1f,%.1f\n", b->lane->name, b->lane->n_ranks,
               b->lane->window_tokens, n_prompt, p->n_reply, (long long)run, ttft_ms, prefill,
               decode);
    b->n_points++;
    fflush(stdout);
}

/* "64,512" from *list, which moves on; 0 at its end. */
static enum glm_status next_length(const struct bench *b, int64_t n_reply, const char **list,
                                   unsigned long *out, struct glm_error *err)
{
    const unsigned long most =
        b->lane->window_tokens > n_reply ? b->lane->window_tokens - (unsigned long)n_reply : 0;
    char *end;
    *out = 0;
    if (**list == '\0')
        return GLM_OK;
    unsigned long n = strtoul(*list, &end, 10);
    if (**list < '0' || **list > '9' || n == 0 || n > most || (*end != ',' && *end != '\0'))
        return glm_fail(err, GLM_EINVAL,
                        "'--prompts' wants lengths from 1 to %lu (window %u less reply %lld) with "
                        "commas, got '%.60s'",
                        most, b->lane->window_tokens, (long long)n_reply, *list);
    *list = *end == ',' ? end + 1 : end;
    *out = n;
    return GLM_OK;
}

static enum glm_status run_points(struct bench *b, const char *list, bool dry,
                                  struct glm_error *err)
{
    const struct bench_options *o = b->options;
    const int64_t n_reply = o->reply_tokens > 0 ? o->reply_tokens : DEFAULT_REPLY;
    const int64_t runs = o->runs > 0 ? o->runs : DEFAULT_RUNS;
    struct progress progress;
    struct buf body = {0};
    unsigned long n_prompt;
    enum glm_status status;
    progress_init(&progress);
    while ((status = next_length(b, n_reply, &list, &n_prompt, err)) == GLM_OK && n_prompt > 0) {
        for (int64_t run = 1; !dry && status == GLM_OK && run <= runs; run++) {
            struct point p = {0};
            progress_show(&progress, "prompt of %lu tokens, run %lld of %lld", n_prompt,
                          (long long)run, (long long)runs);
            prompt_body((uint32_t)n_prompt, n_reply, b->d_vocab, (uint32_t)run, &body);
            status = run_point(b, &body, &p, err);
            progress_end(&progress);
            if (status == GLM_OK)
                print_point(b, n_prompt, run, &p);
        }
        if (status != GLM_OK)
            break;
    }
    progress_end(&progress);
    buf_release(&body);
    return status;
}

static int run_lane(struct bench *b)
{
    const struct bench_options *o = b->options;
    const char *list = o->prompts != NULL ? o->prompts : "64,512,2048";
    const bool json = wants_json(&o->common);
    struct glm_error err = {0};
    if (run_points(b, list, true, &err) != GLM_OK) /* a bad list is told before a run */
        return fail_usage("bench", &err);
    if (json)
        printf("{\"format_version\": %d, \"lane\": \"%s\", \"ranks\": %u, \"window_tokens\": %u, "
               "\"points\": [",
               OUTPUT_FORMAT, b->lane->name, b->lane->n_ranks, b->lane->window_tokens);
    else
        puts("lane,ranks,window_tokens,prompt_tokens,reply_tokens,run,ttft_ms,prefill_tok_s,"
             "decode_tok_s");
    enum glm_status status = run_points(b, list, false, &err);
    if (json)
        printf("], \"complete\": %s}\n", status == GLM_OK ? "true" : "false");
    if (status == GLM_OK)
        return EXIT_DONE;
    const struct common_options as_text = {.color = o->common.color};
    return fail(&as_text, &err); /* the JSON has begun already */
}

static int run_bench(const void *options, const char *const *positional)
{
    const struct bench_options *o = options;
    struct glm_error err = {0};
    struct compiled c;
    struct buf folder = {0};
    struct lane_status s = {0};
    int rc = resolve_spec(&o->common, positional[0], &c);
    if (rc == EXIT_DONE &&
        (lane_folder(c.cluster->name, compiled_lane(&c)->name, &folder, &err) != GLM_OK ||
         lane_status_read(buf_text(&folder), &s, &err) != GLM_OK))
        rc = fail(&o->common, &err);
    if (rc == EXIT_DONE && !lane_is_live(&s)) {
        glm_fail(&err, GLM_ENOTFOUND, "lane '%s' is not live: it is %s", compiled_lane(&c)->name,
                 s.state);
        glm_error_hint(&err, "glmctl apply %.150s --lane %.60s", positional[0],
                       compiled_lane(&c)->name);
        rc = fail(&o->common, &err);
    }
    if (rc == EXIT_DONE) {
        struct bench b = {.options = o,
                          .lane = compiled_lane(&c),
                          .url = s.url,
                          .d_vocab = c.cluster->checkpoint->model.d_vocab};
        rc = run_lane(&b);
    }
    buf_release(&folder);
    compiled_release(&c);
    return rc;
}

const struct command command_bench = {
    .name = "bench",
    .arguments = "CLUSTER|PLAN",
    .summary = "measure decode and prefill of a running lane",
    .description = "Sends prompts of random token ids to a lane that is live, one after another, "
                   "and prints one\n"
                   "CSV row a run: time to first token, prefill and decode tokens a second, from "
                   "the server's\n"
                   "own clock.",
    .examples = "glmctl bench clusters/demo/demo.yaml\n"
                "glmctl bench clusters/demo/demo.yaml --lane tp2 --prompts 64,4096 --runs 5",
    .options = bench_options,
    .options_size = sizeof(struct bench_options),
    .n_positional_min = 1,
    .n_positional_max = 1,
    .run = run_bench,
};
