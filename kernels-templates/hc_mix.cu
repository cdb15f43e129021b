/* SPDX-License-Identifier: Apache-2.0 */
/* A hyper-connection's boundary: writes the pending sub-layer back into the streams, computes the
 * next site's weights (2S+S² dots over all streams, sigmoid, Sinkhorn), reads the mixed input and
 * norms it (docs/model.md 2). The order of sums is the host body's, and so are the bits.
 *
 * A block has TILE rows and one block of columns: it copies its part of fn to shared memory in a
 * ring of two stages, so that a single row keeps 24 KB in flight, and leaves 16 lane sums a dot in
 * scratch. The last of a tile's blocks adds them in block order and finishes the rows. */
#include "hc.cuh"

#define MIXES (2 * GLM_S + GLM_S * GLM_S)
#define SUMS  (MIXES + 1) /* the dots, then the sum of squares */
#define COLS                                                                            \
    (GLM_D > 1024 ? (GLM_D + 255) / 256 * 16 : 64) /* of a block, the last may be short \
                                                    */
#define BLOCKS ((GLM_D + COLS - 1) / COLS)
#define TILE   4
#define GROUP  64                        /* threads of a row: two a dot, then 16 for the squares */
#define STAGE  (COLS < 256 ? COLS : 256) /* columns of one stream */
#define STAGES (GLM_S * ((COLS + STAGE - 1) / STAGE))
#define ROOM   (TILE * GLM_S * COLS > GLM_D ? TILE * GLM_S * COLS : GLM_D)

static_assert(GLM_BLOCK == TILE * GROUP && 2 * MIXES <= GROUP - 16, "a group works a row");
static_assert(GLM_D % 16 == 0, "rows are read 16 bytes at a time");

struct site {
    const float *y;
    float *mix;
    act_t *x;
    const uint16_t *fn;
    const float *base, *scale;
    const uint16_t *norm;
    act_t *out;
    float (*kept)[BLOCKS][SUMS][16]; /* scratch, by row */
    int32_t row, n_rows;             /* of the tile; rows that there are, at most TILE */
    int32_t column, n_columns;       /* of the block */
};

/* Rows whose stride in shared memory is odd in 16 bytes, so that eight dots meet no bank twice. */
GLM_SHARED uint16_t ring[2][MIXES][STAGE + 8];
/* The tile's streams, [row][stream][column]; later one normed row. */
GLM_SHARED act_t room[ROOM];

/* Starts the copy of stage i of fn; an empty group where there is none. */
GLM_INLINE void start_stage(const struct site *a, int i)
{
    const int s = i % GLM_S, from = i / GLM_S * STAGE;
    const int left = a->n_columns - from, eights = (left < STAGE ? left : STAGE) / 8;
    const uint16_t *fn = a->fn + s * GLM_D + a->column + from;
    if (i < STAGES)
        for (int j = glm_thread(); j < MIXES * eights; j += GLM_BLOCK)
            glm_copy16(&ring[i % 2][j / eights][j % eights * 8],
                       fn + (size_t)(j / eights) * GLM_S * GLM_D + j % eights * 8);
    glm_copy_commit();
}

/* The tile's streams of the block's columns, written back, to memory and to `room`. */
GLM_INLINE void take_streams(const struct site *a)
{
    const int eights = a->n_columns / 8;
    for (int i = glm_thread(); i < a->n_rows * eights; i += GLM_BLOCK) {
        const int r = i / eights, at = i % eights * 8;
        const size_t row = (size_t)(a->row + r);
        act_t *x = a->x + row * GLM_S * GLM_D + a->column + at;
        float v[GLM_S][8];
        GLM_UNROLL
        for (int s = 0; s < GLM_S; s++)
            glm_load_act8(x + s * GLM_D, v[s]);
#if GLM_WRITE
        float y[8];
        glm_load_f32x8(a->y + row * GLM_D + a->column + at, y);
        glm_hc_write(v, y, a->mix + row * GLM_HC_MIX);
#endif
        GLM_UNROLL
        for (int s = 0; s < GLM_S; s++) {
#if GLM_WRITE
            glm_store_act8(x + s * GLM_D, v[s]);
#endif
            glm_store_act8(&room[(r * GLM_S + s) * COLS + at], v[s]);
        }
    }
}

