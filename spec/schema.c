/* SPDX-License-Identifier: Apache-2.0 */
/* The one table of fields: it validates a tree, gives defaults, explains a field and prints the
 * reference page. Adding a field is a row here and its use in resolve.c.
 * Rules between fields (known nodes, cables, splits, formats and devices) are resolve.c's. */
#include "spec/schema.h"

#include "spec/base/nearest.h"
#include "spec/model.h"

#include <ctype.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

enum type { MAP, LIST, TEXT, NAME, WORD, COUNT, BYTES, BOOL };
static const char *const type_texts[] = {"map",      "list",    "text", "name",
                                         "one word", "integer", "size", "true or false"};

enum base { NOWHERE, CLUSTER, NODE, LANE };

struct field {
    const char *path; /* [] stands for a list's member */
    enum type type;
    bool required;
    uint64_t min, max; /* COUNT and BYTES: the value; LIST: members; max 0: no rule */
    uint64_t multiple; /* COUNT: of what it must be a multiple; 0: no rule */
    const char *unit;
    const char *fallback;     /* the default; in parentheses when resolve.c computes it */
    const char *const *words; /* WORD: in the order of the enum; NULL ends */
    const char *help;
    enum base base;
    size_t offset;
};

static const char *const api_words[] = {"glmctl/v1", NULL};
static const char *const kind_words[] = {"Cluster", NULL};
static const char *const weights_words[] = {"shared", "copy", NULL};
static const char *const transport_words[] = {"shm", "tcp", "roce", "nccl", NULL};
static const char *const topology_words[] = {"loopback", "direct", "triangle",
                                             "ring",     "switch", NULL};
static const char *const experts_words[] = {"exl3", "bf16", NULL};
static const char *const matrix_words[] = {"bf16", "q4", "fp8", NULL};
static const char *const head_words[] = {"bf16", "fp8", NULL};
static const char *const kv_words[] = {"fp32", "bf16", "fp8", NULL};
static const char *const act_words[] = {"f32", "bf16", NULL};
static const char *const effort_words[] = {"low", "high", "max", NULL};
static const char *const device_words[] = {"cpu", "cuda", "gb10", NULL};

#define IN_CLUSTER(f) CLUSTER, offsetof(struct glm_cluster, f)
#define IN_NODE(f)    NODE, offsetof(struct glm_node, f)
#define IN_LANE(f)    LANE, offsetof(struct glm_lane, f)
#define ELSEWHERE     NOWHERE, 0
#define KIB           1024ull
#define MIB           (1024 * KIB)
#define GIB           (1024 * MIB)
#define TIB           (1024 * GIB)

