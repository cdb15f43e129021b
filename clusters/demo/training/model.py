# SPDX-License-Identifier: Apache-2.0
"""The pico model: the GLM-5.3-Flash architecture (transformers' glm5_next) at toy size.

Parameters live in the Hugging Face module, so that saving it gives the published tensor names. The
forward here is a faster equivalent of the module's own (`train.py --check` compares the two), and
adds what the module has not: the multi-token-prediction layer and the indexer's training loss.
"""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from transformers.models.glm5_next import modeling_glm5_next as glm5
from transformers.models.glm5_next.configuration_glm5_next import Glm5NextConfig

from tokens import END_IDS, ID, VOCABULARY

D_HIDDEN = 256
N_LAYERS = 6
KDA_CHUNK = 16
POOL_TOKENS = 4
SELECTED_POOLS = 64
SWIGLU_LIMIT = 10.0
PATCH = 14
IMAGE_MEAN = (0.48145466, 0.4578275, 0.40821073)
IMAGE_STD = (0.26862954, 0.26130258, 0.27577711)


class Settings:
    """What a script sets before it runs the forward."""

    expert_dtype = torch.bfloat16
    compiled = False


def config():
    text = dict(
        vocab_size=VOCABULARY,
        hidden_size=D_HIDDEN,
        intermediate_size=512,
        moe_intermediate_size=512,
        num_hidden_layers=N_LAYERS,
        num_attention_heads=4,
        num_key_value_heads=4,
        n_shared_experts=1,
        n_routed_experts=8,
        routed_scaling_factor=2.5,
        kv_lora_rank=128,
        q_lora_rank=128,
        qk_rope_head_dim=0,
        v_head_dim=64,
        qk_nope_head_dim=64,
        num_experts_per_tok=2,
        max_position_embeddings=8192,
        pad_token_id=ID["<|endoftext|>"],
        eos_token_id=END_IDS,
        mlp_layer_types=["dense", "dense"] + ["sparse"] * (N_LAYERS - 2),
        index_topk=POOL_TOKENS * SELECTED_POOLS,
        index_head_dim=64,
        index_n_heads=4,
        index_kpool=POOL_TOKENS,
        layer_types=["linear_attention", "linear_attention", "deepseek_sparse_attention"] * 2,
        indexer_types=["full"] * N_LAYERS,
        linear_head_dim=64,
        linear_num_heads=4,
    )
    vision = dict(
        depth=2,
        hidden_size=128,
        num_heads=2,
        intermediate_size=256,
        out_hidden_size=D_HIDDEN,
        projection_intermediate_size=512,
        image_size=224,
    )
    return Glm5NextConfig(
        text_config=text,
        vision_config=vision,
        image_token_id=ID["<|image|>"],
        video_token_id=ID["<|video|>"],
        image_start_token_id=ID["<|begin_of_image|>"],
        image_end_token_id=ID["<|end_of_image|>"],
        video_start_token_id=ID["<|begin_of_video|>"],
        video_end_token_id=ID["<|end_of_video|>"],
    )


class Mtp(nn.Module):
    """The multi-token-prediction layer, which transformers does not have."""

    def __init__(self, c):
        super().__init__()
        sparse = c.layer_types.index("deepseek_sparse_attention")
        self.enorm = glm5.Glm5NextTextRMSNorm(c.hidden_size, c.rms_norm_eps)
        self.hnorm = glm5.Glm5NextTextRMSNorm(c.hidden_size, c.rms_norm_eps)
        self.norm = glm5.Glm5NextTextRMSNorm(c.hidden_size, c.rms_norm_eps)
        self.eh_proj = nn.Linear(2 * c.hidden_size, c.hidden_size, bias=False)
        self.input_layernorm = glm5.Glm5NextTextRMSNorm(c.hidden_size, c.rms_norm_eps)
        self.post_attention_layernorm = glm5.Glm5NextTextRMSNorm(c.hidden_size, c.rms_norm_eps)
        self.self_attn = glm5.Glm5NextTextAttention(c, sparse)
        self.mlp = glm5.Glm5NextTextMoE(c)