/* Eight lanes of one dot over a stage. */
GLM_INLINE void stage_dot(const struct site *a, int i, int r, int k, int half, float acc[8])
{
    const int s = i % GLM_S, from = i / GLM_S * STAGE, left = a->n_columns - from;
    const act_t *x = &room[(r * GLM_S + s) * COLS + from + half * 8];
    const uint16_t *w = &ring[i % 2][k][half * 8];
    for (int d = 0; d < (left < STAGE ? left : STAGE); d += 16) {
        float u[8], v[8];
        glm_unpack8(glm_load16(w + d), u);
        glm_load_act8(x + d, v);
        GLM_UNROLL
        for (int j = 0; j < 8; j++)
            acc[j] = glm_fma1(u[j], v[j], acc[j]);
    }
}

/* One lane of a row's sum of squares over the block. */
GLM_INLINE float lane_squares(const struct site *a, int r, int lane)
{
    float sum = 0.0f;
    for (int d = 0; d < a->n_columns; d += 16) {
        GLM_UNROLL
        for (int s = 0; s < GLM_S; s++) {
            const float v = glm_bf16_f32(room[(r * GLM_S + s) * COLS + d + lane]);
            sum = glm_fma1(v, v, sum);
        }
    }
    return sum;
}

/* All lane sums of the tile over the block's columns, to scratch. */
GLM_INLINE void block_sums(const struct site *a, int block)
{
    const int r = glm_thread() / GROUP, u = glm_thread() % GROUP;
    const int k = u % MIXES, half = u / MIXES;
    float acc[8] = {0, 0, 0, 0, 0, 0, 0, 0};
    start_stage(a, 0);
    start_stage(a, 1);
    take_streams(a);
    for (int i = 0; i < STAGES; i++) {
        glm_copy_wait(1);
        glm_barrier();
        if (r < a->n_rows && half < 2)
            stage_dot(a, i, r, k, half, acc);
        glm_barrier();
        start_stage(a, i + 2);
    }
    glm_copy_wait(0);
    if (r >= a->n_rows)
        return;
    float(*sums)[16] = a->kept[a->row + r][block];
    if (half < 2)
        glm_store_f32x8(&sums[k][half * 8], acc);
    else if (u >= GROUP - 16)
        sums[MIXES][u - (GROUP - 16)] = lane_squares(a, r, u - (GROUP - 16));
}

/* Row softmax + eps, a column pass, then ITERS - 1 times rows and columns (docs/model.md 2). */
GLM_INLINE void sinkhorn(float m[GLM_S][GLM_S])
{
    for (int it = 0; it < GLM_ITERS; it++) {
        GLM_UNROLL
        for (int i = 0; i < GLM_S; i++) {
            float sum = m[i][0];
            GLM_UNROLL
            for (int j = 1; j < GLM_S; j++)
                sum += m[i][j];
            const float by = 1.0f / (sum + GLM_EPS);
            GLM_UNROLL
            for (int j = 0; j < GLM_S; j++)
                m[i][j] = it > 0 ? m[i][j] * by : m[i][j];
        }
        GLM_UNROLL
        for (int j = 0; j < GLM_S; j++) {
            float sum = m[0][j];
            GLM_UNROLL
            for (int i = 1; i < GLM_S; i++)
                sum += m[i][j];
            const float by = 1.0f / (sum + GLM_EPS);
            GLM_UNROLL
            for (int i = 0; i < GLM_S; i++)
                m[i][j] *= by;
        }
    }
}

