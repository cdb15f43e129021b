/* SPDX-License-Identifier: Apache-2.0 */
/* A reply's ids → reasoning, content and tool calls while they arrive. Held back until they are
 * decided: incomplete characters, what may begin a stop string, white space that a call may follow,
 * and calls. One id is one step, so that the result does not depend on how ids arrive.
 * What a call's block says is toolcall.c's; ids and end ids are the scheduler's. */
#include "runtime/reply.h"

#include "runtime/toolcall.h"
#include "runtime/unicode.h"

#include <stdlib.h>
#include <string.h>

/* Longer than this, what looks like a call inside the think block is reasoning. */
enum { MAX_THOUGHT_BYTES = 1024 };

/* Ids with a meaning here: the marks of toolcall.h, then these. */
enum { MARK_THINK = GLM_N_MARKS, MARK_THINK_END, MARK_NONE, N_SPECIAL = MARK_NONE };

struct glm_reply {
    const struct glm_tokenizer *t;
    const struct glm_json *tools;
    bool raw, parse_calls;
    char *stops[GLM_REPLY_MAX_STOPS];
    size_t stop_lens[GLM_REPLY_MAX_STOPS], longest_stop;
    uint32_t n_stops;
    int32_t special[N_SPECIAL]; /* -1: the tokenizer has no such token */

    bool in_reasoning;
    struct glm_utf8_stream utf8;
    struct buf bytes, piece; /* of the id at hand */

    bool in_block, decided; /* a call's block is open; it is known to be one */
    struct glm_block block;

    struct buf reasoning;        /* all of it, for an answer in a block that never closed */
    struct buf thought;          /* complete calls at the end of the reasoning, as text */
    struct glm_calls thought_of; /* and as calls */
    uint32_t n_reasoning;

    struct buf held;    /* content not yet delivered */
    size_t space_from;  /* held[space_from..] is white space */
    bool skip_newlines; /* right behind </think> */
    bool skip_space;    /* right behind a call */
    bool content_sent;
    enum glm_verdict bare; /* may the whole answer be a call in bare JSON? */

    uint32_t n_calls;
    const char *stop; /* the one that matched */
    bool failed;
    glm_reply_emit emit;
    void *context;
};

static int32_t special_id(const struct glm_tokenizer *t, int mark)
{
    if (mark == MARK_THINK || mark == MARK_THINK_END)
        return glm_tokenizer_added(t, mark == MARK_THINK ? "<think>" : "</think>");
    return glm_tokenizer_added(t, glm_mark_text[mark]);
}

static enum glm_status copy_stops(struct glm_reply *r, const struct glm_reply_options *o,
                                  struct glm_error *err)
{
    if (o->n_stops > GLM_REPLY_MAX_STOPS)
        return glm_fail(err, GLM_EINVAL, "%u stop strings, more than %d", o->n_stops,
                        GLM_REPLY_MAX_STOPS);
    for (uint32_t i = 0; i < o->n_stops; i++) {
        size_t len = strlen(o->stops[i]);
        if (len == 0 || len > GLM_REPLY_MAX_STOP_BYTES)
            return glm_fail(err, GLM_EINVAL, "stop string %u has %zu bytes, want 1 to %d", i, len,
                            GLM_REPLY_MAX_STOP_BYTES);
        if (glm_utf8_valid_bytes(o->stops[i], len) != len)
            return glm_fail(err, GLM_EINVAL, "stop string %u is not valid UTF-8", i);
        r->stops[i] = strdup(o->stops[i]);
        if (r->stops[i] == NULL)
            return glm_fail(err, GLM_ENOMEM, "cannot start a reply: out of memory");
        r->stop_lens[i] = len;
        r->longest_stop = len > r->longest_stop ? len : r->longest_stop;
        r->n_stops++;
    }
    return GLM_OK;
}

enum glm_status glm_reply_new(const struct glm_tokenizer *t, const struct glm_reply_options *o,
                              struct glm_reply **out, struct glm_error *err)
{
    struct glm_reply *r = calloc(1, sizeof *r);
    if (r == NULL)
        return glm_fail(err, GLM_ENOMEM, "cannot start a reply: out of memory");
    r->t = t;
    r->tools = o->tools;
    r->raw = o->raw;
    r->parse_calls = o->parse_calls && o->tools != NULL && !o->raw;
    r->in_reasoning = o->in_reasoning && !o->raw;
    r->bare = r->parse_calls ? GLM_UNDECIDED : GLM_IS_TEXT;
    for (int i = 0; i < N_SPECIAL; i++)
        r->special[i] = special_id(t, i);
    enum glm_status status = copy_stops(r, o, err);
    if (status == GLM_OK)
        *out = r;
    else
        glm_reply_free(r);
    return status;
}

