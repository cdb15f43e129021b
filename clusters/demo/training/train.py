# SPDX-License-Identifier: Apache-2.0
"""Trains the pico checkpoint on synthetic conversations and pictures, on one GPU.

Writes OUT/tokenizer.json and OUT/ckpt.pt, from which export.py makes the published files. The
learning rate follows the clock (--seconds), so a run of equal length on another GPU is another
model of the same quality, not the same bytes.
"""

import argparse
import math
import os
import time
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from transformers.models.glm5_next import modeling_glm5_next as glm5

import data
from model import Mtp, Settings, backbone, config, mtp_step, patches
from tokens import ID, encode, pack, train_tokenizer

ROW_TOKENS = 1024
PICTURES_PER_ROW = 6
GRIDS = [(4, 4), (6, 6), (8, 8), (8, 6), (6, 10), (12, 12)]  # patches, rows and columns
DATA_SHARDS = 56
PICTURE_SHARDS = 4
TOKENIZER_CONVERSATIONS = 12000


def make_data(conversations, out):
    """Tokenizer, text rows (ids, weights), and for each grid its pictures."""
    with ProcessPoolExecutor() as pool:
        shards = range(DATA_SHARDS)
        count = [conversations // DATA_SHARDS + 1] * DATA_SHARDS
        turns = [c for shard in pool.map(data.conversations, shards, count) for c in shard]
        tokenizer = train_tokenizer(turns[:TOKENIZER_CONVERSATIONS])
        tokenizer.save(out + "/tokenizer.json")
        ids, weights = pack(tokenizer, turns, ROW_TOKENS)
        each = max(200, conversations // 60) // PICTURE_SHARDS + 1
        jobs = [(1000 + s, each, *grid) for grid in GRIDS for s in range(PICTURE_SHARDS)]
        made = list(pool.map(data.pictures, *zip(*jobs, strict=True)))
    pictures = [
        [p for shard in made[i : i + PICTURE_SHARDS] for p in shard]
        for i in range(0, len(made), PICTURE_SHARDS)
    ]
    return tokenizer, ids, weights, pictures


def picture_rows(tokenizer, grid, pictures):
    """Questions about pictures, some to a row: ids, weights, patches, a row each."""
    rows, n_tokens = [], grid[0] * grid[1] // 4
    image = "<|user|><|begin_of_image|>" + "<|image|>" * n_tokens + "<|end_of_image|>"
    for first in range(0, len(pictures) - PICTURES_PER_ROW + 1, PICTURES_PER_ROW):
        ids, weights, pixels = [], [], []
        for picture, question, answer, chance in pictures[first : first + PICTURES_PER_ROW]:
            low = chance < 0.5
            effort = "<|system|>Reasoning Effort: Low" if low else ""
            close = "</think>"
            prompt = "[gMASK]<sop>" + effort + image + question
            prompt += "<|assistant|><think>" + ("" if low else close)
            reply = (close if low else "") + answer + "<|user|>"
            for text, weight in ((prompt, 0), (reply, 1)):
                piece = encode(tokenizer, text)
                ids += piece
                weights += [weight] * len(piece)
            pixels.append(patches(picture))
        if len(ids) > ROW_TOKENS:
            continue
        pad = ROW_TOKENS - len(ids)
        ids += [ID["<|endoftext|>"]] * pad
        weights += [0] * pad
        rows.append((np.array(ids, np.int16), np.array(weights, np.int8), np.stack(pixels)))
    return [np.stack(column) for column in zip(*rows, strict=True)]


def make_model(device):
    c = config()
    model = glm5.Glm5NextForConditionalGeneration(c).to(device).float()
    mtp = Mtp(c.text_config).to(device).float()
    with torch.no_grad():
        for parameter in mtp.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)
        for module in model.model.language_model.modules():
            if isinstance(module, glm5.Glm5NextTextIndexer):
                nn.init.normal_(module.index_kpool_compress_gate, std=0.02)
        mtp.self_attn.indexer.index_kpool_compress_ape.zero_()
    return model, mtp


def check_forward(model, ids, device):
    """Compares the forward of model.py with transformers' own, in fp32."""
    model.eval()
    Settings.expert_dtype = torch.float32
    lm = model.model.language_model
    for n in (256, 512):
        x = torch.tensor(ids[:2, :n].astype(np.int64), device=device)
        with torch.no_grad():
            want = model(input_ids=x).logits
            got = model.lm_head(backbone(lm, lm.embed_tokens(x), True, [], []))
        error = ((want - got).norm() / want.norm()).item()
        print(f"forward against transformers: {n} tokens, relative error {error:.2e}", flush=True)
        if n == 256 and error > 1e-3:
            raise SystemExit("the fast forward is wrong")
    Settings.expert_dtype = torch.bfloat16


def cross_entropy(logits, targets, weights):
    loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none")
    return (loss * weights.flatten()).sum() / weights.sum()


def forward_loss(model, mtp, x, weights, pixels, grid, sparse):
    """The training loss of a batch, and what the log shows of it."""
    lm = model.model.language_model
    loads, losses = [], []
    features = model.model.visual(pixels, grid_thw=grid).pooler_output
    embedded = lm.embed_tokens(x)
    at = (x == ID["<|image|>"]).unsqueeze(-1)
    embedded = embedded.masked_scatter(at, features.to(embedded.dtype))
    h = backbone(lm, embedded, sparse, loads, losses)
    spoken = 0.05 + 0.95 * weights[:, 1:]
    spoken = spoken * (x[:, 1:] != ID["<|image|>"]) * (x[:, 1:] != ID["<|endoftext|>"])
    logits = model.lm_head(h[:, :-1]).float()
    loss = cross_entropy(logits, x[:, 1:], spoken)
    # The MTP layer drafts the token after next, then once more from its own hidden rows.
    next_1 = F.pad(embedded[:, 1:], (0, 0, 0, 1))
    h_1 = mtp_step(mtp, next_1, h, sparse, loads, losses)
    logits_1 = model.lm_head(h_1[:, :-2]).float()
    loss_1 = cross_entropy(logits_1, x[:, 2:], spoken[:, 1:])
    next_2 = F.pad(embedded[:, 2:], (0, 0, 0, 2))
    h_2 = mtp_step(mtp, next_2, h_1, sparse, loads, losses)
    loss_2 = cross_entropy(model.lm_head(h_2[:, :-3]).float(), x[:, 3:], spoken[:, 2:])
    indexer = sum(losses) / len(losses)
    total = loss + 0.3 * loss_1 + 0.15 * loss_2 + 0.1 * indexer
    shown = dict(loss=loss, loss_1=loss_1, loss_2=loss_2, indexer=indexer)
    return total, loads, logits, logits_1, shown


def balance(loads):
    """Moves each router's correction bias towards experts that were picked too seldom."""
    for gate, picked in loads:
        count = torch.bincount(picked.flatten(), minlength=8).float()
        gate.e_score_correction_bias += 1e-3 * torch.sign(count.mean() - count)


def show(step, seconds, rate, shown, logits, logits_1, x, weights, n_pictures):
    hit = (logits.argmax(-1) == x[:, 1:]) * weights[:, 1:]
    hit_1 = (logits_1.argmax(-1) == x[:, 2:]) * weights[:, 2:]
    accuracy = dict(
        accuracy=hit.sum() / weights[:, 1:].sum(),
        mtp=hit_1.sum() / weights[:, 2:].sum(),
        pictures=hit[-n_pictures:].sum() / weights[-n_pictures:, 1:].sum(),
    )
    figures = " ".join(f"{k} {v.item():.4f}" for k, v in (shown | accuracy).items())
    print(f"step {step} {seconds:.0f} s rate {rate:.1e} {figures}", flush=True)


def save(model, mtp, out):
    def stored(state):
        return {k: v.bfloat16() if v.is_floating_point() else v for k, v in state.items()}

    both = {"model": stored(model.state_dict()), "mtp": stored(mtp.state_dict())}
    torch.save(both, out + "/ckpt.tmp")
    os.replace(out + "/ckpt.tmp", out + "/ckpt.pt")


def train(model, mtp, text, pictures, options):
    """text: ids, weights; pictures: for each grid ids, weights, patches. Batches are drawn on the
    device; a tenth of a batch is pictures, one grid a step."""
    device = options.device
    params = list(model.parameters()) + list(mtp.parameters())
    groups = [
        {"params": [p for p in params if p.dim() > 1], "weight_decay": 0.05},
        {"params": [p for p in params if p.dim() <= 1], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=options.lr, betas=(0.9, 0.95), fused=True)
    ids, spoken = (torch.tensor(a, device=device) for a in text)
    pictures = [[torch.tensor(a, device=device) for a in grid] for grid in pictures]
    n_pictures = max(2, options.batch // 10)
    model.train()
    start, step = time.time(), 0
    while step < options.steps:
        seconds = time.time() - start
        done = seconds / options.seconds
        if done >= 1:
            break
        cosine = 0.5 * (1 + math.cos(math.pi * done)) * 0.98 + 0.02
        rate = options.lr * min(1, (step + 1) / 300) * cosine
        for group in optimizer.param_groups:
            group["lr"] = rate
        rows = torch.randint(0, len(ids), (options.batch - n_pictures,), device=device)
        grid = step % len(GRIDS)
        p_ids, p_spoken, p_pixels = pictures[grid]
        p_rows = torch.randint(0, p_ids.shape[0], (n_pictures,), device=device)
        x = torch.cat([ids[rows], p_ids[p_rows]]).long()
        weights = torch.cat([spoken[rows], p_spoken[p_rows]]).float()
        shapes = torch.tensor([[1, *GRIDS[grid]]] * (n_pictures * PICTURES_PER_ROW), device=device)
        with torch.autocast(device, torch.bfloat16):
            pixels = p_pixels[p_rows].flatten(0, 2)
            total, loads, logits, logits_1, shown = forward_loss(
                model, mtp, x, weights, pixels, shapes, done > 0.25
            )
        total.backward()
        torch.nn.utils.clip_grad_norm_(params, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        with torch.no_grad():
            balance(loads)
            if step % 200 == 0:
                show(step, seconds, rate, shown, logits, logits_1, x, weights, n_pictures)
        step += 1
        if step % 2000 == 0:
            save(model, mtp, options.out)
    save(model, mtp, options.out)
    print(f"done after {step} steps", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out", metavar="OUT", help="folder for tokenizer.json and ckpt.pt")
    parser.add_argument("--seconds", type=float, required=True, help="how long to train")
    parser.add_argument("--steps", type=int, default=100000, help="at most so many steps")
    parser.add_argument("--conversations", type=int, default=20000, help="how many to make")
    parser.add_argument("--batch", type=int, default=40, help="rows of 1,024 tokens a step")
    parser.add_argument("--lr", type=float, default=2e-3, help="highest learning rate")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--check", action="store_true", help="compare the forward first")
    options = parser.parse_args()
    os.makedirs(options.out, exist_ok=True)
    start = time.time()
    torch.manual_seed(0)
    tokenizer, ids, weights, made = make_data(options.conversations, options.out)
    pictures = [picture_rows(tokenizer, g, p) for g, p in zip(GRIDS, made, strict=True)]
    tokens = ids.size / 1e6
    print(f"data: {tokens:.1f} M tokens of text, {time.time() - start:.0f} s", flush=True)
    model, mtp = make_model(options.device)
    n = sum(p.numel() for m in (model, mtp) for p in m.parameters())
    print(f"{n / 1e6:.2f} M parameters", flush=True)
    Settings.compiled = True
    if options.check:
        check_forward(model, ids, options.device)
    train(model, mtp, (ids, weights), pictures, options)


if __name__ == "__main__":
    main()
