/* SPDX-License-Identifier: Apache-2.0 */
/* libcurl behind one call. */
#include "cli/http_client.h"

#include "cli/signals.h"

#include <curl/curl.h>
#include <string.h>

enum { KEY_FILE_BYTES = 64 << 10, ANSWER_LIMIT_BYTES = 64 << 20 };

struct receiver {
    struct buf *answer;
    http_on_data on_data;
    void *context;
};

static size_t receive(char *bytes, size_t size, size_t n, void *context)
{
    struct receiver *r = context;
    const size_t len = size * n;
    if (r->answer->len + len > ANSWER_LIMIT_BYTES)
        return 0;
    buf_add(r->answer, bytes, len);
    if (r->on_data != NULL)
        r->on_data(r->context, bytes, len);
    return len;
}

/* Called a few times a second: an interruption ends the request. */
static int look_up(void *context, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d)
{
    (void)context, (void)a, (void)b, (void)c, (void)d;
    return signals_pending();
}

static enum glm_status add_key(const char *key_file, struct curl_slist **headers,
                               struct glm_error *err)
{
    struct buf text = {0};
    struct buf header = {0};
    if (key_file == NULL || *key_file == '\0')
        return GLM_OK;
    enum glm_status status = glm_file_read(key_file, KEY_FILE_BYTES, &text, err);
    const char *line = buf_text(&text);
    while (*line == '#' || *line == '\n') {
        line += strcspn(line, "\n");
        line += *line == '\n';
    }
    buf_printf(&header, "Authorization: Bearer %.*s", (int)strcspn(line, "\r\n \t"), line);
    if (status == GLM_OK)
        *headers = curl_slist_append(*headers, buf_text(&header));
    buf_release(&header);
    buf_release(&text);
    return status;
}

enum glm_status http_request(const char *url, const char *key_file, const char *body,
                             uint32_t timeout_s, struct buf *answer, long *http_status,
                             http_on_data on_data, void *context, struct glm_error *err)
{
    struct curl_slist *headers = NULL;
    struct receiver receiver = {answer, on_data, context};
    char reason[CURL_ERROR_SIZE] = "";
    enum glm_status status = add_key(key_file, &headers, err);
    CURL *curl = curl_easy_init();
    if (status == GLM_OK && curl == NULL)
        status = glm_fail(err, GLM_ENOMEM, "cannot start an HTTP request: out of memory");
    if (status != GLM_OK)
        goto out;
    buf_clear(answer);
    headers = curl_slist_append(headers, "Content-Type: application/json");
    curl_easy_setopt(curl, CURLOPT_URL, url);
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(curl, CURLOPT_NOPROXY, "*");
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, look_up);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT, (long)timeout_s);
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, reason);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, receive);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, &receiver);
    if (body != NULL)
        curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body);
    CURLcode code = curl_easy_perform(curl);
    if (code == CURLE_ABORTED_BY_CALLBACK)
        status = signals_check("a request ran", err);
    else if (code != CURLE_OK)
        status = glm_fail(err, GLM_EIO, "request to %s failed: %s", url,
                          *reason != '\0' ? reason : curl_easy_strerror(code));
    else
        curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, http_status);
out:
    curl_slist_free_all(headers);
    curl_easy_cleanup(curl);
    return status;
}
