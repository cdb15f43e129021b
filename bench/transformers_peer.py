# SPDX-License-Identifier: Apache-2.0
"""Prefill and decode speed of Hugging Face transformers' own glm5_next on this machine's CPU.

fp32 arithmetic, the KV cache, inference mode and the sdpa attention; the thread count is an argument
because for a small model fewer threads may be faster. Prompts are the token ids that bench_pico
and `glmctl bench` make too. Prints the CSV rows that bench_pico prints.
"""

import argparse
import statistics
import time

import torch
from transformers import Glm5NextForConditionalGeneration

N_IDS = 2000  # ids below the special tokens, whose pictures and ends would not be text


def prompt_ids(length, seed):
    state = (seed * 2654435761 + 1) & 0xFFFFFFFF
    ids = []
    for _ in range(length):
        state = (state * 1664525 + 1013904223) & 0xFFFFFFFF
        ids.append(state * N_IDS >> 32)
    return torch.tensor([ids])


def run_once(model, ids, n_reply):
    """Seconds of the prompt and of each decode step, and the greedy reply."""
    start = time.perf_counter()
    out = model(input_ids=ids, use_cache=True, logits_to_keep=1)
    token = out.logits[:, -1].argmax(-1, keepdim=True)
    prefill = time.perf_counter() - start
    cache, reply, steps = out.past_key_values, [int(token)], []
    while len(reply) < n_reply:
        start = time.perf_counter()
        out = model(input_ids=token, past_key_values=cache, use_cache=True, logits_to_keep=1)
        token = out.logits[:, -1].argmax(-1, keepdim=True)
        reply.append(int(token))
        steps.append(time.perf_counter() - start)
        cache = out.past_key_values
    return prefill, steps, reply


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint")
    parser.add_argument("--prompts", default="64,512,2048")
    parser.add_argument("--reply", type=int, default=64)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--first-run", type=int, default=1)
    parser.add_argument("--threads", default="")
    options = parser.parse_args()
    threads = [int(n) for n in options.threads.split(",") if n] or [torch.get_num_threads()]
    model = Glm5NextForConditionalGeneration.from_pretrained(
        options.checkpoint, dtype=torch.float32, attn_implementation="sdpa"
    ).eval()
    with torch.inference_mode():
        run_once(model, prompt_ids(64, 0), 4)
        for n_threads in threads:
            torch.set_num_threads(n_threads)
            for length in [int(n) for n in options.prompts.split(",")]:
                for run in range(options.first_run, options.first_run + options.runs):
                    prefill, steps, _ = run_once(model, prompt_ids(length, run), options.reply)
                    print(
                        f"transformers,bf16,1,{n_threads},{length},{options.reply},{run},"
                        f"{1e3 * prefill:.3f},{length / prefill:.1f},"
                        f"{1e3 * statistics.median(steps):.4f},{1 / statistics.median(steps):.1f}",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