/* clang-format off */
static const struct field fields[] = {
    { "apiVersion", WORD, true, 0, 0, 0, NULL, NULL, api_words,
      "The version of this file's format.", ELSEWHERE },
    { "kind", WORD, true, 0, 0, 0, NULL, NULL, kind_words,
      "What the file describes.", ELSEWHERE },
    { "name", NAME, true, 0, 0, 0, NULL, NULL, NULL,
      "The cluster's name: state, lock and secret on every node are kept under it.", IN_CLUSTER(name) },

    { "model", MAP, true, 0, 0, 0, NULL, NULL, NULL,
      "The checkpoint and how it reaches the nodes.", ELSEWHERE },
    { "model.checkpoint", TEXT, true, 0, 0, 0, NULL, NULL, NULL,
      "A folder with config.json and safetensors files (taken from this file's folder when relative), a hub id "
      "as org/name (looked up in the local hub cache), or synthetic:NAME with made-up weights.",
      IN_CLUSTER(checkpoint_where) },
    { "model.served_name", TEXT, false, 0, 0, 0, NULL, "(the checkpoint's last path part)", NULL,
      "The model's name in the API.", IN_CLUSTER(served_name) },
    { "model.weights", WORD, false, 0, 0, 0, NULL, "shared", weights_words,
      "How the nodes get the checkpoint: shared = every node reads the same path (one machine, NFS, or copies made "
      "by hand); copy = apply copies what is missing to each node.", IN_CLUSTER(distribution) },

    { "nodes", LIST, true, 1, GLM_MAX_NODES, 0, NULL, NULL, NULL,
      "The places for ranks. Several may share a machine or a device: then their memory is summed.", ELSEWHERE },
    { "nodes[]", MAP, false, 0, 0, 0, NULL, NULL, NULL, "One place for one rank.", ELSEWHERE },
    { "nodes[].name", NAME, true, 0, 0, 0, NULL, NULL, NULL,
      "The node's name, used by cables and lanes.", IN_NODE(name) },
    { "nodes[].host", TEXT, false, 0, 0, 0, NULL, "local", NULL,
      "An ssh target ([user@]host), or local for the machine that runs glmctl.", IN_NODE(host) },
    { "nodes[].device", TEXT, false, 0, 0, 0, NULL, "cpu", device_words,
      "What computes: cpu, cuda:N (the Nth GPU), or gb10 (a DGX Spark's GPU and its shared memory).", ELSEWHERE },
    { "nodes[].control", TEXT, false, 0, 0, 0, NULL, "(the host)", NULL,
      "The address for ssh and control, when it is not the one the host name resolves to.", IN_NODE(control) },
    { "nodes[].memory", BYTES, false, 16 * MIB, 16 * TIB, 0, NULL, "(found by apply)", NULL,
      "Memory that the rank may plan with, reserve included.", IN_NODE(memory_bytes) },
    { "nodes[].reserve", BYTES, false, 0, 16 * TIB, 0, NULL, "(14GiB on gb10, else 0)", NULL,
      "Memory left to everything else on the node. A GB10 that runs out of memory freezes instead of failing.",
      IN_NODE(reserve_bytes) },
    { "nodes[].threads", COUNT, false, 1, 1024, 0, "threads", "(cores / ranks on the host)", NULL,
      "Compute threads of a cpu rank. On a GPU they read weights while it loads, 16 at most unless given here.",
      IN_NODE(threads) },

    { "cables", LIST, false, 0, GLM_MAX_CABLES, 0, NULL, "(none)", NULL,
      "The cables between the nodes' fast ports. The topology is derived from them.", ELSEWHERE },
    { "cables[]", MAP, false, 0, 0, 0, NULL, NULL, NULL, "One cable.", ELSEWHERE },
    { "cables[].ends", LIST, true, 2, 2, 0, NULL, NULL, NULL,
      "The two ends as NODE:PORT; the second may be the word switch. Ports count from 0.", ELSEWHERE },
    { "cables[].ends[]", TEXT, false, 0, 0, 0, NULL, NULL, NULL, "One end, NODE:PORT or switch.", ELSEWHERE },
    { "cables[].addresses", LIST, false, 1, 2, 0, NULL, "(discovered)", NULL,
      "The IPv4 addresses of the two ends, with /PREFIX when it is not 24; one address when the second end is a "
      "switch. A cable's two ends share a network that no other cable has.", ELSEWHERE },
    { "cables[].addresses[]", TEXT, false, 0, 0, 0, NULL, NULL, NULL, "One end's address.", ELSEWHERE },

    { "fabric", MAP, false, 0, 0, 0, NULL, "(by nodes and cables)", NULL, "How ranks exchange data.", ELSEWHERE },
    { "fabric.transport", WORD, false, 0, 0, 0, NULL, "(shm on one host, roce between GPUs, else tcp)", transport_words,
      "What carries the exchanges: shm = shared memory of one host, tcp = sockets, roce = RDMA over the cables, "
      "nccl = NCCL between GPUs, one a rank.", IN_CLUSTER(transport) },
    { "fabric.topology", WORD, false, 0, 0, 0, NULL, "(derived from the cables)", topology_words,
      "The shape that the cables are meant to have; checked against them.", IN_CLUSTER(topology) },

    { "lanes", LIST, true, 1, GLM_MAX_LANES, 0, NULL, NULL, NULL,
      "The splits of the model that can be served. Several run side by side where ports and memory allow.", ELSEWHERE },
    { "lanes[]", MAP, false, 0, 0, 0, NULL, NULL, NULL, "One served split.", ELSEWHERE },
    { "lanes[].name", NAME, true, 0, 0, 0, NULL, NULL, NULL, "The lane's name, for --lane.", IN_LANE(name) },
    { "lanes[].default", BOOL, false, 0, 0, 0, NULL, "false", NULL,
      "Whether commands without --lane mean this one. A single lane is the default by itself.", IN_LANE(is_default) },
    { "lanes[].ranks", LIST, true, 1, GLM_MAX_RANKS, 0, NULL, NULL, NULL,
      "The nodes in rank order. Rank 0 serves the API. In a ring the order follows the cables.", ELSEWHERE },
    { "lanes[].ranks[]", TEXT, false, 0, 0, 0, NULL, NULL, NULL, "A node's name.", ELSEWHERE },
    { "lanes[].tp", COUNT, false, 1, GLM_MAX_RANKS, 0, "ranks", "(the number of ranks)", NULL,
      "The tensor-parallel size; says again how many ranks there are.", ELSEWHERE },
    { "lanes[].listen", TEXT, false, 0, 0, 0, NULL, "127.0.0.1:8888", NULL,
      "Address and port of the API, HOST:PORT; port 0 takes any free one.", ELSEWHERE },
    { "lanes[].streams", COUNT, false, 1, 16, 0, "requests", "8", NULL,
      "Requests served at once; more wait.", IN_LANE(n_streams) },
    { "lanes[].window", COUNT, false, 64, 1u << 30, 64, "tokens", "(the model's longest, at most 32768)", NULL,
      "Tokens that one stream can hold, prompt and reply together.", IN_LANE(window_tokens) },
    { "lanes[].pool", COUNT, false, 0, 1u << 31, GLM_POOL_EXTENT_TOKENS, "tokens", "0", NULL,
      "Tokens that all streams together can hold; 0 = what memory leaves, at most streams x window.",
      IN_LANE(pool_tokens) },
    { "lanes[].prefill", COUNT, false, 64, 8192, 64, "rows", "(512, at most the window)", NULL,
      "Prompt rows computed in one slice between decode steps.", IN_LANE(prefill_rows) },
    { "lanes[].verify", COUNT, false, 1, 16, 0, "rows", "(1 without drafters, else 16)", NULL,
      "Rows of one stream that a round can check: drafts and the token before them.", IN_LANE(verify_rows) },
    { "lanes[].rotate", BOOL, false, 0, 0, 0, NULL, "false", NULL,
      "Whether the larger share of an uneven split rotates over the ranks by layer.", IN_LANE(rotate_uneven) },
    { "lanes[].formats", MAP, false, 0, 0, 0, NULL, "(each field's own)", NULL,
      "How weights, cache and activations are held on the device.", ELSEWHERE },
    { "lanes[].formats.experts", WORD, false, 0, 0, 0, NULL, "(as the checkpoint stores them)", experts_words,
      "Routed experts. bf16 also decodes those that are stored as exl3, at four times their bytes; exl3 must be stored.", IN_LANE(formats.experts) },
    { "lanes[].formats.dense", WORD, false, 0, 0, 0, NULL, "bf16", matrix_words,
      "The other matrices: attention, dense and shared MLPs.", IN_LANE(formats.dense) },
    { "lanes[].formats.head", WORD, false, 0, 0, 0, NULL, "bf16", head_words, "The output head.", ELSEWHERE },
    { "lanes[].formats.kv", WORD, false, 0, 0, 0, NULL, "(fp32 on cpu, else bf16)", kv_words,
      "The cache of attention rows and of selection keys; fp32 on cpu only.", IN_LANE(formats.kv) },
    { "lanes[].formats.act", WORD, false, 0, 0, 0, NULL, "(f32 on cpu, else bf16)", act_words,
      "Activations between kernels; GPUs have bf16 only.", IN_LANE(formats.act) },
    { "lanes[].drafters", LIST, false, 0, GLM_MAX_DRAFTERS, 0, NULL, "[]", NULL,
      "What proposes tokens ahead, in order of preference.", ELSEWHERE },
    { "lanes[].drafters[]", TEXT, false, 0, 0, 0, NULL, NULL, NULL,
      "mtp (the checkpoint's own layer), copy (repeats from the text), dflash2, or the folder of a DFlash2 drafter.",
      ELSEWHERE },
    { "lanes[].vision", BOOL, false, 0, 0, 0, NULL, "false", NULL,
      "Whether pictures are accepted; loads the vision tower on rank 0.", IN_LANE(vision) },
    { "lanes[].thinking", BOOL, false, 0, 0, 0, NULL, "true", NULL,
      "Whether replies think first when the request does not say.", IN_LANE(thinking) },
    { "lanes[].effort", WORD, false, 0, 0, 0, NULL, "max", effort_words,
      "Reasoning effort when the request does not say.", ELSEWHERE },
    { "lanes[].limits", MAP, false, 0, 0, 0, NULL, "(each field's own)", NULL, "Bounds of one request.", ELSEWHERE },
    { "lanes[].limits.max_tokens", COUNT, false, 1, 1u << 30, 0, "tokens", "(the window)", NULL,
      "Reply tokens when the request does not say.", IN_LANE(max_tokens) },
    { "lanes[].limits.max_body", BYTES, false, 1 * KIB, 1 * GIB, 0, NULL, "32MiB", NULL,
      "Size of a request's body. The head sets memory aside for four.", IN_LANE(max_body_bytes) },
    { "lanes[].api_key_file", TEXT, false, 0, 0, 0, NULL, "(open)", NULL,
      "A file with mode 0600 that holds the API keys, one a line; without it the API is open.", IN_LANE(api_key_file) },
};
/* clang-format on */
enum { N_FIELDS = sizeof fields / sizeof fields[0] };

