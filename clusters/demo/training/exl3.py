# SPDX-License-Identifier: Apache-2.0
"""EXL3 at 4 bits with the mcg codebook: routed experts in, trellis and scales out.

A matrix [in, out] is scaled and rotated (Hadamard, blocks of 128, random signs) on both sides, cut
into tiles of 16x16, and each tile's 256 values become a closed path through a trellis of 65,536
states, found by dynamic programming: 4 bits a value, the other 12 are those of the values before.
"""

import numpy as np
import torch

BITS = 4
MULTIPLIER = 0xCBAC1FED
BATCH_TILES = 768
# What a matrix's range may be divided by before it is quantized; the best is chosen by samples.
SCALES = (0.76, 0.82, 0.88, 0.94, 1.0)
SAMPLE_TILES = 4


def _codebook():
    """The value of each of the 65,536 states: the sum of two fp16 numbers made of its hash."""
    x = (np.arange(65536, dtype=np.uint64) * MULTIPLIER) & 0xFFFFFFFF
    x = (x & 0x8FFF8FFF) ^ 0x3B603B60
    low = (x & 0xFFFF).astype(np.uint16).view(np.float16)
    high = (x >> 16).astype(np.uint16).view(np.float16)
    return (low + high).astype(np.float32)


def _stream_order():
    """Place in a tile (row·16 + column) of the value at each position of its stream."""
    order = []
    for p in range(256):
        lane, slot = p >> 3, p & 7
        row = 2 * (lane & 3) + (p & 1) + 8 * ((p >> 1) & 1)
        order.append(row * 16 + (lane >> 2) + 8 * (slot >> 2))
    return order


