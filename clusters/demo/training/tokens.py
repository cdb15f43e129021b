# SPDX-License-Identifier: Apache-2.0
"""The pico tokenizer: byte-level BPE over the synthetic text, the GLM special tokens at the end."""

import re

import numpy as np
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

SPECIAL = (
    "<|endoftext|> [MASK] [gMASK] [sMASK] <sop> <eop> <|system|> <|user|> <|assistant|>"
    " <|observation|> <|begin_of_image|> <|end_of_image|> <|begin_of_video|> <|end_of_video|>"
    " <|begin_of_audio|> <|end_of_audio|> <|begin_of_transcription|> <|end_of_transcription|>"
    " <|code_prefix|> <|code_middle|> <|code_suffix|> <think> </think> <tool_call> </tool_call>"
    " <tool_response> </tool_response> <arg_key> </arg_key> <arg_value> </arg_value> /nothink"
    " <|begin_of_box|> <|end_of_box|> <|image|> <|video|>"
).split()
VOCABULARY = 2048
FIRST_SPECIAL = VOCABULARY - len(SPECIAL)
ID = {text: FIRST_SPECIAL + i for i, text in enumerate(SPECIAL)}
END_IDS = [ID["<|endoftext|>"], ID["<|user|>"], ID["<|observation|>"]]
PRE_TOKEN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def train_tokenizer(conversations):
    """A tokenizer whose merges come from the conversations' text between special tokens."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=False))
    split = pre_tokenizers.Split(Regex(PRE_TOKEN), "isolated", False)
    byte_level = pre_tokenizers.ByteLevel(False, True, False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, byte_level])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=FIRST_SPECIAL,
        special_tokens=[],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    special = re.compile("|".join(re.escape(s) for s in SPECIAL))
    texts = (x for turns in conversations for t, _ in turns for x in special.split(t) if x)
    tokenizer.train_from_iterator(texts, trainer)
    while tokenizer.get_vocab_size() < FIRST_SPECIAL:
        unused = f"<|unused_{tokenizer.get_vocab_size()}|>"
        tokenizer.add_tokens([AddedToken(unused, normalized=False)])
    tokenizer.add_special_tokens([AddedToken(s, normalized=False, special=True) for s in SPECIAL])
    if any(tokenizer.token_to_id(text) != i for text, i in ID.items()):
        raise SystemExit(f"the vocabulary has {tokenizer.get_vocab_size()} tokens")
    return tokenizer


def encode(tokenizer, text):
    return tokenizer.encode(text, add_special_tokens=False).ids


def pack(tokenizer, conversations, length):
    """Conversations end to end, cut into rows: ids [n, length], weights [n, length]."""
    pieces = [piece for turns in conversations for piece in turns]
    encoded = tokenizer.encode_batch([text for text, _ in pieces], add_special_tokens=False)
    ids = [np.array(e.ids, np.int16) for e in encoded]
    weights = [np.full(len(e.ids), w, np.int8) for e, (_, w) in zip(encoded, pieces, strict=True)]
    ids, weights = np.concatenate(ids), np.concatenate(weights)
    n = len(ids) // length
    return ids[: n * length].reshape(n, length), weights[: n * length].reshape(n, length)
