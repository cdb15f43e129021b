/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer.json → struct glm_tokenizer. Each part of the file is either the one kind this program
 * implements or refused by name: a tokenizer that is nearly right gives ids that are wrong without
 * anybody noticing. Every length, id and pattern in the file is hostile. */
#include "runtime/tokenizer_file.h"

#include "runtime/json.h"
#include "runtime/unicode.h"

#include <stdlib.h>
#include <string.h>

#define REFUSE(err, ...) glm_fail((err), GLM_ECHECKPOINT, "cannot use tokenizer.json: " __VA_ARGS__)

struct loader {
    struct glm_tokenizer *t;
    struct glm_error *err;
    int16_t byte_of[512]; /* code point of the byte alphabet → byte, or -1 */
    struct buf left, right;
};

/* The 256 characters that stand for bytes (GPT-2's alphabet): printable Latin-1 for themselves, the
 * rest in order from U+0100. */
static void fill_alphabet(int16_t byte_of[512])
{
    for (int i = 0; i < 512; i++)
        byte_of[i] = -1;
    int next = 256;
    for (int b = 0; b < 256; b++) {
        bool itself = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
        byte_of[itself ? b : next++] = (int16_t)b;
    }
}

/* Alphabet text → bytes. False: a character outside the alphabet. */
static bool alphabet_bytes(const struct loader *l, const char *text, size_t len, struct buf *out)
{
    buf_clear(out);
    for (size_t at = 0; at < len;) {
        size_t n = 0;
        glm_utf8_scan(text + at, len - at, &n);
        uint32_t code = glm_utf8_decode(text + at, n);
        if (code >= 512 || l->byte_of[code] < 0)
            return false;
        buf_char(out, (char)l->byte_of[code]);
        at += n;
    }
    return true;
}

static const char *text_of(const struct glm_json *v, const char *missing)
{
    return v != NULL && v->type == GLM_JSON_STRING ? v->text : missing;
}

static bool is_null(const struct glm_json *v)
{
    return v == NULL || v->type == GLM_JSON_NULL;
}

static bool is_true(const struct glm_json *v)
{
    return v != NULL && v->type == GLM_JSON_BOOL && v->boolean;
}

/* A whole number in 0..limit-1, or -1. */
static int32_t index_of(const struct glm_json *v, int32_t limit)
{
    if (v == NULL || v->type != GLM_JSON_NUMBER || v->len > 9)
        return -1;
    int32_t n = 0;
    for (size_t i = 0; i < v->len; i++) {
        if (v->text[i] < '0' || v->text[i] > '9')
            return -1;
        n = n * 10 + (v->text[i] - '0');
    }
    return n < limit ? n : -1;
}

/* ---- The vocabulary and its merges ---- */

static enum glm_status count_ids(struct loader *l, const struct glm_json *vocab,
                                 const struct glm_json *added, uint32_t *n_ids)
{
    int32_t largest = -1;
    for (const struct glm_json *v = vocab->first; v != NULL; v = v->next) {
        int32_t id = index_of(v, GLM_BPE_MAX_TOKENS);
        if (id < 0)
            return REFUSE(l->err, "token '%.40s' has an id that is not in 0..%d", v->key,
                          GLM_BPE_MAX_TOKENS - 1);
        largest = id > largest ? id : largest;
    }
    for (const struct glm_json *v = added == NULL ? NULL : added->first; v != NULL; v = v->next) {
        int32_t id = index_of(glm_json_get(v, "id"), GLM_BPE_MAX_TOKENS);
        if (id < 0)
            return REFUSE(l->err, "added token '%.40s' has an id that is not in 0..%d",
                          text_of(glm_json_get(v, "content"), ""), GLM_BPE_MAX_TOKENS - 1);
        largest = id > largest ? id : largest;
    }
    *n_ids = (uint32_t)(largest + 1);
    return GLM_OK;
}