void glm_reply_free(struct glm_reply *r)
{
    if (r == NULL)
        return;
    for (uint32_t i = 0; i < r->n_stops; i++)
        free(r->stops[i]);
    buf_release(&r->bytes);
    buf_release(&r->piece);
    glm_block_release(&r->block);
    buf_release(&r->reasoning);
    buf_release(&r->thought);
    glm_calls_release(&r->thought_of);
    buf_release(&r->held);
    free(r);
}

/* ---- Delivering ---- */

static void send_text(struct glm_reply *r, enum glm_reply_kind kind, const char *text, size_t len)
{
    if (len == 0)
        return;
    struct glm_reply_event event = {.kind = kind, .text = text, .len = len};
    r->emit(r->context, &event);
}

static void send_calls(struct glm_reply *r, struct glm_calls *calls)
{
    for (size_t i = 0; i < calls->n; i++) {
        struct glm_reply_event event = {.kind = GLM_REPLY_TOOL_CALL,
                                        .name = calls->items[i].name,
                                        .arguments = calls->items[i].arguments,
                                        .arguments_len = calls->items[i].arguments_len};
        r->emit(r->context, &event);
        r->n_calls++;
    }
    glm_calls_release(calls);
}

static bool is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

/* Delivers the first len bytes of what is held. */
static void send_held(struct glm_reply *r, size_t len)
{
    if (len == 0)
        return;
    send_text(r, GLM_REPLY_CONTENT, r->held.data, len);
    r->content_sent = true;
    r->held.len -= len;
    memmove(r->held.data, r->held.data + len, r->held.len + 1);
    r->space_from = r->space_from > len ? r->space_from - len : 0;
}

static void drop_held(struct glm_reply *r)
{
    r->held.len = 0;
    r->space_from = 0;
}

/* Everything held; trimmed: white space at its end is dropped, as next to a call. */
static void flush_held(struct glm_reply *r, bool trimmed)
{
    send_held(r, trimmed ? r->space_from : r->held.len);
    drop_held(r);
}

/* ---- Content ---- */

/* The leftmost match that ends in held[from..]; among those that start there, the first listed. */
static bool find_stop(struct glm_reply *r, size_t from)
{
    const char *first = NULL;
    const struct buf *held = &r->held;
    for (uint32_t i = 0; i < r->n_stops; i++) {
        size_t back = r->stop_lens[i] - 1;
        size_t start = from > back ? from - back : 0;
        const char *at =
            memmem(held->data + start, held->len - start, r->stops[i], r->stop_lens[i]);
        if (at != NULL && (first == NULL || at < first)) {
            first = at;
            r->stop = r->stops[i];
        }
    }
    if (first == NULL)
        return false;
    size_t len = (size_t)(first - held->data);
    if (r->n_calls > 0)
        while (len > 0 && is_space(held->data[len - 1]))
            len--;
    send_held(r, len);
    drop_held(r);
    return true;
}

/* Bytes of held that no stop string can begin in: up to the longest suffix that is the beginning
 * of one. */
static size_t undisputed_bytes(const struct glm_reply *r)
{
    size_t n = r->held.len < r->longest_stop ? r->held.len : r->longest_stop;
    for (; n > 0; n--)
        for (uint32_t i = 0; i < r->n_stops; i++)
            if (n < r->stop_lens[i] && memcmp(r->held.data + r->held.len - n, r->stops[i], n) == 0)
                return r->held.len - n;
    return r->held.len;
}

static void add_content(struct glm_reply *r, const char *text, size_t len)
{
    while (len > 0 && ((r->skip_newlines && (*text == '\n' || *text == '\r')) ||
                       (r->skip_space && is_space(*text)))) {
        text++;
        len--;
    }
    if (len == 0 || r->stop != NULL)
        return;
    r->skip_newlines = r->skip_space = false;
    size_t before = r->held.len, end = len;
    buf_add(&r->held, text, len);
    while (end > 0 && is_space(text[end - 1]))
        end--;
    if (end > 0)
        r->space_from = before + end;
    if (r->held.failed || find_stop(r, before))
        return;
    if (r->bare == GLM_UNDECIDED)
        r->bare = r->content_sent ? GLM_IS_TEXT
                                  : glm_calls_decide_bare(r->held.data, r->held.len, r->tools);
    if (r->bare != GLM_IS_TEXT)
        return;
    size_t ready = undisputed_bytes(r);
    if (r->parse_calls && r->space_from < ready)
        ready = r->space_from;
    send_held(r, ready);
}

