/* SPDX-License-Identifier: Apache-2.0 */
/* glmctl bench: decode and prefill speed of a running lane through its API, one CSV row a context
 * point and run. Random token ids as prompts, so that no text or tokenizer plays a part. */
#include "cli/http_client.h"
#include "cli/lane.h"
#include "cli/progress.h"
#include "cli/target.h"

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

static enum glm_status run_point(const struct target *t, const char *url, const struct buf *body,
                                 struct point *p, struct glm_error *err)
{
    struct buf where = {0}, answer = {0};
    long http_status = 0;
    buf_printf(&where, "%s/v1/completions", url);
    enum glm_status status =
        http_request(buf_text(&where), t->lane->api_key_file, buf_text(body), REQUEST_TIMEOUT_S,
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

static enum glm_status run_points(const struct bench_options *o, const struct target *t,
                                  const char *url, struct glm_error *err)
{
    const int64_t n_reply = o->reply_tokens > 0 ? o->reply_tokens : DEFAULT_REPLY;
    const int64_t runs = o->runs > 0 ? o->runs : DEFAULT_RUNS;
    const char *list = o->prompts != NULL ? o->prompts : "64,512,2048";
    struct progress progress;
    struct buf body = {0};
    enum glm_status status = GLM_OK;
    progress_init(&progress);
    puts("prompt_tokens,reply_tokens,run,ttft_ms,prefill_tok_s,decode_tok_s");
    while (status == GLM_OK && *list != '\0') {
        char *end;
        unsigned long n_prompt = strtoul(list, &end, 10);
        if (end == list || n_prompt == 0 || n_prompt > t->lane->window_tokens ||
            (*end != ',' && *end != '\0')) {
            status = glm_fail(err, GLM_EINVAL,
                              "'--prompts' wants lengths from 1 to %u with commas, got '%s'",
                              t->lane->window_tokens, list);
            break;
        }
        list = *end == ',' ? end + 1 : end;
        for (int64_t run = 0; status == GLM_OK && run < runs; run++) {
            struct point p = { 0 };
            progress_show(&progress, "prompt of %lu tokens, run %lld of %lld", n_prompt,
                          (long long)run + 1, (long long)runs);
            prompt_body((uint32_t)n_prompt, n_reply, t->compiled.cluster->checkpoint->model.d_vocab,
                        (uint32_t)run + 1, &body);
            status = run_point(t, url, &body, &p, err);
            if (status == GLM_OK)
                printf("%lu,%.0f,%lld,%.2f,%.1f,%.1f\n", n_prompt, p.n_reply, (long long)run + 1,
                       1e3 * (p.queue_s + p.prefill_s), (double)n_prompt / p.prefill_s,
                       (p.n_reply - 1) / p.decode_s);
            fflush(stdout);
        }
    }
    progress_done(&progress, "bench done");
    buf_release(&body);
    return status;
}

static int run_bench(const void *options, const char *const *positional)
{
    const struct bench_options *o = options;
    struct glm_error err = {0};
    struct target t;
    struct lane_status s = {0};
    int rc = target_find(&o->common, "bench", positional[0], &t);
    if (rc == EXIT_DONE && lane_status_read(buf_text(&t.folder), &s, &err) != GLM_OK)
        rc = fail(&o->common, &err);
    if (rc == EXIT_DONE && !lane_is_live(&s)) {
        glm_fail(&err, GLM_ENOTFOUND, "lane '%s' is not live: %s", t.lane->name,
                 s.running ? s.state : "not running");
        glm_error_hint(&err, "glmctl apply %s --lane %s", positional[0], t.lane->name);
        rc = fail(&o->common, &err);
    }
    if (rc == EXIT_DONE && run_points(o, &t, s.url, &err) != GLM_OK)
        rc = err.status == GLM_EINVAL ? fail_usage("bench", &err) : fail(&o->common, &err);
    lane_status_release(&s);
    target_release(&t);
    return rc;
}

const struct command command_bench = {
    .name = "bench",
    .arguments = "CLUSTER",
    .summary = "measure decode and prefill of a running lane",
    .description = "Sends prompts of random token ids to a lane that is live and prints one CSV "
                   "row a run: time to\n"
                   "first token, prefill and decode tokens a second, from the server's own clock.",
    .options = bench_options,
    .options_size = sizeof(struct bench_options),
    .n_positional_max = 1,
    .run = run_bench,
};