static enum glm_status load_vocab(struct loader *l, const struct glm_json *vocab)
{
    struct glm_bpe *b = &l->t->bpe;
    for (const struct glm_json *v = vocab->first; v != NULL; v = v->next) {
        int32_t id = index_of(v, GLM_BPE_MAX_TOKENS);
        if (b->tokens[id].offset != UINT32_MAX)
            return REFUSE(l->err, "id %d belongs to two tokens, '%.40s' is one", id, v->key);
        /* A token outside the alphabet (a special one, as a rule) is never the result of a merge
         * and stands for its own text. */
        bool listed = alphabet_bytes(l, v->key, v->key_len, &l->left);
        const char *bytes = listed ? buf_text(&l->left) : v->key;
        size_t len = listed ? l->left.len : v->key_len;
        if (l->left.failed || !glm_bpe_set(b, (uint32_t)id, bytes, len, listed))
            return glm_fail(l->err, GLM_ENOMEM, "cannot load the tokenizer: out of memory");
    }
    for (int i = 0; i < 256; i++) {
        char byte = (char)i;
        b->byte_ids[i] = glm_bpe_find(b, &byte, 1);
        if (b->byte_ids[i] < 0)
            return REFUSE(l->err, "the vocabulary has no token for byte 0x%02X", (unsigned)i);
    }
    return GLM_OK;
}

/* Both spellings of a merge: ["a", "b"] and "a b" (the alphabet has no space). */
static bool merge_parts(struct loader *l, const struct glm_json *v)
{
    if (v->type == GLM_JSON_STRING) {
        const char *space = memchr(v->text, ' ', v->len);
        if (space == NULL)
            return false;
        size_t first = (size_t)(space - v->text);
        return alphabet_bytes(l, v->text, first, &l->left) &&
               alphabet_bytes(l, space + 1, v->len - first - 1, &l->right);
    }
    if (v->type != GLM_JSON_ARRAY || v->n_children != 2)
        return false;
    const struct glm_json *a = v->first, *b = v->first->next;
    return a->type == GLM_JSON_STRING && b->type == GLM_JSON_STRING &&
           alphabet_bytes(l, a->text, a->len, &l->left) &&
           alphabet_bytes(l, b->text, b->len, &l->right);
}

static enum glm_status load_merges(struct loader *l, const struct glm_json *merges)
{
    struct glm_bpe *b = &l->t->bpe;
    uint32_t rank = 0;
    for (const struct glm_json *v = merges->first; v != NULL; v = v->next, rank++) {
        if (!merge_parts(l, v))
            return REFUSE(l->err, "merge %u is not a pair of tokens", rank);
        int32_t left = glm_bpe_find(b, buf_text(&l->left), l->left.len);
        int32_t right = glm_bpe_find(b, buf_text(&l->right), l->right.len);
        buf_add(&l->left, buf_text(&l->right), l->right.len);
        if (l->left.failed || l->right.failed)
            return glm_fail(l->err, GLM_ENOMEM, "cannot load the tokenizer: out of memory");
        int32_t joined = glm_bpe_find(b, l->left.data, l->left.len);
        if (left < 0 || right < 0 || joined < 0)
            return REFUSE(l->err, "merge %u names or makes a token that is not in the vocabulary",
                          rank);
        glm_bpe_add_merge(b, left, right, rank, joined);
    }
    return GLM_OK;
}

static enum glm_status check_model(struct loader *l, const struct glm_json *model)
{
    if (!glm_json_is_string(glm_json_get(model, "type"), "BPE"))
        return REFUSE(l->err, "'model.type' is '%.40s', want 'BPE'",
                      text_of(glm_json_get(model, "type"), "not a string"));
    const struct glm_json *dropout = glm_json_get(model, "dropout");
    if (!is_null(dropout) &&
        !(dropout->type == GLM_JSON_NUMBER && strtod(dropout->text, NULL) == 0))
        return REFUSE(l->err, "'model.dropout' is set, want null");
    static const char *const affixes[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    for (size_t i = 0; i < 2; i++) {
        const struct glm_json *affix = glm_json_get(model, affixes[i]);
        if (!is_null(affix) && !glm_json_is_string(affix, ""))
            return REFUSE(l->err, "'model.%s' is set, want null", affixes[i]);
    }
    return GLM_OK;
}

/* ---- Added tokens ---- */

static int compare_added(const void *a, const void *b)
{
    const struct glm_added_token *x = a, *y = b;
    int order = (int)(uint8_t)x->text[0] - (int)(uint8_t)y->text[0];
    if (order != 0)
        return order;
    if (x->len != y->len)
        return x->len > y->len ? -1 : 1;
    return memcmp(x->text, y->text, x->len);
}

static enum glm_status load_added_token(struct loader *l, const struct glm_json *v)
{
    struct glm_tokenizer *t = l->t;
    const struct glm_json *content = glm_json_get(v, "content");
    if (content == NULL || content->type != GLM_JSON_STRING || content->len == 0)
        return REFUSE(l->err, "an added token has no content");
    static const char *const flags[] = {"single_word", "lstrip", "rstrip"};
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++)
        if (is_true(glm_json_get(v, flags[i])))
            return REFUSE(l->err, "added token '%.40s' asks for '%s', which is not supported",
                          content->text, flags[i]);
    int32_t id = index_of(glm_json_get(v, "id"), GLM_BPE_MAX_TOKENS);
    const struct glm_bpe_token *token = &t->bpe.tokens[id];
    if (token->offset != UINT32_MAX) {
        const char *bytes = t->bpe.bytes + token->offset;
        if (token->len != content->len || memcmp(bytes, content->text, content->len) != 0)
            return REFUSE(l->err, "id %d belongs to two tokens, added token '%.40s' is one", id,
                          content->text);
    } else if (!glm_bpe_set(&t->bpe, (uint32_t)id, content->text, content->len, false)) {
        return glm_fail(l->err, GLM_ENOMEM, "cannot load the tokenizer: out of memory");
    }
    struct glm_added_token *added = &t->added[t->n_added];
    added->text = malloc(content->len + 1);
    if (added->text == NULL)
        return glm_fail(l->err, GLM_ENOMEM, "cannot load the tokenizer: out of memory");
    memcpy(added->text, content->text, content->len + 1);
    added->len = content->len;
    added->id = id;
    added->special = is_true(glm_json_get(v, "special"));
    t->special[id] = added->special;
    t->n_added++;
    return GLM_OK;
}