/* ---- Reasoning ---- */

static void send_reasoning(struct glm_reply *r, const char *text, size_t len)
{
    buf_add(&r->reasoning, text, len);
    send_text(r, GLM_REPLY_REASONING, text, len);
}

/* What looked like calls at the end of the reasoning is reasoning. */
static void flush_thought(struct glm_reply *r)
{
    send_reasoning(r, buf_text(&r->thought), r->thought.len);
    buf_clear(&r->thought);
    glm_calls_release(&r->thought_of);
}

static void add_reasoning(struct glm_reply *r, const char *text, size_t len)
{
    bool blank = true;
    for (size_t i = 0; i < len; i++)
        blank = blank && is_space(text[i]);
    if (r->thought.len > 0 && blank && r->thought.len + len <= MAX_THOUGHT_BYTES) {
        buf_add(&r->thought, text, len);
        return;
    }
    flush_thought(r);
    send_reasoning(r, text, len);
}

static void add_text(struct glm_reply *r, const char *text, size_t len)
{
    if (len == 0)
        return;
    if (r->in_reasoning)
        add_reasoning(r, text, len);
    else
        add_content(r, text, len);
}

/* ---- Calls ---- */

/* The open block is text: the first len bytes of it. */
static void block_is_text(struct glm_reply *r, size_t len)
{
    r->in_block = false;
    if (r->in_reasoning)
        flush_thought(r);
    add_text(r, buf_text(&r->block.text), len);
}

/* The block has ended. only_offered: it was closed on the model's behalf before it was known to be
 * a call. len: of its text as the model wrote it. */
static void finish_block(struct glm_reply *r, bool only_offered, size_t len)
{
    struct glm_calls calls = {0};
    if (!glm_block_parse(&r->block, r->tools, only_offered, &calls)) {
        block_is_text(r, len);
        return;
    }
    r->in_block = false;
    if (r->in_reasoning) {
        /* Counts only at the very end of the reasoning, so it waits for that. */
        buf_add(&r->thought, r->block.text.data, len);
        for (size_t i = 0; i < calls.n; i++) {
            struct glm_call *items =
                realloc(r->thought_of.items, (r->thought_of.n + 1) * sizeof *items);
            if (items == NULL) {
                r->failed = true;
                break;
            }
            r->thought_of.items = items;
            items[r->thought_of.n++] = calls.items[i];
            calls.items[i] = (struct glm_call){0};
        }
        glm_calls_release(&calls);
        return;
    }
    flush_held(r, true);
    r->bare = GLM_IS_TEXT;
    r->skip_space = true;
    r->skip_newlines = false;
    send_calls(r, &calls);
}

/* After text or a mark was added to the open block. */
static void settle_block(struct glm_reply *r)
{
    if (!r->decided) {
        enum glm_verdict verdict = glm_block_decide(&r->block);
        if (verdict == GLM_IS_TEXT) {
            block_is_text(r, r->block.text.len);
            return;
        }
        r->decided = verdict == GLM_IS_CALL;
    }
    if (r->block.state == GLM_BLOCK_ENDED)
        finish_block(r, false, r->block.text.len);
    else if (r->in_reasoning && r->thought.len + r->block.text.len > MAX_THOUGHT_BYTES)
        block_is_text(r, r->block.text.len);
}

static void open_block(struct glm_reply *r)
{
    if (r->in_block) {
        /* The model went on to another call without closing this one. */
        size_t len = r->block.text.len;
        if (r->decided) {
            glm_block_close(&r->block);
            finish_block(r, false, len);
        } else {
            block_is_text(r, len);
        }
    }
    if (r->stop != NULL)
        return;
    glm_block_open(&r->block);
    r->in_block = true;
    r->decided = false;
}

static void add_mark(struct glm_reply *r, enum glm_mark_kind kind)
{
    bool opens =
        kind == GLM_MARK_CALL && (!r->in_block || !r->decided || glm_block_may_open(&r->block));
    if (opens && r->parse_calls) {
        open_block(r);
    } else if (r->in_block) {
        glm_block_mark(&r->block, kind);
        settle_block(r);
    } else {
        add_text(r, glm_mark_text[kind], strlen(glm_mark_text[kind]));
    }
}

