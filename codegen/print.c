/* SPDX-License-Identifier: Apache-2.0 */
/* What `glmctl plan` prints: a lane's summary as aligned text of at most 100 columns, or as JSON
 * with a format version and a fixed order of keys. Golden files hold both. */
#include "codegen/summary.h"

#include <stdio.h>
#include <string.h>

enum { PRINT_FORMAT = 1 };

static uint32_t count_layers(const uint8_t *kinds, uint32_t n, uint8_t kind)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < n; i++)
        count += kinds[i] == kind;
    return count;
}

static double percent(double part, double whole)
{
    return whole > 0 ? 100 * part / whole : 0;
}

/* ---- text ---- */

/* Bytes with the unit that leaves one to three digits before the point. */
static void bytes_text(double bytes, char *text, size_t size)
{
    if (bytes >= 1e9)
        snprintf(text, size, "%.2f GB", bytes / 1e9);
    else
        snprintf(text, size, "%.2f MB", bytes / 1e6);
}

static void range_text(struct glm_range r, char *text, size_t size)
{
    if (r.low == r.high)
        snprintf(text, size, "%u", r.low);
    else
        snprintf(text, size, "%u-%u", r.low, r.high);
}

static void print_head(const struct glm_summary *s, struct buf *out)
{
    const struct glm_lane *lane = s->lane;
    const struct glm_checkpoint *c = s->cluster->checkpoint;
    const struct glm_model *m = &c->model;
    buf_printf(out, "cluster   %s, lane %s%s: TP %u, served as %s on %s:%u\n", s->cluster->name,
               lane->name, lane->is_default ? " (default)" : "", lane->n_ranks,
               s->cluster->served_name, lane->listen_host, lane->listen_port);
    buf_printf(out, "model     %s from %s\n", m->name, glm_shown_checkpoint(s->cluster));
    buf_printf(
        out,
        "          %u layers (%u KDA, %u DSA; %u dense, %u MoE), hidden %u, %u of %u experts\n",
        m->n_layers, count_layers(m->attention, m->n_layers, GLM_ATTENTION_KDA),
        count_layers(m->attention, m->n_layers, GLM_ATTENTION_DSA),
        count_layers(m->ffn, m->n_layers, GLM_FFN_DENSE),
        count_layers(m->ffn, m->n_layers, GLM_FFN_MOE), m->d_hidden, m->n_experts_per_token,
        m->n_experts);
    buf_printf(out, "formats   experts %s", glm_expert_form_text(lane->formats.experts));
    if (lane->formats.experts == GLM_EXPERTS_EXL3)
        buf_printf(out, " (%u bits, %s)", c->exl3_bits, c->exl3_codebook);
    buf_printf(out, ", dense %s, head %s, kv %s, act %s\n",
               glm_matrix_form_text(lane->formats.dense), glm_matrix_form_text(lane->formats.head),
               glm_kv_form_text(lane->formats.kv), glm_act_text(lane->formats.act));
}

static void print_links(const struct glm_summary *s, struct buf *out)
{
    const char *transport = glm_transport_text(s->cluster->transport);
    if (s->n_ranks == 1)
        return;
    buf_printf(out, "fabric    %s, %s", transport, glm_topology_text(s->cluster->topology));
    uint32_t n_direct = 0, n_relayed = 0;
    for (uint32_t i = 0; i < s->n_links; i++) {
        const struct glm_summary_link *l = &s->links[i];
        if (l->n_cables == 0)
            continue;
        buf_printf(out, "%s%u-%u", n_direct++ ? ", " : ": ranks ", l->a, l->b);
        if (l->n_cables > 1)
            buf_printf(out, " (%u cables)", l->n_cables);
    }
    if (s->cluster->topology == GLM_TOPOLOGY_SWITCH)
        buf_str(out, ": every rank reaches every rank");
    for (uint32_t i = 0; i < s->n_links && s->cluster->topology == GLM_TOPOLOGY_RING; i++) {
        if (s->links[i].n_cables == 0)
            buf_printf(out, "%s%u-%u", n_relayed++ ? ", " : "; relayed ", s->links[i].a,
                       s->links[i].b);
    }
    buf_char(out, '\n');
}

static void print_counts(const struct glm_summary *s, struct buf *out)
{
    const struct glm_plan_limits *l = &s->plan->limits;
    buf_printf(
        out,
        "pool      %llu tokens for %u streams of %u; %u kept states; prompts in slices of %u\n",
        (unsigned long long)l->pool_tokens, l->n_streams, l->window_tokens,
        l->n_slots - l->n_streams, l->prefill_rows);
    buf_printf(out, "kernels   %u to build for %s; %u launches and %u exchanges a decode round\n\n",
               s->n_kernels, s->plan->target, s->n_launches, s->n_exchanges);
}