/* ---- the tree against the table ---- */

struct walk {
    struct arena *arena;
    struct diag_list *diags;
    struct glm_cluster *c;
    void *node, *lane; /* what NODE and LANE fields are written into */
};

static const struct field *find_field(const char *path)
{
    for (size_t i = 0; i < N_FIELDS; i++)
        if (strcmp(fields[i].path, path) == 0)
            return &fields[i];
    return NULL;
}

/* The key of a field that lies directly under the map at `path`, or NULL. */
static const char *direct_key(const struct field *f, const char *path)
{
    size_t len = strlen(path);
    const char *key = f->path;
    if (len > 0) {
        if (strncmp(key, path, len) != 0 || key[len] != '.')
            return NULL;
        key += len + 1;
    }
    return strpbrk(key, ".[") == NULL ? key : NULL;
}

static const char *last_key(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot != NULL ? dot + 1 : path;
}

/* How messages call a value: its key, or the list it is in. */
static void subject(const struct yaml_node *node, const char *path, char *text, size_t size)
{
    if (node->key != NULL)
        snprintf(text, size, "'%.60s'", node->key);
    else
        snprintf(text, size, "a member of '%.60s'", last_key(path));
    char *brackets = strstr(text, "[]");
    if (brackets != NULL)
        memmove(brackets, brackets + 2, strlen(brackets + 2) + 1);
}

