/* SPDX-License-Identifier: Apache-2.0 */
/* A client that writes raw bytes and reads answers byte by byte as HTTP/1.1 says, so that a test
 * sees what a client library would hide. Every call fails the test after two minutes. */
#ifndef GLM_TESTS_RAW_HTTP_H
#define GLM_TESTS_RAW_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct raw_answer {
    int status; /* 0: the connection ended before an answer */
    char *head; /* status line and headers */
    char *body; /* decoded, NUL-terminated */
    size_t body_len;
    bool cut; /* the connection ended within the body */
};

int raw_connect(uint16_t port);
void raw_send(int fd, const void *bytes, size_t len);
void raw_send_text(int fd, const char *text);
/* Reads one answer; `head_only`: to a HEAD request. */
struct raw_answer raw_read(int fd, bool head_only);
/* Connects, sends, reads one answer, closes. */
struct raw_answer raw_ask(uint16_t port, const char *request);
void raw_answer_free(struct raw_answer *a);
/* Value of a header in a buffer of the thread, or NULL. */
const char *raw_header(const struct raw_answer *a, const char *name);
/* The server has closed: the next read gives end of file or a reset. */
bool raw_closed(int fd);
/* A POST of JSON with Content-Length, to be freed. */
char *raw_post(const char *path, const char *json, const char *more_headers);

#endif