static enum glm_status load_added(struct loader *l, const struct glm_json *list)
{
    struct glm_tokenizer *t = l->t;
    size_t n = list == NULL ? 0 : list->n_children;
    t->special = calloc(t->bpe.n_ids + (size_t)1, 1);
    t->added = calloc(n + 1, sizeof *t->added);
    if (t->special == NULL || t->added == NULL)
        return glm_fail(l->err, GLM_ENOMEM, "cannot load the tokenizer: out of memory");
    for (const struct glm_json *v = n == 0 ? NULL : list->first; v != NULL; v = v->next) {
        enum glm_status status = load_added_token(l, v);
        if (status != GLM_OK)
            return status;
    }
    qsort(t->added, t->n_added, sizeof *t->added, compare_added);
    uint32_t at = 0;
    for (uint32_t byte = 0; byte < 256; byte++) {
        t->added_first[byte] = at;
        while (at < t->n_added && (uint8_t)t->added[at].text[0] == byte)
            at++;
    }
    t->added_first[256] = at;
    for (uint32_t i = 1; i < t->n_added; i++)
        if (compare_added(&t->added[i - 1], &t->added[i]) == 0)
            return REFUSE(l->err, "added token '%.40s' is listed twice", t->added[i].text);
    return GLM_OK;
}

/* ---- Normalizer, pre-tokenizer, post-processor, decoder ---- */

/* The steps of a part: those of a Sequence, or the part itself. list names the Sequence's member.
 */
static const struct glm_json *steps_of(const struct glm_json *part, const char *list)
{
    if (is_null(part))
        return NULL;
    if (!glm_json_is_string(glm_json_get(part, "type"), "Sequence"))
        return part;
    const struct glm_json *steps = glm_json_get(part, list);
    return steps == NULL || steps->type != GLM_JSON_ARRAY ? part : steps->first;
}

static enum glm_status refuse_step(struct loader *l, const char *part, const struct glm_json *step)
{
    return REFUSE(l->err, "%s '%.40s' is not supported", part,
                  text_of(glm_json_get(step, "type"), "without a type"));
}

/* Python's and the reference's \s is Unicode's White_Space; PCRE2's own also takes U+180E. */
static void translate_spaces(const struct glm_json *pattern, struct buf *out)
{
    for (size_t i = 0; i < pattern->len; i++) {
        char c = pattern->text[i];
        char next = i + 1 < pattern->len ? pattern->text[i + 1] : '\0';
        if (c != '\\' || next == '\0') {
            buf_char(out, c);
            continue;
        }
        i++;
        if (next == 's' || next == 'S')
            buf_str(out, next == 's' ? "\\p{White_Space}" : "\\P{White_Space}");
        else
            buf_printf(out, "\\%c", next);
    }
}