static bool is_null(const struct yaml_node *node)
{
    static const char *const nulls[] = {"", "~", "null", "Null", "NULL"};
    if (node->shape != YAML_TEXT || node->quoted)
        return false;
    for (size_t i = 0; i < sizeof nulls / sizeof nulls[0]; i++)
        if (strcmp(node->text, nulls[i]) == 0)
            return true;
    return false;
}

static bool parse_count(const char *text, uint64_t *out)
{
    uint64_t value = 0;
    if (text[0] == '\0' || strlen(text) > 18)
        return false;
    for (const char *p = text; *p != '\0'; p++) {
        if (*p < '0' || *p > '9')
            return false;
        value = value * 10 + (uint64_t)(*p - '0');
    }
    *out = value;
    return true;
}

/* "2GiB", "1.5 GB", "1048576": exact, so at most three decimals, which 1000 and 1024 scale. */
static bool parse_bytes(const char *text, uint64_t *out)
{
    static const struct {
        const char *name;
        uint64_t bytes;
    } units[] = {
        {"", 1},         {"B", 1},           {"kB", 1000},          {"KB", 1000},
        {"MB", 1000000}, {"GB", 1000000000}, {"TB", 1000000000000}, {"KiB", KIB},
        {"MiB", MIB},    {"GiB", GIB},       {"TiB", TIB},
    };
    uint64_t whole = 0;
    uint64_t thousandths = 0;
    const char *p = text;
    const char *start = p;
    for (; *p >= '0' && *p <= '9'; p++) {
        if (p - start == 15)
            return false;
        whole = whole * 10 + (uint64_t)(*p - '0');
    }
    if (p == start)
        return false;
    if (*p == '.') {
        uint64_t place = 100;
        const char *dot = p++;
        for (; *p >= '0' && *p <= '9' && place > 0; p++, place /= 10)
            thousandths += place * (uint64_t)(*p - '0');
        if (p == dot + 1)
            return false;
    }
    while (*p == ' ')
        p++;
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        if (strcmp(p, units[i].name) != 0)
            continue;
        uint64_t part = units[i].bytes * thousandths / 1000;
        return !__builtin_mul_overflow(whole, units[i].bytes, out) &&
               !__builtin_add_overflow(*out, part, out);
    }
    return false;
}

static void bytes_text(uint64_t bytes, char *text, size_t size)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    size_t i = 0;
    while (i < 4 && bytes >= 1024 && bytes % 1024 == 0) {
        bytes /= 1024;
        i++;
    }
    snprintf(text, size, "%llu%s", (unsigned long long)bytes, units[i]);
}

static const char *words_text(const char *const *words, char *text, size_t size)
{
    size_t len = 0;
    text[0] = '\0';
    for (size_t i = 0; words[i] != NULL && len < size; i++)
        len += (size_t)snprintf(text + len, size - len, "%s%s", i > 0 ? ", " : "", words[i]);
    return text;
}

static size_t count_words(const char *const *words)
{
    size_t n = 0;
    while (words[n] != NULL)
        n++;
    return n;
}

static void refuse(struct walk *w, struct yaml_node *node, const char *id, const char *hint,
                   const char *message)
{
    if (node == NULL)
        GLM_BUG("a default in the field table is not a value of its field");
    node->bad = true;
    diag_add(w->diags, DIAG_ERROR, node->at, id, hint, "%s", message);
}

static void *place(const struct walk *w, const struct field *f)
{
    unsigned char *base = f->base == CLUSTER ? (void *)w->c : f->base == NODE ? w->node : w->lane;
    return f->base == NOWHERE || base == NULL ? NULL : base + f->offset;
}