/* Dots and the sum of squares of a row → read weights, post and comb; one thread's work. */
GLM_INLINE void site_weights(const struct site *a, const float *dots, float *read, float *mix)
{
    const float r = glm_inverse_root(dots[MIXES] * (1.0f / (GLM_S * GLM_D)) + GLM_NORM_EPS);
    float z[MIXES], m[GLM_S][GLM_S];
    GLM_UNROLL
    for (int k = 0; k < MIXES; k++)
        z[k] = a->scale[k < GLM_S ? 0 : k < 2 * GLM_S ? 1 : 2] * (r * dots[k]) + a->base[k];
    GLM_UNROLL
    for (int s = 0; s < GLM_S; s++) {
        read[s] = glm_sigmoid(z[s]) + GLM_EPS;
        mix[s] = 2.0f * glm_sigmoid(z[GLM_S + s]);
    }
    GLM_UNROLL
    for (int i = 0; i < GLM_S; i++) {
        const float *row = z + 2 * GLM_S + i * GLM_S;
        float most = row[0], sum = 0.0f;
        GLM_UNROLL
        for (int j = 1; j < GLM_S; j++)
            most = glm_max1(most, row[j]);
        GLM_UNROLL
        for (int j = 0; j < GLM_S; j++) {
            m[i][j] = glm_exp(row[j] - most);
            sum = j == 0 ? m[i][0] : sum + m[i][j];
        }
        GLM_UNROLL
        for (int j = 0; j < GLM_S; j++)
            m[i][j] = m[i][j] / sum + GLM_EPS;
    }
    sinkhorn(m);
    GLM_UNROLL
    for (int i = 0; i < GLM_S * GLM_S; i++)
        mix[GLM_S + i] = m[i / GLM_S][i % GLM_S];
}

/* A row's dots: lane sums of all blocks in block order, then over lanes. */
GLM_INLINE void add_blocks(const struct site *a, int r, float dots[SUMS])
{
    enum { LANES = SUMS * 16, WHOLE_WARPS = (LANES + 31) / 32 * 32 };
    const float *kept = &a->kept[a->row + r][0][0][0];
    for (int i = glm_thread(); i < WHOLE_WARPS; i += GLM_BLOCK) {
        float sum = i < LANES ? glm_load_f32_fresh(kept + i) : 0.0f;
        GLM_UNROLL
        for (int b = 1; b < BLOCKS; b++)
            sum += i < LANES ? glm_load_f32_fresh(kept + b * LANES + i) : 0.0f;
        sum = glm_sum16(sum);
        if (i < LANES && i % 16 == 0)
            dots[i / 16] = sum;
    }
}

/* The mixed input of a row, normed. */
GLM_INLINE void read_row(const struct site *a, int r, const float read[GLM_S])
{
    const size_t row = (size_t)(a->row + r);
    const act_t *x = a->x + row * GLM_S * GLM_D;
    for (int d = glm_thread() * 8; d < GLM_D; d += GLM_BLOCK * 8) {
        float u[8];
        GLM_UNROLL
        for (int s = 0; s < GLM_S; s++) {
            float v[8];
            glm_unpack8(glm_load16_fresh(x + s * GLM_D + d), v);
            GLM_UNROLL
            for (int j = 0; j < 8; j++)
                u[j] = s == 0 ? read[0] * v[j] : glm_fma1(read[s], v[j], u[j]);
        }
        glm_store_act8(&room[d], u);
    }
    glm_barrier();
    glm_rms_norm(a->out + row * GLM_D, room, a->norm, GLM_D, GLM_NORM_EPS);
    glm_barrier();
}

GLM_INLINE void finish_tile(const struct site *a)
{
    GLM_SHARED float dots[TILE][SUMS], read[TILE][GLM_S];
    for (int r = 0; r < a->n_rows; r++)
        add_blocks(a, r, dots[r]);
    glm_barrier();
    if (glm_thread() % GROUP == 0 && glm_thread() / GROUP < a->n_rows) {
        const int r = glm_thread() / GROUP;
        site_weights(a, dots[r], read[r], a->mix + (size_t)(a->row + r) * GLM_HC_MIX);
    }
    glm_barrier();
    for (int r = 0; r < a->n_rows; r++)
        read_row(a, r, read[r]);
}

GLM_KERNEL(launch)
{
    const int block = glm_block_x(), row = glm_block_y() * TILE;
    const int left = launch.round->n_rows - row, column = block * COLS;
    if (left <= 0)
        return;
    const struct site a = {
        (const float *)launch.args[0],
        (float *)launch.args[1],
        (act_t *)launch.args[2],
        (const uint16_t *)launch.args[3],
        (const float *)launch.args[4],
        (const float *)launch.args[5],
        (const uint16_t *)launch.args[6],
        (act_t *)launch.args[7],
        (float(*)[BLOCKS][SUMS][16])launch.scratch,
        row,
        left < TILE ? left : TILE,
        column,
        GLM_D - column < COLS ? GLM_D - column : COLS,
    };
    block_sums(&a, block);
    if (glm_last_block(&launch.tickets[glm_block_y()], BLOCKS))
        finish_tile(&a);
}