def rms(x, weight, eps=1e-5):
    y = x.float()
    y = y * torch.rsqrt(y.square().mean(-1, keepdim=True) + eps)
    return y * weight


def _hc_mix(x, fn, base, scale):
    """x [B,T,4,D] → collapsed [B,T,D], post [B,T,4], comb [B,T,4,4], all fp32."""
    with torch.autocast(x.device.type, enabled=False):
        x = x.float()
        f = x.flatten(2)
        f = f * torch.rsqrt(f.square().mean(-1, keepdim=True) + 1e-5)
        w = f @ fn.t()
        pre = torch.sigmoid(w[..., :4] * scale[0] + base[:4]) + 1e-6
        post = 2 * torch.sigmoid(w[..., 4:8] * scale[1] + base[4:8])
        c = torch.softmax((w[..., 8:] * scale[2] + base[8:]).unflatten(-1, (4, 4)), -1) + 1e-6
        c = c / (c.sum(-2, keepdim=True) + 1e-6)
        for _ in range(19):
            c = c / (c.sum(-1, keepdim=True) + 1e-6)
            c = c / (c.sum(-2, keepdim=True) + 1e-6)
        return (pre.unsqueeze(-1) * x).sum(2), post, c


def _hc_write(x, y, post, comb):
    with torch.autocast(x.device.type, enabled=False):
        return post.unsqueeze(-1) * y.float().unsqueeze(-2) + comb.transpose(-1, -2) @ x.float()


_compiled_mix = torch.compile(_hc_mix)
_compiled_write = torch.compile(_hc_write)


def hc_mix(x, site):
    mix = _compiled_mix if Settings.compiled else _hc_mix
    return mix(x, site.fn, site.base, site.scale)


def hc_write(x, y, post, comb):
    write = _compiled_write if Settings.compiled else _hc_write
    return write(x, y, post, comb)


def _kda_core(q, k, v, g, beta):
    """The gated delta rule in chunks. [B,T,H,K] fp32, T a multiple of 16, g in [-5, 0]."""
    b, t, h, d = q.shape
    n = t // KDA_CHUNK

    def normed(x):
        return x / torch.sqrt((x * x).sum(-1, keepdim=True) + 1e-6)

    def chunks(x):  # [B,H,N,C,*]
        return x.transpose(1, 2).unflatten(2, (n, KDA_CHUNK))

    q, k = normed(q) * d**-0.5, normed(k)
    q, k, v, g = chunks(q), chunks(k), chunks(v), chunks(g)
    beta = chunks(beta).unsqueeze(-1)
    total = g.cumsum(-2)
    decay, growth = total.exp(), (-total).exp()
    k_in, k_out, q_in = k * decay, k * growth, q * decay
    low = torch.tril(torch.ones(KDA_CHUNK, KDA_CHUNK, device=q.device), -1)
    eye = torch.eye(KDA_CHUNK, device=q.device)
    power = -((k_in * beta) @ k_out.transpose(-1, -2)) * low
    inverse = eye + power
    for _ in range(3):
        power = power @ power
        inverse = inverse + power @ inverse
    u = inverse @ (v * beta)
    w = inverse @ (k_in * beta)
    inside = (q_in @ k_out.transpose(-1, -2)) * (low + eye)
    last = decay[..., -1:, :]
    k_last = (k_out * last).transpose(-1, -2)
    last = last.transpose(-1, -2)
    state = torch.zeros(b, h, d, v.shape[-1], device=q.device)
    out = []
    for i in range(n):
        fresh = u[:, :, i] - w[:, :, i] @ state
        out.append(q_in[:, :, i] @ state + inside[:, :, i] @ fresh)
        state = state * last[:, :, i] + k_last[:, :, i] @ fresh
    return torch.stack(out, 2).flatten(2, 3).transpose(1, 2)