/* Each reader: text → value in its place, or a message. node NULL: the text is the table's own
 * default, which is always good (a test reads every one). */
static bool read_count(struct walk *w, const struct field *f, struct yaml_node *node,
                       const char *text, const char *who)
{
    uint64_t value;
    char message[400];
    bool quoted = node != NULL && node->quoted;
    if (quoted || !parse_count(text, &value)) {
        snprintf(message, sizeof message, "%s must be an integer, found '%.60s'", who, text);
        refuse(w, node, "spec.not-an-integer", quoted ? "remove the quotes" : NULL, message);
        return false;
    }
    if (f->max > 0 && (value < f->min || value > f->max)) {
        snprintf(message, sizeof message, "%s is %llu, allowed: %llu to %llu%s%s", who,
                 (unsigned long long)value, (unsigned long long)f->min, (unsigned long long)f->max,
                 f->unit != NULL ? " " : "", f->unit != NULL ? f->unit : "");
        refuse(w, node, "spec.out-of-range", NULL, message);
        return false;
    }
    if (f->multiple > 0 && value % f->multiple != 0) {
        char hint[80];
        uint64_t below = value / f->multiple * f->multiple;
        snprintf(message, sizeof message, "%s is %llu, not a multiple of %llu", who,
                 (unsigned long long)value, (unsigned long long)f->multiple);
        uint64_t above = below + f->multiple;
        if (below >= f->min && below > 0 && above <= f->max)
            snprintf(hint, sizeof hint, "%llu or %llu", (unsigned long long)below,
                     (unsigned long long)above);
        else
            snprintf(hint, sizeof hint, "%llu",
                     (unsigned long long)(above <= f->max ? above : below));
        refuse(w, node, "spec.not-a-multiple", hint, message);
        return false;
    }
    uint32_t *out = place(w, f);
    if (out != NULL)
        *out = (uint32_t)value;
    return true;
}

static bool read_bytes(struct walk *w, const struct field *f, struct yaml_node *node,
                       const char *text, const char *who)
{
    uint64_t value;
    char message[400];
    if (!parse_bytes(text, &value)) {
        snprintf(message, sizeof message, "%s must be a size, found '%.60s'", who, text);
        refuse(w, node, "spec.not-a-size", "a number with a unit, as in 512MiB, 2GiB or 128GB",
               message);
        return false;
    }
    if (value < f->min || value > f->max) {
        char low[32];
        char high[32];
        bytes_text(f->min, low, sizeof low);
        bytes_text(f->max, high, sizeof high);
        snprintf(message, sizeof message, "%s is %.60s, allowed: %s to %s", who, text, low, high);
        refuse(w, node, "spec.out-of-range", NULL, message);
        return false;
    }
    uint64_t *out = place(w, f);
    if (out != NULL)
        *out = value;
    return true;
}

static bool read_bool(struct walk *w, const struct field *f, struct yaml_node *node,
                      const char *text, const char *who)
{
    bool value = strcmp(text, "true") == 0;
    bool quoted = node != NULL && node->quoted;
    if (quoted || (!value && strcmp(text, "false") != 0)) {
        char message[400];
        snprintf(message, sizeof message, "%s must be true or false, found '%.60s'", who, text);
        refuse(w, node, "spec.not-a-boolean", quoted ? "remove the quotes" : NULL, message);
        return false;
    }
    bool *out = place(w, f);
    if (out != NULL)
        *out = value;
    return true;
}

static bool read_word(struct walk *w, const struct field *f, struct yaml_node *node,
                      const char *text, const char *who)
{
    for (unsigned i = 0; f->words[i] != NULL; i++) {
        if (strcmp(f->words[i], text) != 0)
            continue;
        unsigned *out = place(w, f);
        if (out != NULL)
            *out = i;
        return true;
    }
    char words[200];
    char message[500];
    char hint[120];
    const char *near = nearest_name(text, f->words, count_words(f->words));
    snprintf(hint, sizeof hint, "did you mean '%s'?", near != NULL ? near : "");
    snprintf(message, sizeof message, "%s is '%.60s', allowed: %s", who, text,
             words_text(f->words, words, sizeof words));
    refuse(w, node, "spec.unknown-word", near != NULL ? hint : NULL, message);
    return false;
}

