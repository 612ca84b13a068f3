#!/usr/bin/env python3
"""Makes this folder's reference models with Hugging Face transformers: two small GPT2LMHeadModels with random weights, as
`save_pretrained` writes them, and what they say in fp64 to a few sequences of tokens.

    python3 make.py        # needs torch, transformers, safetensors

tied/    fp32 weights, embeddings tied
untied/  bf16 weights, an lm_head of its own, the width of the feed-forward layer not 4 times the hidden one, and an epsilon
         of 1e-6; names without "transformer." and with the masks that files of old had, as those of GPT-2 itself have

results.txt of each: per sequence a line with its 14 tokens, a bar, and the mean loss of predicting all but the first; then
a line "logits" with the first 8 logits behind the first 13 tokens of the first sequence.
"""
import pathlib

import torch
from safetensors.torch import load_file, save_file
from transformers import GPT2Config, GPT2LMHeadModel

SEQUENCE, VOCABULARY, SEQUENCES = 13, 61, 4


def make(folder, dtype, **settings):
    config = GPT2Config(n_layer=2, n_embd=12, n_head=3, n_positions=SEQUENCE, vocab_size=VOCABULARY, resid_pdrop=0.0,
                        embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=60, eos_token_id=60, **settings)
    model = GPT2LMHeadModel(config)
    with torch.no_grad():  # far from the symmetric beginning: every bias and gain matters
        for name, p in model.named_parameters():
            gain = ".ln_" in name and name.endswith("weight")
            p.copy_(torch.randn(p.shape) * 0.3 + (1 if gain else 0))
    model = model.to(dtype)
    model.save_pretrained(folder, safe_serialization=True)
    for extra in folder.glob("generation_config.json"):
        extra.unlink()
    model = model.double().eval()
    tokens = torch.randint(0, VOCABULARY, (SEQUENCES, SEQUENCE + 1))
    with torch.no_grad():
        logits = model(tokens[:, :-1]).logits
        losses = torch.nn.functional.cross_entropy(logits.transpose(1, 2), tokens[:, 1:], reduction="none").mean(1)
    lines = [" ".join(map(str, ids)) + f" | {loss!r}" for ids, loss in zip(tokens.tolist(), losses.tolist())]
    lines.append("logits " + " ".join(repr(x) for x in logits[0, -1, :8].tolist()))
    (folder / "results.txt").write_text("\n".join(lines) + "\n")


def make_old(folder):
    """The names and the masks of files that were written before 2023."""
    path = folder / "model.safetensors"
    tensors = {name.removeprefix("transformer."): t.clone() for name, t in load_file(path).items()}
    for layer in range(2):
        tensors[f"h.{layer}.attn.bias"] = torch.ones(SEQUENCE, SEQUENCE).tril().reshape(1, 1, SEQUENCE, SEQUENCE).bool()
        tensors[f"h.{layer}.attn.masked_bias"] = torch.tensor(-1e4)
    save_file(tensors, path, metadata={"format": "pt"})


def main():
    here = pathlib.Path(__file__).parent
    torch.manual_seed(20220301)
    make(here / "tied", torch.float32)
    make(here / "untied", torch.bfloat16, tie_word_embeddings=False, n_inner=31, layer_norm_epsilon=1e-6)
    make_old(here / "untied")


if __name__ == "__main__":
    main()