def kda(m, x):
    b, t, _ = x.shape
    qkv = torch.cat([m.q_proj(x), m.k_proj(x), m.v_proj(x)], -1)
    with torch.autocast(x.device.type, enabled=False):
        padded = F.pad(qkv.float().transpose(1, 2), (3, 0))
        qkv = F.silu(F.conv1d(padded, m.conv1d.weight, groups=qkv.shape[-1])).transpose(1, 2)
    q, k, v = (y.view(b, t, m.num_heads, m.head_dim) for y in qkv.chunk(3, -1))
    forget = m.forget_gate
    f = forget.f_b_proj(forget.f_a_proj(x)).float()
    beta = torch.sigmoid(m.b_proj(x)).float()
    gate = m.g_b_proj(m.g_a_proj(x)).float().view(b, t, m.num_heads, m.head_dim)
    with torch.autocast(x.device.type, enabled=False):
        rate = forget.A_log.exp().view(1, 1, -1, 1)
        step = (f + forget.dt_bias).view(b, t, m.num_heads, m.head_dim)
        g = -5.0 * torch.sigmoid(rate * step)
        out = rms(_kda_core(q, k, v, g, beta), m.o_norm.weight) * torch.sigmoid(gate)
    return m.o_proj(out.flatten(2))


def _index_scores(m, x, qr):
    """How much each token wants each pool of 4 tokens: [B,T,P] fp32."""
    b, t, _ = x.shape
    ix, p = m.indexer, t // POOL_TOKENS
    q = ix.wq_b(qr).view(b, t, ix.n_heads, ix.head_dim).float()
    norm = ix.k_norm
    k = F.layer_norm(ix.wk(x).float(), (ix.head_dim,), norm.weight, norm.bias, 1e-6)
    gate = F.linear(x, ix.index_kpool_compress_gate).float().view(b, p, POOL_TOKENS, -1)
    share = (gate + ix.index_kpool_compress_ape).softmax(2)
    pooled = (share * k.view(b, p, POOL_TOKENS, -1)).sum(2)
    with torch.autocast(x.device.type, enabled=False):
        score = F.relu(torch.einsum("bthd,bpd->bthp", q, pooled) * ix.softmax_scale)
        head = F.linear(x.float(), ix.weights_proj.weight.float()) * ix.n_heads**-0.5
        return torch.einsum("bth,bthp->btp", head, score)