static bool read_text(struct walk *w, const struct field *f, struct yaml_node *node,
                      const char *text, const char *who)
{
    char message[400];
    size_t len = strlen(text);
    for (size_t i = 0; i < len; i++) {
        if ((unsigned char)text[i] >= 0x20)
            continue;
        snprintf(message, sizeof message, "%s holds a line break or control character", who);
        refuse(w, node, "spec.bad-text", NULL, message);
        return false;
    }
    if (len == 0 || len > 1024) {
        snprintf(message, sizeof message, "%s has %zu characters, allowed: 1 to 1024", who, len);
        refuse(w, node, "spec.bad-text", NULL, message);
        return false;
    }
    bool good = len < 64;
    for (size_t i = 0; i < len && f->type == NAME; i++)
        good =
            good && (isalnum((unsigned char)text[i]) || (i > 0 && strchr("-_.", text[i]) != NULL));
    if (f->type == NAME && !good) {
        snprintf(message, sizeof message, "%s is '%.60s', not a name", who, text);
        refuse(w, node, "spec.bad-name",
               "up to 63 letters, digits, '-', '_' and '.', a letter or digit first", message);
        return false;
    }
    const char **out = place(w, f);
    if (out != NULL)
        *out = text;
    return true;
}

static bool read_value(struct walk *w, const struct field *f, struct yaml_node *node,
                       const char *text, const char *who)
{
    switch (f->type) {
    case COUNT:
        return read_count(w, f, node, text, who);
    case BYTES:
        return read_bytes(w, f, node, text, who);
    case BOOL:
        return read_bool(w, f, node, text, who);
    case WORD:
        return read_word(w, f, node, text, who);
    case TEXT:
    case NAME:
        return read_text(w, f, node, text, who);
    case MAP:
    case LIST:
        return true;
    }
    return true;
}

/* The nearest key of this map; else where the key belongs; else what is allowed here. */
static void refuse_key(struct walk *w, struct yaml_node *member, const char *path)
{
    const char *keys[N_FIELDS];
    size_t n = 0;
    const struct field *elsewhere = NULL;
    for (size_t i = 0; i < N_FIELDS; i++) {
        const char *key = direct_key(&fields[i], path);
        if (key != NULL)
            keys[n++] = key;
        else if (strcmp(last_key(fields[i].path), member->key) == 0)
            elsewhere = &fields[i];
    }
    char hint[400];
    const char *near = nearest_name(member->key, keys, n);
    if (near != NULL) {
        snprintf(hint, sizeof hint, "did you mean '%s'?", near);
    } else if (elsewhere != NULL && strchr(elsewhere->path, '.') == NULL) {
        snprintf(hint, sizeof hint, "'%s' belongs at the top of the file", member->key);
    } else if (elsewhere != NULL) {
        snprintf(hint, sizeof hint, "'%s' belongs to '%.*s'", member->key,
                 (int)(strlen(elsewhere->path) - strlen(member->key) - 1), elsewhere->path);
    } else {
        size_t len = (size_t)snprintf(hint, sizeof hint, "known here:");
        for (size_t i = 0; i < n && len < sizeof hint; i++)
            len +=
                (size_t)snprintf(hint + len, sizeof hint - len, "%s %s", i > 0 ? "," : "", keys[i]);
    }
    member->bad = true;
    diag_add(w->diags, DIAG_ERROR, member->key_at, "spec.unknown-key", hint,
             "unknown key '%.60s' in %s%.60s%s", member->key, path[0] != '\0' ? "'" : "the spec",
             path, path[0] != '\0' ? "'" : "");
}

static void apply_node(struct walk *w, const struct field *f, struct yaml_node *node);

/* Whether an unknown key of the map is this one misspelt, which was said already. */
static bool is_misspelt(const char *path, const char *key, const struct yaml_node *map)
{
    for (const struct yaml_node *m = map->first; m != NULL; m = m->next) {
        char child[128];
        int len = snprintf(child, sizeof child, "%s%s%s", path, path[0] != '\0' ? "." : "", m->key);
        bool known = len > 0 && (size_t)len < sizeof child && find_field(child) != NULL;
        if (!known && nearest_name(m->key, &key, 1) != NULL)
            return true;
    }
    return false;
}

static void apply_missing(struct walk *w, const struct field *f, const char *path,
                          const struct yaml_node *map)
{
    if (f->required && map != NULL && !is_misspelt(path, last_key(f->path), map))
        diag_add(w->diags, DIAG_ERROR, map->at, "spec.missing-key", NULL, "'%s' is missing%s%s%s",
                 last_key(f->path), map->key != NULL ? " in '" : "",
                 map->key != NULL ? map->key : "", map->key != NULL ? "'" : "");
    if (f->type == MAP)
        apply_node(w, f, NULL);
    else if (f->fallback != NULL && f->fallback[0] != '(' && f->type != LIST)
        read_value(w, f, NULL, f->fallback, "the default");
}

