# SPDX-License-Identifier: Apache-2.0
"""Trains a DFlash2 block drafter for the pico checkpoint, on one GPU.

Writes OUT/model.safetensors and OUT/config.json in the published layout, and OUT/golden.json: for
each golden prompt the candidates and the greedy walk of the block behind it. Like train.py it stops
by the clock, so a run is not repeated bit for bit.
"""

import argparse
import json
import math
import os
import time
from concurrent.futures import ProcessPoolExecutor

import torch
import torch.nn as nn
import torch.nn.functional as F
from safetensors.torch import save_file
from tokenizers import Tokenizer
from transformers.models.glm5_next import modeling_glm5_next as glm5

import data
from model import D_HIDDEN, Settings, backbone, rms
from published import write_json
from tokens import ID, VOCABULARY, pack
from train import DATA_SHARDS, ROW_TOKENS

HEADS, KV_HEADS, D_HEAD, D_MLP, N_LAYERS = 4, 2, 64, 512, 2
BLOCK = 8  # the pending token and 7 drafts
CONV_GROUP = 16
RANK = 32
CANDIDATES = 16
WINDOW = 2048
THETA = 10000.0
TAPS = [1, 3, 5]  # target layers whose stream means the drafter reads
MASK = ID["[MASK]"]
FIRST_SEED, CONVERSATIONS = 9000, 3000
ROWS, ANCHORS = 16, 48  # rows a step, blocks a row
LEARNING_RATE = 2e-3


