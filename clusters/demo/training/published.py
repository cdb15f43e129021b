# SPDX-License-Identifier: Apache-2.0
"""Between the training checkpoint and the published layout: tensor names, config.json, files."""

import json
import os
import shutil

import torch
from safetensors.torch import save_file

from model import N_LAYERS, config
from tokens import ID

SHARD_BYTES = 15_000_000
FP32_NAMES = ("A_log", "dt_bias", "e_score_correction_bias", "_base", "_scale")
MTP_PREFIX = f"model.language_model.layers.{N_LAYERS}."
TEXT_KEYS = (
    "vocab_size hidden_size intermediate_size moe_intermediate_size num_hidden_layers"
    " num_attention_heads num_key_value_heads n_shared_experts n_routed_experts"
    " routed_scaling_factor kv_lora_rank q_lora_rank qk_rope_head_dim v_head_dim qk_nope_head_dim"
    " n_group topk_group num_experts_per_tok norm_topk_prob hidden_act max_position_embeddings"
    " rms_norm_eps pad_token_id eos_token_id tie_word_embeddings mlp_layer_types layer_types"
    " indexer_types index_topk index_head_dim index_n_heads index_kpool"
    " index_kpool_always_select_tail swiglu_limit hc_mult hc_eps hc_sinkhorn_iters"
).split()
VISION_KEYS = (
    "depth hidden_size num_heads intermediate_size out_hidden_size projection_intermediate_size"
    " patch_size temporal_patch_size spatial_merge_size in_channels hidden_act rms_norm_eps"
    " swiglu_limit attention_bias rope_parameters"
).split()
TOP_KEYS = (
    "image_token_id video_token_id image_start_token_id image_end_token_id video_start_token_id"
    " video_end_token_id"
).split()


def site_name(name):
    """The module's name of a tensor → the published one, where they differ by a word."""
    name = name.replace("forget_gate.", "")
    return name.replace("attn_hc.", "hc_attn_").replace("ffn_hc.", "hc_ffn_")


def _split(state):
    """Module state → tensors by published name: convolutions and experts apart."""
    out = {}
    for key, value in state.items():
        if key.startswith("model.visual.") or key == "lm_head.weight":
            out[key] = value
            continue
        name = site_name(key)
        if name.endswith("conv1d.weight"):
            for letter, part in zip("qkv", value.chunk(3), strict=True):
                out[name.replace("conv1d", letter + "_conv1d")] = part
        elif name.endswith("experts.gate_up_proj"):
            base = name.removesuffix("gate_up_proj")
            for e, both in enumerate(value):
                gate, up = both.chunk(2)
                out[f"{base}{e}.gate_proj.weight"] = gate
                out[f"{base}{e}.up_proj.weight"] = up
        elif name.endswith("experts.down_proj"):
            base = name.removesuffix("down_proj")
            for e, down in enumerate(value):
                out[f"{base}{e}.down_proj.weight"] = down
        else:
            out[name] = value
    return out


def mtp_name(key):
    return MTP_PREFIX + ("shared_head.norm.weight" if key == "norm.weight" else key)


def tensors(checkpoint):
    """train.py's checkpoint → published names and dtypes."""
    mtp = {mtp_name(key): value for key, value in checkpoint["mtp"].items()}
    out = _split(checkpoint["model"]) | _split(mtp)
    return {
        key: (value.float() if key.endswith(FP32_NAMES) else value.bfloat16()).contiguous().clone()
        for key, value in out.items()
    }


def merged(weights, key, name, device):
    """One tensor of a module's state from published tensors, fp32. name: its published name, were
    nothing split; key: the module's."""
    if key.endswith("conv1d.weight"):
        parts = [weights[name.replace("conv1d", letter + "_conv1d")] for letter in "qkv"]
        return torch.cat([p.float() for p in parts]).to(device)

    def expert(e, matrix):
        return weights[f"{base}{e}.{matrix}_proj.weight"].float().to(device)

    if key.endswith("experts.gate_up_proj"):
        base = name.removesuffix("gate_up_proj")
        return torch.stack([torch.cat([expert(e, "gate"), expert(e, "up")]) for e in range(8)])
    if key.endswith("experts.down_proj"):
        base = name.removesuffix("down_proj")
        return torch.stack([expert(e, "down") for e in range(8)])
    return weights[name].float().to(device)


def config_json():
    """config.json as published packs have it."""
    c = json.loads(config().to_json_string(use_diff=False))
    text = {k: c["text_config"][k] for k in TEXT_KEYS} | dict(
        model_type="glm5_next_text",
        dtype="bfloat16",
        num_nextn_predict_layers=1,
        first_k_dense_replace=2,
        scoring_func="sigmoid",
        topk_method="noaux_tc",
        moe_router_dtype="float32",
        mhc=True,
        mla_use_nope=True,
        qk_head_dim=64,
        head_dim=0,
        index_kpool_compress=True,
        linear_attn_config=dict(
            num_heads=4,
            head_dim=64,
            short_conv_kernel_size=4,
            gate_lower_bound=-5.0,
            lower_bound=-5.0,
            kda_layers=[0, 1, 3, 4],
            full_attn_layers=[2, 5],
        ),
    )
    vision = {k: c["vision_config"][k] for k in VISION_KEYS} | {"model_type": "glm5_next_vision"}
    return dict(
        architectures=["Glm5NextForConditionalGeneration"],
        model_type="glm5_next",
        tie_word_embeddings=False,
        dtype="bfloat16",
        **{k: c[k] for k in TOP_KEYS},
        text_config=text,
        vision_config=vision,
    )


def generation_json():
    c = config().text_config
    return dict(
        eos_token_id=c.eos_token_id, pad_token_id=ID["<|endoftext|>"], temperature=1.0, top_p=0.95
    )


def write_json(path, value, indent):
    with open(path, "w") as f:
        json.dump(value, f, indent=indent)


def write(folder, weights, settings, tokenizer_json, sharded):
    """A checkpoint folder: one file, or shards of at most 15 MB with an index."""
    os.makedirs(folder, exist_ok=True)
    write_json(folder + "/config.json", settings, 1)
    write_json(folder + "/generation_config.json", generation_json(), 1)
    shutil.copyfile(tokenizer_json, folder + "/tokenizer.json")
    if not sharded:
        save_file(weights, folder + "/model.safetensors", {"format": "pt"})
        return
    shards, size = [{}], 0
    for key, tensor in weights.items():
        if size + tensor.nbytes > SHARD_BYTES:
            shards.append({})
            size = 0
        shards[-1][key] = tensor
        size += tensor.nbytes
    where = {}
    for i, shard in enumerate(shards):
        name = f"model-{i + 1:05d}-of-{len(shards):05d}.safetensors"
        save_file(shard, folder + "/" + name, {"format": "pt"})
        where |= dict.fromkeys(shard, name)
    total = sum(t.nbytes for t in weights.values())
    index = {"metadata": {"total_size": total}, "weight_map": where}
    write_json(folder + "/model.safetensors.index.json", index, 0)