def dsa(m, x, sparse):
    """Attention over selected pools; T a multiple of 4. Returns the output and the indexer's loss,
    how far its scores are from where the attention really looked."""
    b, t, _ = x.shape
    h, p = m.num_heads, t // POOL_TOKENS
    qr = rms(m.q_a_proj(x), m.q_a_layernorm.weight)
    q = m.q_b_proj(qr).view(b, t, h, -1).transpose(1, 2)
    latent = rms(m.kv_a_proj_with_mqa(x), m.kv_a_layernorm.weight)
    kv = m.kv_b_proj(latent).view(b, t, h, -1).transpose(1, 2)
    k, v = kv.split([m.qk_nope_head_dim, m.v_head_dim], -1)
    score = _index_scores(m, x.detach(), qr.detach())
    at = torch.arange(t, device=x.device)
    pool_end = torch.arange(p, device=x.device) * POOL_TOKENS + POOL_TOKENS - 1
    visible = pool_end[None] <= at[:, None]
    score = score.masked_fill(~visible, -1e30)
    causal = at[None] <= at[:, None]
    if sparse:
        kth = score.detach().topk(min(SELECTED_POOLS, p), -1).values[..., -1:]
        selected = (score.detach() >= kth) & visible
        tail = at[None] >= ((at + 1) // POOL_TOKENS * POOL_TOKENS)[:, None]
        mask = ((selected.repeat_interleave(POOL_TOKENS, -1) | tail) & causal)[:, None]
    else:
        mask = causal[None, None]
    a = (q @ k.transpose(-1, -2)).float() * m.scaling
    a = a.masked_fill(~mask, -1e30).softmax(-1)
    out = (a.to(v.dtype) @ v).transpose(1, 2).flatten(2)
    looked = a.detach().mean(1).view(b, t, p, POOL_TOKENS).sum(-1) * visible
    looked = looked / (looked.sum(-1, keepdim=True) + 1e-9)
    loss = (looked * ((looked + 1e-9).log() - F.log_softmax(score, -1))).sum(-1)[:, 8:].mean()
    return m.o_proj(out), loss


def mlp(m, x):
    gate = m.gate_proj(x).clamp(max=SWIGLU_LIMIT)
    up = m.up_proj(x).clamp(-SWIGLU_LIMIT, SWIGLU_LIMIT)
    return m.down_proj(F.silu(gate) * up)


def moe(m, x, loads):
    """Appends (router, the experts picked) to loads."""
    b, t, _ = x.shape
    h, dtype = x.reshape(b * t, -1), Settings.expert_dtype
    with torch.autocast(x.device.type, enabled=False):
        score = F.linear(h.float(), m.gate.weight.float()).sigmoid()
    picked = (score.detach() + m.gate.e_score_correction_bias).topk(2, -1).indices
    weight = score.gather(1, picked)
    weight = weight / (weight.sum(-1, keepdim=True) + 1e-20) * 2.5
    loads.append((m.gate, picked))
    spread = torch.zeros_like(score).scatter(1, picked, weight)
    gate_up = torch.einsum("nd,efd->enf", h.to(dtype), m.experts.gate_up_proj.to(dtype))
    gate, up = gate_up.chunk(2, -1)
    a = F.silu(gate.clamp(max=SWIGLU_LIMIT)) * up.clamp(-SWIGLU_LIMIT, SWIGLU_LIMIT)
    a = a * spread.t().unsqueeze(-1).to(gate_up.dtype)
    y = torch.einsum("enf,edf->nd", a, m.experts.down_proj.to(dtype))
    return y.view(b, t, -1) + mlp(m.shared_experts, x)


def backbone(lm, embedded, sparse, loads, losses, taps=None):
    """Embeddings [B,T,D] → final normed hidden [B,T,D]. taps: a dict whose keys are layers; their
    stream means are put there."""
    x = embedded.unsqueeze(2).expand(-1, -1, 4, -1).float()
    for i, layer in enumerate(lm.layers):
        h, post, comb = hc_mix(x, layer.attn_hc)
        h = rms(h, layer.input_layernorm.weight)
        if layer.block_type == "linear_attention":
            y = kda(layer.self_attn, h)
        else:
            y, loss = dsa(layer.self_attn, h, sparse)
            losses.append(loss)
        x = hc_write(x, y, post, comb)
        h, post, comb = hc_mix(x, layer.ffn_hc)
        h = rms(h, layer.post_attention_layernorm.weight)
        y = moe(layer.mlp, h, loads) if hasattr(layer.mlp, "experts") else mlp(layer.mlp, h)
        x = hc_write(x, y, post, comb)
        if taps is not None and i in taps:
            taps[i] = x.mean(2)
    return rms(x.mean(2), lm.norm.weight)


def mtp_step(mtp, embedded_next, h, sparse, loads, losses):
    """Hidden rows and the next tokens' embeddings → hidden rows of the token after."""
    both = torch.cat([rms(embedded_next, mtp.enorm.weight), rms(h, mtp.hnorm.weight)], -1)
    x = mtp.eh_proj(both).float()
    y, loss = dsa(mtp.self_attn, rms(x, mtp.input_layernorm.weight), sparse)
    losses.append(loss)
    x = x + y.float()
    x = x + moe(mtp.mlp, rms(x, mtp.post_attention_layernorm.weight), loads).float()
    return rms(x, mtp.norm.weight)


def patches(image):
    """uint8 [H,W,3] → [rows·columns, 3·2·14·14]: each 2x2 group of patches together, every patch
    twice in time."""
    x = (image.astype(np.float32) / 255 - np.array(IMAGE_MEAN, np.float32)) / np.array(
        IMAGE_STD, np.float32
    )
    rows, columns = image.shape[0] // PATCH, image.shape[1] // PATCH
    x = x.transpose(2, 0, 1).reshape(3, rows // 2, 2, PATCH, columns // 2, 2, PATCH)
    x = x.transpose(1, 4, 2, 5, 0, 3, 6)  # rows/2, columns/2, 2, 2, 3, 14, 14
    x = np.repeat(x[:, :, :, :, :, None], 2, 5)
    return x.reshape(rows * columns, -1)