static void print_ranks(const struct glm_summary *s, struct buf *out)
{
    uint64_t largest = 0;
    int width = 4;
    for (uint32_t i = 0; i < s->n_ranks; i++) {
        int len = (int)strlen(s->ranks[i].node->name);
        largest = s->ranks[i].total_bytes > largest ? s->ranks[i].total_bytes : largest;
        width = len > width ? len : width;
    }
    width = width > 20 ? 20 : width;
    bool gib = largest >= (UINT64_C(4) << 30);
    double unit = gib ? 1024.0 * 1024 * 1024 : 1024.0 * 1024;
    buf_printf(out,
               "rank  %-*s  device  heads  experts  weights    pool streams buffers process   "
               "total  memory\n",
               width, "node");
    for (uint32_t i = 0; i < s->n_ranks; i++) {
        const struct glm_summary_rank *r = &s->ranks[i];
        char device[GLM_DEVICE_TEXT_BYTES], heads[24], experts[24], memory[40] = "not declared";
        glm_node_device_text(r->node, device);
        range_text(r->heads, heads, sizeof heads);
        range_text(r->experts, experts, sizeof experts);
        if (r->room_bytes)
            snprintf(memory, sizeof memory, "%.0f%% of %.*f",
                     percent((double)r->total_bytes, (double)r->room_bytes), gib ? 1 : 0,
                     (double)r->room_bytes / unit);
        buf_printf(out, "%4u  %-*.*s  %-6s  %5s  %7s  %7.2f %7.2f %7.2f %7.2f %7.2f %7.2f  %s\n", i,
                   width, width, r->node->name, device, heads, experts,
                   (double)r->weight_bytes / unit, (double)r->pool_bytes / unit,
                   (double)r->stream_bytes / unit, (double)r->buffer_bytes / unit,
                   (double)(r->process_bytes + r->request_bytes) / unit,
                   (double)r->total_bytes / unit, memory);
    }
    buf_printf(out,
               "      sizes in %s; process: with what requests may hold; memory: declared less "
               "reserve\n\n",
               gib ? "GiB" : "MiB");
}

static void print_speed(const struct glm_summary *s, struct buf *out)
{
    const struct glm_price *d = &s->ranks[s->busiest].decode;
    char bytes[32];
    bytes_text(d->read_bytes + d->write_bytes, bytes, sizeof bytes);
    buf_printf(out, "decode    %s a token", bytes);
    if (s->n_ranks > 1)
        buf_printf(out, " on rank %u, the most loaded,", s->busiest);
    buf_printf(out, " at %u tokens of context\n", s->context_tokens);
    if (!s->has_figures) {
        buf_printf(out, "          no speed predicted: the devices' figures are not known\n");
        return;
    }
    buf_printf(
        out,
        "          predicted %.1f tok/s for one stream, %.0f %% of the roofline (%.1f tok/s)\n",
        1 / s->decode_s, percent(s->decode_floor_s, s->decode_s), 1 / s->decode_floor_s);
    if (s->lane->n_streams > 1)
        buf_printf(out, "          predicted %.0f tok/s for %u streams together\n",
                   s->lane->n_streams / s->round_s, s->lane->n_streams);
    buf_printf(out, "prefill   predicted %.0f tok/s, %.0f %% of the roofline\n",
               s->lane->prefill_rows / s->prefill_s, percent(s->prefill_floor_s, s->prefill_s));
}

/* ---- JSON ---- */

static void json_text(struct buf *out, const char *key, const char *value)
{
    buf_printf(out, "\"%s\": ", key);
    buf_json_string(out, value, strlen(value));
}

static void json_rank(const struct glm_summary *s, uint32_t rank, struct buf *out)
{
    const struct glm_summary_rank *r = &s->ranks[rank];
    char device[GLM_DEVICE_TEXT_BYTES];
    glm_node_device_text(r->node, device);
    buf_printf(out, "    {\"rank\": %u, ", rank);
    json_text(out, "node", r->node->name);
    buf_str(out, ", ");
    json_text(out, "device", device);
    buf_printf(out, ", \"heads\": [%u, %u], \"expert_width\": [%u, %u], ", r->heads.low,
               r->heads.high, r->experts.low, r->experts.high);
    buf_printf(
        out,
        "\"weight_bytes\": %llu, \"pool_bytes\": %llu, \"stream_bytes\": %llu, "
        "\"buffer_bytes\": %llu, \"process_bytes\": %llu, \"request_bytes\": %llu, "
        "\"total_bytes\": %llu, \"memory_bytes\": "
        "%llu, "
        "\"reserve_bytes\": %llu, \"decode_read_bytes\": %.0f, \"decode_write_bytes\": %.0f}",
        (unsigned long long)r->weight_bytes, (unsigned long long)r->pool_bytes,
        (unsigned long long)r->stream_bytes, (unsigned long long)r->buffer_bytes,
        (unsigned long long)r->process_bytes, (unsigned long long)r->request_bytes,
        (unsigned long long)r->total_bytes, (unsigned long long)r->node->memory_bytes,
        (unsigned long long)r->node->reserve_bytes, r->decode.read_bytes, r->decode.write_bytes);
    buf_str(out, rank + 1 < s->n_ranks ? ",\n" : "\n");
}

