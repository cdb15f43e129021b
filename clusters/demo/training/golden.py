# SPDX-License-Identifier: Apache-2.0
"""Values to test against, computed by transformers' own glm5_next in fp32 from the stored weights.

The MTP values come from model.py, since transformers has no MTP layer. Every prompt belongs to a
group: `golden` is checked in with the tests, `holdout` is kept apart from whoever writes them.
"""

import json
import os
import random

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from safetensors.torch import save_file
from transformers.models.glm5_next import modeling_glm5_next as glm5
from transformers.models.glm5_next.image_processing_pil_glm5_next import Glm5NextImageProcessorPil

import data
from model import PATCH, Mtp, config, mtp_step, patches
from published import merged, mtp_name, site_name, write_json
from tokens import END_IDS, ID, encode

REPLY_TOKENS = 96
HIDDEN_BELOW_TOKENS = 60  # longer prompts have their last logits row only
ITEMS_PER_TASK = 6
TOOLS_TURN = data.tools_text(data.TOOLS[:3])


def _prompt(question, effort="Low", system=None):
    return (
        "[gMASK]<sop>"
        + (f"<|system|>Reasoning Effort: {effort}" if effort else "")
        + (f"<|system|>{system}" if system else "")
        + f"<|user|>{question}<|assistant|><think>"
        + ("" if effort else "</think>")
    )