/* node NULL: the map is absent and its fields' defaults are taken. */
static void apply_map(struct walk *w, const char *path, struct yaml_node *node)
{
    for (struct yaml_node *m = node != NULL ? node->first : NULL; m != NULL; m = m->next) {
        char child[128];
        int len = snprintf(child, sizeof child, "%s%s%s", path, path[0] != '\0' ? "." : "", m->key);
        const struct field *f =
            strpbrk(m->key, ".[") == NULL && len > 0 && (size_t)len < sizeof child
                ? find_field(child)
                : NULL;
        if (f == NULL)
            refuse_key(w, m, path);
        else if (yaml_get(node, m->key) == m) /* a duplicate was reported and does not count */
            apply_node(w, f, m);
    }
    for (size_t i = 0; i < N_FIELDS; i++) {
        const char *key = direct_key(&fields[i], path);
        if (key != NULL && yaml_get(node, key) == NULL)
            apply_missing(w, &fields[i], path, node);
    }
}

static void apply_list(struct walk *w, const struct field *f, struct yaml_node *node)
{
    char path[128];
    char message[200];
    if (node->n_items < f->min || node->n_items > f->max) {
        snprintf(message, sizeof message, "'%s' has %u members, allowed: %llu to %llu",
                 last_key(f->path), node->n_items, (unsigned long long)f->min,
                 (unsigned long long)f->max);
        refuse(w, node, "spec.list-length", NULL, message);
        return;
    }
    snprintf(path, sizeof path, "%s[]", f->path);
    const struct field *member = find_field(path);
    uint32_t i = 0;
    for (struct yaml_node *m = node->first; m != NULL; m = m->next, i++) {
        if (strcmp(f->path, "nodes") == 0) {
            w->node = &w->c->nodes[i];
            w->c->nodes[i].at = m->at;
        } else if (strcmp(f->path, "lanes") == 0) {
            w->lane = &w->c->lanes[i];
            w->c->lanes[i].at = m->at;
        }
        apply_node(w, member, m);
    }
    if (strcmp(f->path, "nodes") == 0)
        w->c->n_nodes = node->n_items;
    else if (strcmp(f->path, "lanes") == 0)
        w->c->n_lanes = node->n_items;
}

static void apply_node(struct walk *w, const struct field *f, struct yaml_node *node)
{
    if (node == NULL) {
        apply_map(w, f->path, NULL);
        return;
    }
    char who[100];
    char message[300];
    subject(node, f->path, who, sizeof who);
    if (is_null(node)) {
        snprintf(message, sizeof message, "%s has no value", who);
        refuse(w, node, "spec.no-value", "give it a value, or remove the key", message);
        return;
    }
    enum yaml_shape wanted = f->type == MAP ? YAML_MAP : f->type == LIST ? YAML_LIST : YAML_TEXT;
    if (node->shape != wanted) {
        static const char *const ids[] = {"spec.not-a-value", "spec.not-a-list", "spec.not-a-map"};
        static const char *const shapes[] = {"a single value", "a list", "a map"};
        snprintf(message, sizeof message, "%s must be %s, found %s", who, shapes[wanted],
                 yaml_shape_text(node));
        refuse(w, node, ids[wanted], NULL, message);
        return;
    }
    if (f->type == MAP)
        apply_map(w, f->path, node);
    else if (f->type == LIST)
        apply_list(w, f, node);
    else
        read_value(w, f, node, node->text, who);
}

enum glm_status schema_apply(struct yaml_node *root, struct arena *arena, struct diag_list *diags,
                             struct glm_cluster *c)
{
    size_t errors = diags->n_errors;
    struct walk w = {.arena = arena, .diags = diags, .c = c};
    if (root->shape != YAML_MAP) {
        refuse(&w, root, "spec.not-a-map", "start with 'apiVersion: glmctl/v1'",
               root->shape == YAML_LIST ? "the spec must be a map, found a list"
                                        : "the spec must be a map, found text");
        return GLM_ESPEC;
    }
    apply_map(&w, "", root);
    return diags->n_errors > errors ? GLM_ESPEC : GLM_OK;
}

/* ---- explain and the reference page ---- */

static void describe(const struct field *f, struct buf *out)
{
    char low[32];
    char high[32];
    buf_str(out, type_texts[f->type]);
    if (f->words != NULL) {
        char words[200];
        buf_printf(out, ": %s", words_text(f->words, words, sizeof words));
    }
    if (f->type == BYTES) {
        bytes_text(f->min, low, sizeof low);
        bytes_text(f->max, high, sizeof high);
        buf_printf(out, ", %s to %s", low, high);
    } else if (f->max > 0) {
        buf_printf(out, ", %llu to %llu", (unsigned long long)f->min, (unsigned long long)f->max);
    }
    if (f->type == LIST)
        buf_str(out, " members");
    if (f->unit != NULL)
        buf_printf(out, " %s", f->unit);
    if (f->multiple > 0)
        buf_printf(out, ", a multiple of %llu", (unsigned long long)f->multiple);
}