static void json_lane(const struct glm_summary *s, struct buf *out)
{
    const struct glm_lane *lane = s->lane;
    const struct glm_checkpoint *c = s->cluster->checkpoint;
    buf_printf(out, "{\n  \"format_version\": %d,\n  ", PRINT_FORMAT);
    json_text(out, "cluster", s->cluster->name);
    buf_str(out, ",\n  ");
    json_text(out, "lane", lane->name);
    buf_printf(out, ",\n  \"tp\": %u,\n  ", lane->n_ranks);
    json_text(out, "set_digest", s->plan->set_digest);
    buf_str(out, ",\n  \"model\": {");
    json_text(out, "name", c->model.name);
    buf_str(out, ", ");
    json_text(out, "checkpoint", glm_shown_checkpoint(s->cluster));
    buf_str(out, ", ");
    json_text(out, "served_name", s->cluster->served_name);
    buf_str(out, "},\n  \"formats\": {");
    json_text(out, "experts", glm_expert_form_text(lane->formats.experts));
    buf_str(out, ", ");
    json_text(out, "dense", glm_matrix_form_text(lane->formats.dense));
    buf_str(out, ", ");
    json_text(out, "head", glm_matrix_form_text(lane->formats.head));
    buf_str(out, ", ");
    json_text(out, "kv", glm_kv_form_text(lane->formats.kv));
    buf_str(out, ", ");
    json_text(out, "act", glm_act_text(lane->formats.act));
    buf_str(out, "},\n  \"listen\": {");
    json_text(out, "host", lane->listen_host);
    buf_printf(out, ", \"port\": %u},\n", lane->listen_port);
}

static void json_rest(const struct glm_summary *s, struct buf *out)
{
    const struct glm_plan_limits *l = &s->plan->limits;
    buf_str(out, "  \"fabric\": {");
    json_text(out, "transport", glm_transport_text(s->cluster->transport));
    buf_str(out, ", ");
    json_text(out, "topology", glm_topology_text(s->cluster->topology));
    buf_str(out, ", \"links\": [");
    for (uint32_t i = 0; i < s->n_links; i++)
        buf_printf(out, "%s{\"ranks\": [%u, %u], \"cables\": %u}", i ? ", " : "", s->links[i].a,
                   s->links[i].b, s->links[i].n_cables);
    buf_printf(out,
               "]},\n  \"pool_tokens\": %llu,\n  \"streams\": %u,\n  \"window_tokens\": %u,\n"
               "  \"prefill_rows\": %u,\n  \"verify_rows\": %u,\n",
               (unsigned long long)l->pool_tokens, l->n_streams, l->window_tokens, l->prefill_rows,
               l->verify_rows);
    buf_str(out, "  ");
    json_text(out, "target", s->plan->target);
    buf_printf(out,
               ",\n  \"kernels\": %u,\n  \"launches_a_round\": %u,\n  \"exchanges_a_round\": %u,\n",
               s->n_kernels, s->n_launches, s->n_exchanges);
    if (s->has_figures)
        buf_printf(out,
                   "  \"predicted\": {\"context_tokens\": %u, \"decode_tok_s\": %.1f, "
                   "\"decode_roofline\": %.3f, \"decode_all_streams_tok_s\": %.1f, "
                   "\"prefill_tok_s\": %.0f, \"prefill_roofline\": %.3f}\n}\n",
                   s->context_tokens, 1 / s->decode_s, s->decode_floor_s / s->decode_s,
                   s->lane->n_streams / s->round_s, s->lane->prefill_rows / s->prefill_s,
                   s->prefill_floor_s / s->prefill_s);
    else
        buf_str(out, "  \"predicted\": null\n}\n");
}

enum glm_status glm_plan_print(const struct glm_cluster *c, uint32_t lane_i,
                               struct glm_plan *const *plans, bool json, struct buf *out,
                               struct glm_error *err)
{
    struct glm_summary s;
    enum glm_status st = glm_summarise(c, lane_i, plans, &s, err);
    if (st != GLM_OK)
        return st;
    if (json) {
        json_lane(&s, out);
        buf_str(out, "  \"ranks\": [\n");
        for (uint32_t i = 0; i < s.n_ranks; i++)
            json_rank(&s, i, out);
        buf_str(out, "  ],\n");
        json_rest(&s, out);
    } else {
        print_head(&s, out);
        print_links(&s, out);
        print_counts(&s, out);
        print_ranks(&s, out);
        print_speed(&s, out);
    }
    return out->failed ? glm_fail(err, GLM_ENOMEM, "cannot print the plan: out of memory") : GLM_OK;
}
