# SPDX-License-Identifier: Apache-2.0
"""Exports the trained pico checkpoint in the published layout, with golden values.

Writes OUT/bf16 (BF16, 4 shards with an index), OUT/exl3 (experts in EXL3, the rest BF16, one file),
OUT/golden and OUT/holdout (see golden.py). Needs one GPU.
"""

import argparse
import time

import torch
from tokenizers import Tokenizer
from transformers.models.glm5_next import modeling_glm5_next as glm5

import golden
import published
from exl3 import BITS, Quantizer
from model import Settings
from tokens import encode

START = time.time()


def say(*words):
    print(f"[{time.time() - START:4.0f} s]", *words, flush=True)


@torch.no_grad()
def check_folder(reference, folder, device):
    """transformers itself must read the BF16 folder as the weights that were written."""
    read = glm5.Glm5NextForConditionalGeneration.from_pretrained(folder, dtype=torch.float32)
    read = read.to(device).eval()
    x = reference.tensor(encode(reference.tokenizer, golden.PROMPTS["golden"]["story"]))
    want, got = (m(input_ids=x).logits for m in (reference.model, read))
    say("read by from_pretrained, relative error", ((want - got).norm() / want.norm()).item())


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("source", metavar="SOURCE", help="train.py's folder")
    parser.add_argument("out", metavar="OUT", help="folder to write")
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    out, device = options.out, options.device
    tokenizer_json = options.source + "/tokenizer.json"
    tokenizer = Tokenizer.from_file(tokenizer_json)
    checkpoint = torch.load(options.source + "/ckpt.pt", map_location="cpu")
    weights = published.tensors(checkpoint)
    settings = published.config_json()
    published.write(out + "/bf16", weights, settings, tokenizer_json, sharded=True)
    say(len(weights), "tensors,", sum(t.numel() for t in weights.values()), "parameters")

    experts = {k: w for k, w in weights.items() if ".mlp.experts." in k}
    stored, decoded, errors = Quantizer(device).quantize(experts)
    say("EXL3 relative MSE: mean", sum(errors) / len(errors), "largest", max(errors))
    rest = {k: w for k, w in weights.items() if k not in experts}
    quantization = {
        "quant_method": "exl3",
        "bits": float(BITS),
        "codebook": "mcg",
        "head_bits": 16,
        "out_scales": "always",
    }
    settings = settings | {"quantization_config": quantization}
    published.write(out + "/exl3", rest | stored, settings, tokenizer_json, sharded=False)

    Settings.expert_dtype = torch.float32
    for name, values in (("bf16", weights), ("exl3", weights | decoded)):
        reference = golden.Reference(values, tokenizer, device)
        if name == "bf16":
            check_folder(reference, out + "/bf16", device)
        golden.write_prompts(reference, name, out)
        golden.write_pictures(reference, name, out, with_tensors=name == "bf16")
        say("golden values of", name)
    golden.write_exact_match(reference, out)
    golden.write_image_processor(out)
    golden.write_tokenizer(tokenizer, out)
    say("done")


if __name__ == "__main__":
    main()