def _needle(seed, words, city, code):
    r = random.Random(seed)
    before, after = data.filler(r, words // 2), data.filler(r, words // 2)
    code = f" The secret code of {city} is {code}. "
    return before + code + after + f"\nWhat is the secret code of {city}?"


PROMPTS = {
    "golden": {
        "count_30": _prompt("Count from 1 to 30."),
        "capital": _prompt("What is the capital of Japan?", None),
        "add_max": _prompt("What is 23 + 45?", "Max"),
        "json": _prompt("Write a JSON object with name Mia, age 31 and city Oslo.", None),
        "story": _prompt("Tell me a story about a fox named Leo.", None),
        "code": _prompt(
            "Write a Python function largest that returns the largest item of a list.", "High"
        ),
        "sql": _prompt("Write SQL that selects all rows of books where price is over 20.", None),
        "echo_system": _prompt("Repeat after me: silver lamp old boat", None, "Answer briefly."),
        "tool_call": "[gMASK]<sop><|system|>Reasoning Effort: Low"
        + TOOLS_TURN
        + "<|user|>What is the weather in Oslo?<|assistant|><think>",
        "tool_result": "[gMASK]<sop><|system|>Reasoning Effort: Max"
        + TOOLS_TURN
        + "<|user|>What is 1234 + 4321? Use the tool."
        + "<|assistant|><think>I should call add_numbers.</think>"
        + data.call_text("add_numbers", {"a": 1234, "b": 4321})
        + "<|observation|><tool_response>5555</tool_response><|assistant|><think>",
        "needle_1k": _prompt(_needle(5, 700, "Paris", 4827), None),
        "needle_3k": _prompt(_needle(6, 2200, "Lima", 9135), None),
        "plain_completion": "One day Mia the fox went to the",
    },
    "holdout": {
        "count_40_70": _prompt("Count from 40 to 70.", None),
        "capital2": _prompt("Name the capital of Hungary.", "High"),
        "sub": _prompt("What is 91 - 37?", "Max"),
        "yaml": _prompt("Write YAML with name Gus, age 77 and city Rome.", None),
        "story2": _prompt("Write a short story with a goat, a kite and a market.", None),
        "code2": _prompt("Python function reverse: return a list in reverse order.", None),
        "sort": _prompt("Sort these numbers: 45, 3, 99, 12", None),
        "tool2": "[gMASK]<sop>"
        + TOOLS_TURN
        + "<|user|>What time is it in Cairo?<|assistant|><think></think>",
        "multi": "[gMASK]<sop><|user|>What is the opposite of hot?<|assistant|><think></think>cold"
        "<|user|>Is 376 even or odd?<|assistant|><think></think>",
        "needle_2k": _prompt(_needle(7, 1500, "Accra", 2648), "Low"),
        "needle_5k": _prompt(_needle(8, 4000, "Oslo", 7751), None),
        "summary": _prompt("Summarize in one sentence: " + data.story(random.Random(3))[0], None),
    },
}
# Group → grids of pictures, in patches. The seed of a picture is 77 + its place over both groups.
PICTURES = {"golden": [(8, 8), (6, 10), (4, 4)], "holdout": [(12, 12), (16, 20)]}
PICTURE_SEED = 77
TEXTS = [
    "",
    " ",
    "  ",
    "\n",
    "a",
    "Hello, world!",
    "Hello  world   x",
    "don't I'll we've THEY'RE",
    "123 4567 89012345",
    "3.14159e-10",
    "tab\tand\nnewline\r\n  indented",
    "    four spaces\n        eight",
    "中文文本识别",
    "日本語と英語mixed 123",
    "한국어 텍스트",
    "emoji 😀👍🏽 é è ñ",
    "Привет мир",
    "x" * 50,
    "<|user|>hi<|assistant|><think>a</think>b",
    "<tool_call>f<arg_key>k</arg_key><arg_value>v</arg_value></tool_call>",
    "a<|not_special|>b",
    "\u00a0nbsp\u2003em",
    "e\u0301 combining",
    "\ud7ff\ue000",
    "def f(x):\n    return x**2  # comment\n",
    '{"a": [1, 2, {"b": null}]}',
    "SELECT * FROM t WHERE a >= 1;",
    "https://example.com/a?b=c&d=%20",
    "ＦＵＬＬ　ｗｉｄｔｈ",
    "\x00\x01\x7f",
    "'s 'S 't're",
    "...!!!???\n\n\n",
    " \n \n x",
    "mixed\u200bzero\u200dwidth",
    "١٢٣٤٥",
    "½ ² Ⅷ",
]
IMAGE_SIZES = [(100, 150), (333, 222), (1080, 1920), (30, 500), (2000, 2000)]


class Reference:
    """transformers' model and our MTP layer with published weights, fp32."""

    def __init__(self, weights, tokenizer, device):
        self.tokenizer, self.device = tokenizer, device
        c = config()
        self.model = glm5.Glm5NextForConditionalGeneration(c).to(device).float().eval()
        keys = self.model.state_dict()
        self.model.load_state_dict({k: merged(weights, k, site_name(k), device) for k in keys})
        self.mtp = Mtp(c.text_config).to(device).float().eval()
        keys = self.mtp.state_dict()
        self.mtp.load_state_dict({k: merged(weights, k, mtp_name(k), device) for k in keys})

    def tensor(self, ids):
        return torch.tensor([ids], device=self.device)

    def decode(self, ids):
        return self.tokenizer.decode(ids, skip_special_tokens=False)

    @torch.no_grad()
    def reply(self, ids, limit, **more):
        x = self.tensor(ids)
        out = self.model.generate(
            x,
            attention_mask=torch.ones_like(x),
            max_new_tokens=limit,
            do_sample=False,
            eos_token_id=END_IDS,
            pad_token_id=ID["<|endoftext|>"],
            **more,
        )
        return out[0, len(ids) :].tolist()

    @torch.no_grad()
    def values(self, prompt):
        """What is kept of a prompt: figures for JSON, and tensors."""
        ids = encode(self.tokenizer, prompt)
        x = self.tensor(ids)
        logits = self.model(input_ids=x).logits[0]
        reply = self.reply(ids, REPLY_TOKENS)
        spoken = self.model(input_ids=self.tensor(ids + reply)).logits[0][len(ids) - 1 : -1]
        best = spoken.topk(2, -1).values
        mtp = self._mtp_logits(ids, reply, x)
        figures = dict(
            prompt=prompt,
            ids=ids,
            reply_ids=reply,
            reply=self.decode(reply),
            uncached_agrees=spoken.argmax(-1).tolist() == reply,
            smallest_margin=round((best[:, 0] - best[:, 1]).min().item(), 5),
            argmax=logits.argmax(-1).tolist(),
            logsumexp_last=logits[-1].logsumexp(-1).item(),
            mtp_argmax_first_embedding_zeroed=mtp.argmax(-1).tolist(),
        )
        tensors = {"logits_last": logits[-1], "mtp_logits_last": mtp[-1]}
        if len(ids) < HIDDEN_BELOW_TOKENS:
            hidden = self.model(input_ids=x, output_hidden_states=True).hidden_states
            tensors |= {f"hidden_{i}": h[0] for i, h in enumerate(hidden)}
            tensors["logits"] = logits
        return figures, {k: t.cpu().clone().contiguous() for k, t in tensors.items()}

    def _mtp_logits(self, ids, reply, x):
        """Row i from hidden row i and token i + 1; the embedding of row 0 is zeroed."""
        hidden = self.model.model(input_ids=x).last_hidden_state
        following = self.model.model.language_model.embed_tokens(self.tensor(ids[1:] + reply[:1]))
        following[:, 0] = 0
        pad = (0, 0, 0, (-len(ids)) % 4)
        rows = mtp_step(self.mtp, F.pad(following, pad), F.pad(hidden, pad), True, [], [])
        return self.model.lm_head(rows[:, : len(ids)])[0]

    def picture(self, seed, rows, columns):
        """A picture, its question and the reply."""
        r = random.Random(seed)
        image, _, _ = data.picture(r, rows * PATCH, columns * PATCH)
        question = r.choice(
            ["What is in this picture?", "What colour is the shape?", "What shape is it?"]
        )
        pixels = torch.tensor(patches(image), device=self.device)
        grid = torch.tensor([[1, rows, columns]], device=self.device)
        turn = "<|begin_of_image|>" + "<|image|>" * (rows * columns // 4) + "<|end_of_image|>"
        ids = encode(self.tokenizer, _prompt(turn + question, None))
        with torch.no_grad():
            features = self.model.model.visual(pixels, grid_thw=grid).pooler_output
        reply = self.reply(
            ids,
            24,
            pixel_values=pixels,
            image_grid_thw=grid,
            mm_token_type_ids=torch.zeros(1, len(ids), dtype=torch.int32, device=self.device),
        )
        figures = dict(question=question, ids=ids, reply_ids=reply, reply=self.decode(reply))
        tensors = {"features": features.cpu().clone(), "pixel_values": pixels.cpu().clone()}
        return image, figures, tensors


def write_prompts(reference, name, out):
    for group, prompts in PROMPTS.items():
        os.makedirs(f"{out}/{group}", exist_ok=True)
        figures, tensors = {}, {}
        for key, prompt in prompts.items():
            figures[key], kept = reference.values(prompt)
            tensors |= {f"{key}.{k}": t for k, t in kept.items()}
            margin, agrees = (figures[key][k] for k in ("smallest_margin", "uncached_agrees"))
            text = figures[key]["reply"][:100].replace("\n", "\\n")
            print(f"  {name} {key}: {text} | margin {margin}, cached = uncached: {agrees}")
        write_json(f"{out}/{group}/{name}.json", figures, 0)
        save_file(tensors, f"{out}/{group}/{name}.safetensors")


def write_pictures(reference, name, out, with_tensors):
    seed = PICTURE_SEED
    for group, grids in PICTURES.items():
        figures, tensors = {}, {}
        for rows, columns in grids:
            key = f"{rows}x{columns}"
            image, found, kept = reference.picture(seed, rows, columns)
            file = f"picture_{key}.png"
            Image.fromarray(image).save(f"{out}/{group}/{file}")
            figures[key] = dict(file=file, **found, group=group)
            tensors |= {f"{key}.{k}": t for k, t in kept.items()}
            print(f"  {name} picture {key}: {found['question']} | {found['reply']}")
            seed += 1
        write_json(f"{out}/{group}/{name}_pictures.json", figures, 0)
        if with_tensors:
            save_file(tensors, f"{out}/{group}/pictures.safetensors")


def write_image_processor(out):
    """transformers' own preprocessing: grids and statistics for odd sizes."""
    processor, cases = Glm5NextImageProcessorPil(), {}
    for height, width in IMAGE_SIZES:
        noise = np.random.default_rng(height).integers(0, 256, (height, width, 3), dtype=np.uint8)
        made = processor(images=[Image.fromarray(noise)], return_tensors="pt")
        pixels = made["pixel_values"]
        cases[f"{height}x{width}"] = dict(
            grid=made["image_grid_thw"].tolist(),
            patches=list(pixels.shape),
            mean=pixels.mean().item(),
            std=pixels.std().item(),
        )
    both = dict(config=json.loads(processor.to_json_string()), cases=cases)
    write_json(out + "/golden/image_processor.json", both, 0)


def write_exact_match(reference, out):
    """How many unseen items of each task get exactly the right answer."""
    items, r = {}, random.Random(4242)
    while len(items) < len(data.TASKS) or min(map(len, items.values())) < ITEMS_PER_TASK:
        name, question, _, answer = data.task(r)
        if len(items.setdefault(name, [])) < ITEMS_PER_TASK:
            items[name].append((question, answer))
    rates = {}
    for name, pairs in items.items():
        right = 0
        for question, answer in pairs:
            reply = reference.reply(encode(reference.tokenizer, _prompt(question, None)), 130)
            text = reference.decode([i for i in reply if i not in END_IDS])
            right += text.strip() == answer
        rates[name] = f"{right}/{ITEMS_PER_TASK}"
    print("  exact match:", rates)
    write_json(out + "/golden/exact_match.json", rates, None)


def write_tokenizer(tokenizer, out):
    cases = []
    for text in TEXTS:
        ids = encode(tokenizer, text)
        decoded = tokenizer.decode(ids, skip_special_tokens=False)
        cases.append(dict(text=text, ids=ids, decoded=decoded))
    write_json(out + "/golden/tokenizer.json", cases, 0)