/* ---- Ids ---- */

static void add_piece(struct glm_reply *r)
{
    if (r->in_block && r->piece.len > 0) {
        buf_add(&r->block.text, r->piece.data, r->piece.len);
        settle_block(r);
    } else {
        add_text(r, buf_text(&r->piece), r->piece.len);
    }
    buf_clear(&r->piece);
}

static int mark_of(const struct glm_reply *r, int32_t id)
{
    for (int i = 0; i < N_SPECIAL && !r->raw && id >= 0; i++)
        if (r->special[i] == id)
            return i;
    return MARK_NONE;
}

static void close_reasoning(struct glm_reply *r)
{
    if (r->in_block)
        block_is_text(r, r->block.text.len);
    flush_thought(r);
    r->in_reasoning = false;
    r->skip_newlines = true;
}

bool glm_reply_feed(struct glm_reply *r, int32_t id, glm_reply_emit emit, void *context)
{
    if (r->stop != NULL)
        return true;
    r->emit = emit;
    r->context = context;
    int mark = mark_of(r, id);
    if (r->in_reasoning && mark != MARK_THINK_END)
        r->n_reasoning++;
    if (mark != MARK_NONE) {
        glm_utf8_end(&r->utf8, &r->piece);
        add_piece(r);
    }
    if (r->stop != NULL)
        return true;
    if (mark < GLM_N_MARKS) {
        add_mark(r, (enum glm_mark_kind)mark);
    } else if (mark == MARK_THINK_END && r->in_reasoning) {
        close_reasoning(r);
    } else {
        buf_clear(&r->bytes);
        glm_tokenizer_bytes(r->t, id, !r->raw && mark == MARK_NONE, &r->bytes);
        glm_utf8_push(&r->utf8, buf_text(&r->bytes), r->bytes.len, &r->piece);
        add_piece(r);
    }
    return r->stop != NULL;
}

/* The reply ended inside a block. */
static void finish_open_block(struct glm_reply *r, bool ended_by_end_id)
{
    size_t len = r->block.text.len;
    if (ended_by_end_id) {
        glm_block_close(&r->block);
        finish_block(r, !r->decided, len);
    } else if (r->in_reasoning || !r->decided) {
        block_is_text(r, len);
    } else {
        /* A call cut by the limit is neither sent nor shown. */
        r->in_block = false;
        flush_held(r, true);
    }
}

static void finish_reasoning(struct glm_reply *r, bool ended_by_end_id)
{
    if (ended_by_end_id && r->thought_of.n > 0) {
        send_calls(r, &r->thought_of);
        return;
    }
    flush_thought(r);
    if (!ended_by_end_id || r->reasoning.len == 0)
        return;
    struct glm_reply_event event = {.kind = GLM_REPLY_CONTENT,
                                    .text = r->reasoning.data,
                                    .len = r->reasoning.len,
                                    .repeats_reasoning = true};
    r->emit(r->context, &event);
}

bool glm_reply_finish(struct glm_reply *r, bool ended_by_end_id, glm_reply_emit emit, void *context)
{
    if (r->stop != NULL)
        return true;
    r->emit = emit;
    r->context = context;
    glm_utf8_end(&r->utf8, &r->piece);
    add_piece(r);
    if (r->in_block)
        finish_open_block(r, ended_by_end_id);
    if (r->stop != NULL)
        return true;
    if (r->in_reasoning) {
        finish_reasoning(r, ended_by_end_id);
        return false;
    }
    struct glm_calls calls = {0};
    if (r->bare == GLM_IS_CALL && ended_by_end_id && r->n_calls == 0 &&
        glm_calls_parse_bare(buf_text(&r->held), r->held.len, r->tools, &calls)) {
        drop_held(r);
        send_calls(r, &calls);
    }
    flush_held(r, r->n_calls > 0);
    return false;
}

const char *glm_reply_stop(const struct glm_reply *r)
{
    return r->stop;
}

uint32_t glm_reply_reasoning_tokens(const struct glm_reply *r)
{
    return r->n_reasoning;
}

uint32_t glm_reply_calls(const struct glm_reply *r)
{
    return r->n_calls;
}

bool glm_reply_failed(const struct glm_reply *r)
{
    return r->failed || r->bytes.failed || r->piece.failed || r->block.failed ||
           r->block.text.failed || r->reasoning.failed || r->thought.failed || r->held.failed;
}
