/* SPDX-License-Identifier: Apache-2.0 */
/* HTTP/1.1 answers from a socket: headers, Content-Length, chunks or the end of the connection. */
#include "tests/support/raw_http.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cmocka.h>

enum { DEADLINE_S = 300 };

int raw_connect(uint16_t port)
{
    const struct sockaddr_in at = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const struct timeval deadline = {.tv_sec = DEADLINE_S};
    const int one = 1;
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)&at, sizeof at), 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &deadline, sizeof deadline);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &deadline, sizeof deadline);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}

void raw_send(int fd, const void *bytes, size_t len)
{
    for (size_t at = 0; at < len;) {
        const ssize_t n = send(fd, (const char *)bytes + at, len - at, MSG_NOSIGNAL);
        if (n < 0 && (errno == EPIPE || errno == ECONNRESET))
            return; /* the server closed: what it said is read next */
        assert_true(n > 0);
        at += (size_t)n;
    }
}

void raw_send_text(int fd, const char *text)
{
    raw_send(fd, text, strlen(text));
}

/* False at the end of the connection. */
static bool read_byte(int fd, char *c)
{
    const ssize_t n = recv(fd, c, 1, 0);
    if (n < 0 && errno != ECONNRESET)
        fail_msg("no byte of an answer came: %s", strerror(errno));
    return n == 1;
}

static bool read_exactly(int fd, char *bytes, size_t len)
{
    for (size_t at = 0; at < len;) {
        const ssize_t n = recv(fd, bytes + at, len - at, 0);
        if (n < 0 && errno != ECONNRESET)
            fail_msg("an answer stopped: %s", strerror(errno));
        if (n <= 0)
            return false;
        at += (size_t)n;
    }
    return true;
}

static void add(char **text, size_t *len, size_t more)
{
    *text = realloc(*text, *len + more + 1);
    assert_non_null(*text);
    *len += more;
    (*text)[*len] = '\0';
}

static bool read_head(int fd, struct raw_answer *a)
{
    size_t len = 0;
    add(&a->head, &len, 0);
    while (len < 4 || strcmp(a->head + len - 4, "\r\n\r\n") != 0) {
        char c;
        if (!read_byte(fd, &c))
            return false;
        add(&a->head, &len, 1);
        a->head[len - 1] = c;
    }
    a->status = atoi(a->head + strlen("HTTP/1.1 "));
    return true;
}

static bool read_chunks(int fd, struct raw_answer *a)
{
    for (;;) {
        char line[32] = "", tail[2];
        for (size_t n = 0; n < 2 || strcmp(line + n - 2, "\r\n") != 0; n++) {
            assert_true(n < sizeof line - 1);
            if (!read_byte(fd, line + n))
                return false;
        }
        const size_t len = strtoul(line, NULL, 16), before = a->body_len;
        add(&a->body, &a->body_len, len);
        if (!read_exactly(fd, a->body + before, len) || !read_exactly(fd, tail, 2))
            return false;
        if (len == 0)
            return true;
    }
}

struct raw_answer raw_read(int fd, bool head_only)
{
    struct raw_answer a = {0};
    add(&a.body, &a.body_len, 0);
    if (!read_head(fd, &a)) {
        a.status = 0;
        return a;
    }
    const char *length = raw_header(&a, "Content-Length");
    if (head_only || a.status == 204 || a.status == 100)
        return a;
    if (raw_header(&a, "Transfer-Encoding") != NULL) {
        a.cut = !read_chunks(fd, &a);
    } else if (length != NULL) {
        const size_t len = strtoul(length, NULL, 10);
        add(&a.body, &a.body_len, len);
        a.cut = !read_exactly(fd, a.body, len);
    } else {
        char c;
        while (read_byte(fd, &c)) {
            add(&a.body, &a.body_len, 1);
            a.body[a.body_len - 1] = c;
        }
    }
    return a;
}

struct raw_answer raw_ask(uint16_t port, const char *request)
{
    const int fd = raw_connect(port);
    raw_send_text(fd, request);
    const struct raw_answer a = raw_read(fd, strncmp(request, "HEAD", 4) == 0);
    close(fd);
    return a;
}

void raw_answer_free(struct raw_answer *a)
{
    free(a->head);
    free(a->body);
    *a = (struct raw_answer){0};
}

const char *raw_header(const struct raw_answer *a, const char *name)
{
    static _Thread_local char value[256];
    const size_t len = strlen(name);
    for (const char *line = a->head; line != NULL; line = strstr(line, "\r\n")) {
        line += strncmp(line, "\r\n", 2) == 0 ? 2 : 0;
        if (strncasecmp(line, name, len) == 0 && line[len] == ':') {
            snprintf(value, sizeof value, "%.*s", (int)strcspn(line + len + 2, "\r"),
                     line + len + 2);
            return value;
        }
    }
    return NULL;
}

bool raw_closed(int fd)
{
    char c;
    return !read_byte(fd, &c);
}

char *raw_post(const char *path, const char *json, const char *more_headers)
{
    char *request = NULL;
    assert_true(asprintf(&request,
                         "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                         "Content-Length: %zu\r\n%s\r\n%s",
                         path, strlen(json), more_headers, json) > 0);
    return request;
}