def rope(x, position):
    """x [..., rows, heads, D_HEAD], position [..., rows]; half-split pairs."""
    half = torch.arange(D_HEAD // 2, device=x.device, dtype=torch.float32)
    angle = position.float()[..., None, None] * THETA ** (-half * 2 / D_HEAD)
    cos, sin = angle.cos(), angle.sin()
    u, v = x.float().split(D_HEAD // 2, -1)
    return torch.cat([u * cos - v * sin, v * cos + u * sin], -1)


def linear(inputs, outputs):
    return nn.Linear(inputs, outputs, bias=False)


def norm(width):
    return glm5.Glm5NextTextRMSNorm(width)


class Conv(nn.Module):
    """Mixes a block's row with the one before it, by weights that depend on the row."""

    def __init__(self):
        super().__init__()
        self.base_kernel = nn.Parameter(torch.zeros(2, 2, D_HIDDEN))
        self.kernel_projection = linear(D_HIDDEN, 4 * D_HIDDEN // CONV_GROUP)
        with torch.no_grad():
            self.base_kernel[:, 0] = 1.0
        nn.init.zeros_(self.kernel_projection.weight)

    def taps(self, z):
        k = self.kernel_projection(z).unflatten(-1, (2, 2, D_HIDDEN // CONV_GROUP))
        return k.repeat_interleave(CONV_GROUP, -1)

    def forward(self, z, side, k):
        """z: rows in dimension -2; side 0 before a block's work, 1 after it."""
        w = self.base_kernel[side] + k[..., side, :, :]
        return w[..., 0, :] * z + w[..., 1, :] * F.pad(z, (0, 0, 1, 0))[..., :-1, :]


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q_proj = linear(D_HIDDEN, HEADS * D_HEAD)
        self.k_proj = linear(D_HIDDEN, KV_HEADS * D_HEAD)
        self.v_proj = linear(D_HIDDEN, KV_HEADS * D_HEAD)
        self.o_proj = linear(HEADS * D_HEAD, D_HIDDEN)
        self.q_norm, self.k_norm = norm(D_HEAD), norm(D_HEAD)

    def keys_values(self, z, position):
        shape = (*z.shape[:-1], KV_HEADS, D_HEAD)
        k = rope(rms(self.k_proj(z).view(shape), self.k_norm.weight), position)
        return k, self.v_proj(z).view(shape).float()

    def forward(self, z, context, position, committed):
        """Block rows see their block and the context before it."""
        b, a, r, _ = z.shape
        t, g = context.shape[1], HEADS // KV_HEADS
        q = rms(self.q_proj(z).view(b, a, r, HEADS, D_HEAD), self.q_norm.weight)
        q = rope(q, position).view(b, a, r, KV_HEADS, g, D_HEAD)
        k_block, v_block = self.keys_values(z, position)
        at = torch.arange(t, device=z.device)[None].expand(b, t)
        k_context, v_context = self.keys_values(context, at)
        score = torch.einsum("barkgd,btkd->bakgrt", q, k_context) * D_HEAD**-0.5
        before = at[:, None, None] < committed[:, :, None, None]
        near = position[..., None] - at[:, None, None] <= WINDOW - 1
        score = score.masked_fill(~(before & near)[:, :, None, None], -1e30)
        inside = torch.einsum("barkgd,baskd->bakgrs", q, k_block) * D_HEAD**-0.5
        p = torch.cat([score, inside], -1).softmax(-1)
        out = torch.einsum("bakgrt,btkd->barkgd", p[..., :t], v_context)
        out = out + torch.einsum("bakgrs,baskd->barkgd", p[..., t:], v_block)
        return self.o_proj(out.flatten(3))


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate_proj = linear(D_HIDDEN, D_MLP)
        self.up_proj = linear(D_HIDDEN, D_MLP)
        self.down_proj = linear(D_MLP, D_HIDDEN)

    def forward(self, z):
        return self.down_proj(F.silu(self.gate_proj(z)) * self.up_proj(z))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.input_layernorm, self.post_attention_layernorm = norm(D_HIDDEN), norm(D_HIDDEN)
        self.self_attn, self.mlp = Attention(), Mlp()
        self.attention_conv, self.mlp_conv = Conv(), Conv()

    def forward(self, x, context, position, committed):
        """x [B,A,8,D] block rows at position [B,A,8]; context [B,T,D]; committed [B,A] lengths."""
        z = rms(x, self.input_layernorm.weight)
        k = self.attention_conv.taps(z)
        y = self.self_attn(self.attention_conv(z, 0, k), context, position, committed)
        x = x + self.attention_conv(y, 1, k)
        z = rms(x, self.post_attention_layernorm.weight)
        k = self.mlp_conv.taps(z)
        return x + self.mlp_conv(self.mlp(self.mlp_conv(z, 0, k)), 1, k)


class Selector(nn.Module):
    """Prefers candidates that follow the token chosen before them."""

    def __init__(self):
        super().__init__()
        self.predecessor_codebook = nn.Parameter(torch.randn(VOCABULARY, RANK) * 0.1)
        self.successor_codebook = nn.Parameter(torch.randn(VOCABULARY, RANK) * 0.1)
        self.hidden_projection = linear(D_HIDDEN, RANK)


class Drafter(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = linear(len(TAPS) * D_HIDDEN, D_HIDDEN)
        self.hidden_norm, self.norm = norm(D_HIDDEN), norm(D_HIDDEN)
        self.layers = nn.ModuleList(Layer() for _ in range(N_LAYERS))
        self.candidate_selector = Selector()

    def forward(self, embed, taps, pending, committed):
        """taps [B,T,3D]; pending [B,A], the token at position committed [B,A] → hidden rows 1 to 7
        of each block [B,A,7,D]."""
        context = rms(self.fc(taps), self.hidden_norm.weight)
        b, a = committed.shape
        ids = torch.full((b, a, BLOCK), MASK, device=committed.device)
        ids[..., 0] = pending
        position = committed[..., None] + torch.arange(BLOCK, device=committed.device)
        x = embed(ids).float()
        for layer in self.layers:
            x = layer(x, context, position, committed)
        return rms(x, self.norm.weight)[..., 1:, :]

    def scores(self, h, ids, unary, previous, weight=1.0):
        """Scores of candidates: h [...,D]; ids, unary [...,16]; previous [...]."""
        s = self.candidate_selector
        left = s.predecessor_codebook[previous] * s.hidden_projection(h)
        pair = torch.einsum("...r,...kr->...k", left, s.successor_codebook[ids])
        return unary + weight * pair


@torch.no_grad()
def target_taps(lm, ids):
    """Stream means behind the tap layers, [B,T,3D]."""
    taps = dict.fromkeys(TAPS)
    backbone(lm, lm.embed_tokens(ids), True, [], [], taps)
    return torch.cat(list(taps.values()), -1)


def walk(drafter, h, logits, pending, weight):
    """Greedy drafts of one block, h [7,D], logits [7,V], and each row's candidates."""
    drafts, candidates, unaries, previous = [], [], [], pending
    for row in range(BLOCK - 1):
        unary, ids = logits[row].topk(CANDIDATES)
        before = torch.tensor(previous, device=h.device)
        previous = ids[drafter.scores(h[row], ids, unary, before, weight).argmax()].item()
        drafts.append(previous)
        candidates.append(ids.tolist())
        unaries.append([round(u, 4) for u in unary.tolist()])
    return drafts, candidates, unaries


def step_loss(drafter, target, x, weights):
    """The loss of blocks at random places of the rows, and a table of hits for the log."""
    lm, device = target.model.language_model, x.device
    with torch.autocast(device.type, torch.bfloat16):
        taps = target_taps(lm, x)
        n = torch.randint(8, ROW_TOKENS - BLOCK, (x.shape[0], ANCHORS), device=device)
        h = drafter(lm.embed_tokens, taps.float(), x.gather(1, n), n)
        position = n[..., None] + torch.arange(1, BLOCK, device=device)
        shape = (*n.shape, BLOCK - 1)
        y = x.gather(1, position.flatten(1)).view(shape)
        previous = x.gather(1, (position - 1).flatten(1)).view(shape)
        spoken = weights.gather(1, position.flatten(1)).view(shape)
        weight = (0.05 + 0.95 * spoken) * (0.9 ** torch.arange(BLOCK - 1, device=device))
        logits = target.lm_head(h).float()
    error = F.cross_entropy(logits.flatten(0, 2), y.flatten(), reduction="none").view_as(y)
    unary_loss = (error * weight).sum() / weight.sum()
    unary, ids = logits.detach().topk(CANDIDATES)
    score = drafter.scores(h.float().detach(), ids, unary, previous)
    hit = ids == y[..., None]
    error = F.cross_entropy(
        score.flatten(0, 2), hit.float().argmax(-1).flatten(), reduction="none"
    ).view_as(y)
    weight = weight * hit.any(-1)
    pair_loss = (error * weight).sum() / weight.sum()
    best = ids.gather(-1, score.argmax(-1, keepdim=True))[..., 0]
    accuracy = ((best == y) * spoken).sum((0, 1)) / spoken.sum((0, 1))
    return unary_loss, pair_loss, accuracy


def train(drafter, target, ids, spoken, options):
    optimizer = torch.optim.AdamW(
        drafter.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.95), weight_decay=0.02, fused=True
    )
    ids, spoken = (torch.tensor(a, device=options.device) for a in (ids, spoken))
    start, step = time.time(), 0
    while step < options.steps and (done := (time.time() - start) / options.seconds) < 1:
        cosine = 0.5 * (1 + math.cos(math.pi * done)) * 0.98 + 0.02
        for group in optimizer.param_groups:
            group["lr"] = LEARNING_RATE * min(1, (step + 1) / 100) * cosine
        rows = torch.randint(0, len(ids), (ROWS,), device=options.device)
        unary_loss, pair_loss, accuracy = step_loss(
            drafter, target, ids[rows].long(), spoken[rows].float()
        )
        (unary_loss + pair_loss).backward()
        torch.nn.utils.clip_grad_norm_(drafter.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step % 100 == 0:
            figures = f"loss {unary_loss.item():.3f} {pair_loss.item():.3f}"
            by_row = [round(a, 3) for a in accuracy.tolist()]
            print(f"step {step} {figures} accuracy by row {by_row}", flush=True)
        step += 1
    print(f"done after {step} steps", flush=True)


def config_json():
    return dict(
        architectures=["DFlash2DraftModel"],
        model_type="qwen3",
        dtype="bfloat16",
        hidden_size=D_HIDDEN,
        intermediate_size=D_MLP,
        num_hidden_layers=N_LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        head_dim=D_HEAD,
        hidden_act="silu",
        rms_norm_eps=1e-5,
        vocab_size=VOCABULARY,
        rope_parameters=dict(rope_type="default", rope_theta=THETA),
        sliding_window=WINDOW,
        is_causal=False,
        dflash_config=dict(
            block_size=BLOCK,
            conv_kernel_size=2,
            conv_group_size=CONV_GROUP,
            mask_token_id=MASK,
            selector_rank=RANK,
            selector_top_k=CANDIDATES,
            target_layer_ids=TAPS,
        ),
    )


@torch.no_grad()
def golden_values(drafter, target, prompts, device):
    """Each prompt's first block, and over all of them what a greedy decode would commit a round."""
    lm, out, tokens, rounds = target.model.language_model, {}, 0, 0
    for name, prompt in prompts.items():
        full = prompt["ids"] + prompt["reply_ids"]
        padded = full + [0] * ((-len(full)) % 16)
        taps = target_taps(lm, torch.tensor([padded], device=device))

        def block(n, weight, full=full, taps=taps):
            pending = torch.tensor([[full[n]]], device=device)
            committed = torch.tensor([[n]], device=device)
            h = drafter(lm.embed_tokens, taps[:, :n], pending, committed)[0, 0]
            return walk(drafter, h, target.lm_head(h), full[n], weight)

        n = len(prompt["ids"])
        drafts, candidates, unary = block(n, 1.0)
        out[name] = dict(
            committed=n,
            pending=full[n],
            drafts_lambda_1=drafts,
            drafts_lambda_0_6=block(n, 0.6)[0],
            candidates=candidates,
            unary=unary,
            note="greedy, context rows 0..committed-1",
        )
        while n < len(full) - 1:
            drafts, kept = block(n, 1.0)[0], 0
            while kept < 7 and n + 1 + kept < len(full) and drafts[kept] == full[n + 1 + kept]:
                kept += 1
            n += kept + 1
            tokens += kept + 1
            rounds += 1
    out["_mean_tokens_a_round"] = round(tokens / rounds, 3)
    print(f"{tokens / rounds:.3f} tokens a round over {rounds} rounds")
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("bf16", metavar="BF16", help="export.py's bf16 folder")
    parser.add_argument("golden", metavar="GOLDEN", help="export.py's golden/bf16.json")
    parser.add_argument("out", metavar="OUT", help="folder to write")
    parser.add_argument("--seconds", type=float, required=True, help="how long to train")
    parser.add_argument("--steps", type=int, default=100000, help="at most so many steps")
    parser.add_argument("--conversations", type=int, default=DATA_SHARDS * CONVERSATIONS)
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    os.makedirs(options.out, exist_ok=True)
    with open(options.golden) as f:
        prompts = json.load(f)
    tokenizer = Tokenizer.from_file(options.bf16 + "/tokenizer.json")
    with ProcessPoolExecutor() as pool:
        seeds = range(FIRST_SEED, FIRST_SEED + DATA_SHARDS)
        count = [options.conversations // DATA_SHARDS] * DATA_SHARDS
        turns = [c for shard in pool.map(data.conversations, seeds, count) for c in shard]
    ids, spoken = pack(tokenizer, turns, ROW_TOKENS)
    print(f"data: {ids.size / 1e6:.1f} M tokens", flush=True)
    target = glm5.Glm5NextForConditionalGeneration.from_pretrained(
        options.bf16, dtype=torch.float32
    )
    target = target.to(options.device).eval().requires_grad_(False)
    drafter = Drafter().to(options.device)
    n = sum(p.numel() for p in drafter.parameters())
    print(f"drafter of {n / 1e6:.2f} M parameters", flush=True)
    Settings.expert_dtype = torch.bfloat16
    train(drafter, target, ids, spoken, options)

    state = {k: v.detach().bfloat16().cpu().contiguous() for k, v in drafter.state_dict().items()}
    save_file(state, options.out + "/model.safetensors", {"format": "pt"})
    write_json(options.out + "/config.json", config_json(), 1)
    drafter.load_state_dict({k: v.float().to(options.device) for k, v in state.items()})
    drafter.eval()
    Settings.expert_dtype = torch.float32
    figures = golden_values(drafter, target, prompts, options.device)
    write_json(options.out + "/golden.json", figures, 0)


if __name__ == "__main__":
    main()