class Quantizer:
    def __init__(self, device):
        self.device = device
        self.values = torch.tensor(_codebook(), device=device)
        self.order = torch.tensor(_stream_order(), device=device)
        signs = [[(-1.0) ** bin(i & j).count("1") for j in range(128)] for i in range(128)]
        self.hadamard = torch.tensor(signs, device=device, dtype=torch.float64) / 128**0.5

    def _rotate(self, w):
        return (w.unflatten(-1, (-1, 128)) @ self.hadamard).flatten(-2)

    def _search(self, targets, start=None):
        """States [N, 256] of the cheapest path through each tile's targets. start: the 12 bits that
        it begins and ends with; None lets both ends be free."""
        n = targets.shape[0]
        back = torch.empty(n, 256, 4096, dtype=torch.uint8, device=self.device)
        cost = torch.zeros(n, 4096, device=self.device)
        if start is not None:
            cost.fill_(1e30)
            cost.scatter_(1, start[:, None], 0.0)
        for i in range(256):
            error = (self.values[None] - targets[:, i : i + 1]).square_()
            total = error.view(n, 4096, 16) + cost.unsqueeze(-1)
            cost, came = total.view(n, 16, 4096).min(1)
            back[:, i] = came.to(torch.uint8)
        edge = cost.argmin(1) if start is None else start
        states = torch.empty(n, 256, dtype=torch.int64, device=self.device)
        for i in range(255, -1, -1):
            high = back[:, i].gather(1, edge[:, None])[:, 0].long()
            state = (high << 12) | edge
            states[:, i] = state
            edge = state >> 4
        return states

    def _states(self, tiles):
        """A tile's path must close: the first search, begun in the middle, finds where."""
        out = []
        for batch in tiles.split(BATCH_TILES):
            turned = self._search(torch.cat([batch[:, 128:], batch[:, :128]], 1))
            out.append(self._search(batch, turned[:, 128] >> 4))
        return torch.cat(out)

    def _tiles(self, w):
        """[in, out] → [tiles, 256] in stream order."""
        rows, columns = w.shape
        w = w.view(rows // 16, 16, columns // 16, 16).permute(0, 2, 1, 3)
        return w.reshape(-1, 256)[:, self.order]

    def _prepare(self, w, seed, scale=None):
        """Rotated matrix and the scales of its inputs and outputs."""
        w = w.double()
        rows, columns = w.shape
        g = torch.Generator().manual_seed(seed)
        su = (torch.randint(0, 2, (rows,), generator=g) * 2 - 1).double().to(self.device)
        sv = (torch.randint(0, 2, (columns,), generator=g) * 2 - 1).double().to(self.device)
        column = w.square().mean(0).sqrt()
        sv = (sv * (column / column.mean()).clamp(min=1e-4)).half().double()
        half = self._rotate(w / sv)
        row = half.square().mean(1).sqrt()
        su = su * row.clamp(min=1e-8) / self.values.double().square().mean().sqrt()
        if scale is not None:
            su = (su / scale).half().double()
        return self._rotate((half / su[:, None]).t()).t(), su, sv

    def _choose_scales(self, matrices):
        samples = []
        for seed, w in enumerate(matrices):
            tiles = self._tiles(self._prepare(w, seed)[0].float().contiguous())
            some = tiles[torch.arange(SAMPLE_TILES) * 37 % 512]
            samples.append(torch.cat([some * s for s in SCALES]))
        shape = (len(matrices), len(SCALES), SAMPLE_TILES, 256)
        got = self.values[self._states(torch.cat(samples))].view(shape)
        want = torch.stack(samples).view(shape)
        scales = torch.tensor(SCALES, device=self.device).view(1, -1, 1, 1)
        best = ((got - want) / scales).square().mean((2, 3)).argmin(1)
        return [SCALES[i] for i in best.tolist()]

    def _pack(self, states):
        """[tiles, 256] → [tiles, 64] int16: value p takes bits (255 - p)·4 .. of a ring of 1,024;
        a 32-bit group, low half first, holds 8 values, the first one highest."""
        low = (states & 15).view(-1, 32, 8)
        shifts = torch.tensor([28, 24, 20, 16, 12, 8, 4, 0], device=self.device)
        groups = (low << shifts).sum(-1)
        words = torch.stack([groups & 0xFFFF, groups >> 16], -1).flatten(-2).to(torch.int32)
        return torch.where(words > 32767, words - 65536, words).to(torch.int16)

    def _decoded(self, states, shape, su, sv):
        rows, columns = shape
        inner = torch.empty(rows // 16 * (columns // 16), 256, device=self.device)
        inner[:, self.order] = self.values[states]
        inner = inner.view(rows // 16, columns // 16, 16, 16).permute(0, 2, 1, 3)
        inner = inner.reshape(rows, columns).double()
        return self._rotate(self._rotate(inner.t()).t() * su[:, None]) * sv

    def quantize(self, weights):
        """weights: {NAME.weight: [out, in]}, at least 512 tiles each. Returns the stored tensors,
        the weights as they decode (fp32), and each one's relative mean squared error."""
        matrices = [w.to(self.device).float().t() for w in weights.values()]
        scales = self._choose_scales(matrices)
        ready = [
            self._prepare(w, i, s) for i, (w, s) in enumerate(zip(matrices, scales, strict=True))
        ]
        tiles = [self._tiles(w.float().contiguous()) for w, _, _ in ready]
        states = self._states(torch.cat(tiles)).split([len(t) for t in tiles])
        stored, decoded, errors = {}, {}, []
        for key, w, (_, su, sv), path in zip(weights, matrices, ready, states, strict=True):
            base, (rows, columns) = key.removesuffix(".weight"), w.shape
            trellis = self._pack(path).view(rows // 16, columns // 16, 16 * BITS)
            stored[base + ".trellis"] = trellis.cpu().contiguous()
            stored[base + ".suh"] = su.half().cpu()
            stored[base + ".svh"] = sv.half().cpu()
            stored[base + ".mcg"] = torch.tensor([MULTIPLIER - (1 << 32)], dtype=torch.int32)
            d = self._decoded(path, w.shape, su, sv)
            errors.append(((d - w).norm() ** 2 / w.double().norm() ** 2).item())
            decoded[key] = d.t().float()
        return stored, decoded, errors