static enum glm_status compile_regex(struct loader *l, const struct glm_json *pattern)
{
    struct glm_tokenizer *t = l->t;
    struct buf text = {0};
    translate_spaces(pattern, &text);
    int code = 0;
    PCRE2_SIZE at = 0;
    if (text.failed)
        return glm_fail(l->err, GLM_ENOMEM, "cannot load the tokenizer: out of memory");
    t->regex = pcre2_compile((PCRE2_SPTR)buf_text(&text), text.len,
                             PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &code, &at, NULL);
    buf_release(&text);
    if (t->regex == NULL) {
        PCRE2_UCHAR reason[128] = {0};
        pcre2_get_error_message(code, reason, sizeof reason);
        return REFUSE(l->err, "the pre-tokenizer's pattern does not compile: %s at byte %zu",
                      (const char *)reason, (size_t)at);
    }
    /* Without executable memory the interpreter does the same, slower. */
    (void)pcre2_jit_compile(t->regex, PCRE2_JIT_COMPLETE);
    t->limits = pcre2_match_context_create(NULL);
    if (t->limits == NULL)
        return glm_fail(l->err, GLM_ENOMEM, "cannot load the tokenizer: out of memory");
    pcre2_set_match_limit(t->limits, 10000000);
    return GLM_OK;
}

static enum glm_status load_pre_tokenizer(struct loader *l, const struct glm_json *part)
{
    bool byte_level = false;
    for (const struct glm_json *step = steps_of(part, "pretokenizers"); step != NULL;
         step = step == part ? NULL : step->next) {
        const struct glm_json *type = glm_json_get(step, "type");
        if (glm_json_is_string(type, "Split") && l->t->regex == NULL && !byte_level) {
            const struct glm_json *pattern = glm_json_get(glm_json_get(step, "pattern"), "Regex");
            if (pattern == NULL || pattern->type != GLM_JSON_STRING)
                return REFUSE(l->err, "pre-tokenizer 'Split' has no 'pattern.Regex'");
            if (!glm_json_is_string(glm_json_get(step, "behavior"), "Isolated") ||
                is_true(glm_json_get(step, "invert")))
                return REFUSE(l->err, "pre-tokenizer 'Split' behaves as '%.40s'%s, want 'Isolated'",
                              text_of(glm_json_get(step, "behavior"), "nothing"),
                              is_true(glm_json_get(step, "invert")) ? " inverted" : "");
            enum glm_status status = compile_regex(l, pattern);
            if (status != GLM_OK)
                return status;
        } else if (glm_json_is_string(type, "ByteLevel") && !byte_level) {
            static const char *const flags[] = {"add_prefix_space", "use_regex"};
            for (size_t i = 0; i < 2; i++) {
                const struct glm_json *flag = glm_json_get(step, flags[i]);
                if (flag == NULL || flag->type != GLM_JSON_BOOL || flag->boolean)
                    return REFUSE(l->err, "pre-tokenizer 'ByteLevel' wants '%s': false", flags[i]);
            }
            byte_level = true;
        } else {
            return refuse_step(l, "pre-tokenizer", step);
        }
    }
    return byte_level ? GLM_OK : REFUSE(l->err, "it has no 'ByteLevel' pre-tokenizer");
}

/* A part whose only supported step is ByteLevel; allowed false: no step at all. */
static enum glm_status check_part(struct loader *l, const char *name, const char *list,
                                  const struct glm_json *part, bool allowed)
{
    for (const struct glm_json *step = steps_of(part, list); step != NULL;
         step = step == part ? NULL : step->next)
        if (!allowed || !glm_json_is_string(glm_json_get(step, "type"), "ByteLevel"))
            return refuse_step(l, name, step);
    return GLM_OK;
}