static const char *default_text(const struct field *f, char *text, size_t size)
{
    if (f->fallback == NULL)
        return f->required ? "required" : "-";
    if (f->fallback[0] != '(')
        return f->fallback;
    snprintf(text, size, "%s", f->fallback + 1);
    text[strlen(text) - 1] = '\0';
    return text;
}

bool glm_schema_field(size_t i, struct glm_field_doc *out)
{
    struct buf value = {0};
    char text[160];
    if (i >= N_FIELDS)
        return false;
    const struct field *f = &fields[i];
    *out = (struct glm_field_doc){
        .path = f->path, .help = f->help, .words = f->words, .required = f->required};
    describe(f, &value);
    snprintf(out->value, sizeof out->value, "%s", buf_text(&value));
    if (f->fallback != NULL)
        snprintf(out->fallback, sizeof out->fallback, "%s", default_text(f, text, sizeof text));
    buf_release(&value);
    return true;
}

/* Paths are compared without brackets, so that "lanes.window" is found too. */
static void strip_brackets(const char *path, char *out, size_t size)
{
    size_t n = 0;
    for (; *path != '\0' && n + 1 < size; path++)
        if (*path != '[' && *path != ']')
            out[n++] = *path;
    out[n] = '\0';
}

static void explain_one(const struct field *f, struct buf *out)
{
    char text[160];
    buf_printf(out, "%s\n    %s\n    ", f->path, f->help);
    describe(f, out);
    buf_printf(out, "\n    default: %s\n", default_text(f, text, sizeof text));
}

enum glm_status glm_schema_explain(const char *field, struct buf *out, struct glm_error *err)
{
    char wanted[128];
    char path[128];
    strip_brackets(field, wanted, sizeof wanted);
    size_t len = strlen(wanted);
    bool found = false;
    for (size_t i = 0; i < N_FIELDS; i++) {
        strip_brackets(fields[i].path, path, sizeof path);
        bool below = len == 0 || (strncmp(path, wanted, len) == 0 && path[len] == '.');
        if (strcmp(path, wanted) != 0 && !below)
            continue;
        found = true;
        explain_one(&fields[i], out);
    }
    for (size_t i = 0; i < N_FIELDS && !found; i++) {
        if (strcmp(last_key(fields[i].path), field) != 0)
            continue;
        found = true;
        explain_one(&fields[i], out);
    }
    if (found)
        return GLM_OK;
    const char *names[2 * N_FIELDS];
    for (size_t i = 0; i < N_FIELDS; i++) {
        names[i] = fields[i].path;
        names[N_FIELDS + i] = last_key(fields[i].path);
    }
    const char *near = nearest_name(field, names, 2 * N_FIELDS);
    enum glm_status status = glm_fail(err, GLM_ENOTFOUND, "there is no field '%.100s'", field);
    if (near != NULL)
        glm_error_hint(err, "did you mean '%s'?", near);
    else
        glm_error_hint(err, "glmctl explain lists all fields");
    return status;
}

void glm_schema_reference(struct buf *out)
{
    buf_str(out,
            "<!-- Generated from the field table in spec/schema.c by `make generated`. -->\n"
            "# The cluster spec\n\n"
            "One YAML document describes the machines, the cables, the model and the lanes it is "
            "served by. `[]` stands for a list's member. Sizes take B, kB, MB, GB, TB, KiB, MiB, "
            "GiB and TiB. Anchors, aliases, tags and unknown keys are errors.\n\n"
            "| field | value | default | meaning |\n| --- | --- | --- | --- |\n");
    for (size_t i = 0; i < N_FIELDS; i++) {
        char text[160];
        buf_printf(out, "| `%s` | ", fields[i].path);
        describe(&fields[i], out);
        buf_printf(out, " | %s | %s |\n", default_text(&fields[i], text, sizeof text),
                   fields[i].help);
    }
}

const char *glm_device_text(enum glm_device_kind d)
{
    return device_words[d];
}

const char *glm_transport_text(enum glm_transport t)
{
    return transport_words[t];
}

const char *glm_topology_text(enum glm_topology t)
{
    return topology_words[t];
}

const char *glm_matrix_form_text(enum glm_matrix_form f)
{
    return matrix_words[f];
}

const char *glm_expert_form_text(enum glm_expert_form f)
{
    return experts_words[f];
}

const char *glm_kv_form_text(enum glm_kv_form f)
{
    return kv_words[f];
}

const char *glm_act_text(enum glm_act a)
{
    return act_words[a];
}