static enum glm_status load(struct loader *l, const struct glm_json *file)
{
    const struct glm_json *model = glm_json_get(file, "model");
    const struct glm_json *vocab = glm_json_get(model, "vocab");
    const struct glm_json *merges = glm_json_get(model, "merges");
    const struct glm_json *added = glm_json_get(file, "added_tokens");
    if (vocab == NULL || vocab->type != GLM_JSON_OBJECT)
        return REFUSE(l->err, "'model.vocab' is missing or not an object");
    if (merges == NULL || merges->type != GLM_JSON_ARRAY)
        return REFUSE(l->err, "'model.merges' is missing or not an array");
    if (!is_null(added) && added->type != GLM_JSON_ARRAY)
        return REFUSE(l->err, "'added_tokens' is not an array");
    if (is_null(added))
        added = NULL;
    if (vocab->n_children > GLM_BPE_MAX_TOKENS || merges->n_children > GLM_BPE_MAX_MERGES ||
        (added != NULL && added->n_children > GLM_TOKENIZER_MAX_ADDED))
        return REFUSE(l->err,
                      "it lists %zu tokens, %zu merges and %zu added tokens, more than %d, "
                      "%d and %d",
                      vocab->n_children, merges->n_children, added == NULL ? 0 : added->n_children,
                      GLM_BPE_MAX_TOKENS, GLM_BPE_MAX_MERGES, GLM_TOKENIZER_MAX_ADDED);
    enum glm_status status = check_model(l, model);
    uint32_t n_ids = 0;
    if (status == GLM_OK)
        status =
            check_part(l, "normalizer", "normalizers", glm_json_get(file, "normalizer"), false);
    if (status == GLM_OK)
        status = check_part(l, "post-processor", "processors", glm_json_get(file, "post_processor"),
                            true);
    if (status == GLM_OK)
        status = check_part(l, "decoder", "decoders", glm_json_get(file, "decoder"), true);
    if (status == GLM_OK)
        status = load_pre_tokenizer(l, glm_json_get(file, "pre_tokenizer"));
    if (status == GLM_OK)
        status = count_ids(l, vocab, added, &n_ids);
    if (status == GLM_OK && glm_bpe_init(&l->t->bpe, n_ids, (uint32_t)vocab->n_children,
                                         (uint32_t)merges->n_children) != GLM_OK)
        status = glm_fail(l->err, GLM_ENOMEM, "cannot load the tokenizer: out of memory");
    if (status == GLM_OK)
        status = load_vocab(l, vocab);
    if (status == GLM_OK)
        status = load_merges(l, merges);
    if (status == GLM_OK)
        status = load_added(l, added);
    l->t->bpe.ignore_merges = is_true(glm_json_get(model, "ignore_merges"));
    return status;
}

enum glm_status glm_tokenizer_parse(const char *json, size_t len, struct glm_tokenizer **out,
                                    struct glm_error *err)
{
    if (len > GLM_TOKENIZER_MAX_FILE_BYTES)
        return REFUSE(err, "it has %zu bytes, more than %d", len, GLM_TOKENIZER_MAX_FILE_BYTES);
    struct arena arena;
    /* The densest JSON, "[[]," repeated, makes one node of 64 bytes from 3 bytes of text. */
    arena_init(&arena, len * 32 + (1 << 20));
    struct loader l = {.t = calloc(1, sizeof *l.t), .err = err};
    struct glm_json *file = NULL;
    struct glm_error problem = {0};
    enum glm_status status = GLM_ENOMEM;
    if (l.t == NULL)
        glm_fail(err, GLM_ENOMEM, "cannot load the tokenizer: out of memory");
    else if (glm_json_parse(json, len, &arena, &file, &problem) != GLM_OK)
        status = glm_fail(err, problem.status == GLM_ENOMEM ? GLM_ENOMEM : GLM_ECHECKPOINT,
                          "cannot use tokenizer.json: %.900s", problem.message);
    else {
        fill_alphabet(l.byte_of);
        status = load(&l, file);
    }
    arena_release(&arena);
    buf_release(&l.left);
    buf_release(&l.right);
    if (status == GLM_OK)
        *out = l.t;
    else
        glm_tokenizer_free(l.t);
    return status;
}

enum glm_status glm_tokenizer_open(const char *path, struct glm_tokenizer **out,
                                   struct glm_error *err)
{
    struct buf file = {0};
    struct glm_error problem = {0};
    enum glm_status status = glm_file_read(path, GLM_TOKENIZER_MAX_FILE_BYTES, &file, err);
    if (status == GLM_OK) {
        status = glm_tokenizer_parse(file.data, file.len, out, &problem);
        if (status != GLM_OK)
            glm_fail(err, status, "'%s': %.900s", path, problem.message);
    }
    buf_release(&file);
    return status;
}

void glm_tokenizer_free(struct glm_tokenizer *t)
{
    if (t == NULL)
        return;
    for (uint32_t i = 0; i < t->n_added; i++)
        free(t->added[i].text);
    free(t->added);
    free(t->special);
    pcre2_code_free(t->regex);
    pcre2_match_context_free(t->limits);
    glm_bpe_release(&t->bpe);
    free(t);
}
