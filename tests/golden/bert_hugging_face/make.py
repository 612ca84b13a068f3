#!/usr/bin/env python3
"""Makes this folder's reference models with Hugging Face transformers: two small BERTs with random weights, as `save_pretrained`
writes them, and what they say in fp64 of a few pairs of segments.

    python3 make.py        # needs torch, transformers, safetensors

pairs/   BertForPreTraining: fp32 weights in one file
masked/  BertForMaskedLM: bf16 weights in shards with their index, GELU in its tanh form, an epsilon of 1e-5; the norms'
         parameters named gamma and beta, as BERT's own files have them

results.txt of each: per sequence a line with its 13 tokens, a bar, the first position of the second segment, a bar, position
and target of 2 masked tokens, a bar, the kind of the pair, a bar, the mean loss of the masked tokens and that of the pair (0
without a head for it).
"""
import json
import pathlib
import shutil

import torch
from safetensors.torch import load_file, save_file
from transformers import BertConfig, BertForMaskedLM, BertForPreTraining

SEQUENCE, VOCABULARY, SEQUENCES, MASKED = 13, 31, 4, 2


def make(folder, kind, dtype, shard_size, **settings):
    config = BertConfig(num_hidden_layers=2, hidden_size=12, num_attention_heads=3, intermediate_size=10,
                        max_position_embeddings=SEQUENCE, vocab_size=VOCABULARY, hidden_dropout_prob=0.0,
                        attention_probs_dropout_prob=0.0, pad_token_id=None, **settings)
    model = kind(config)
    with torch.no_grad():  # far from the symmetric beginning: every bias and gain matters
        for name, p in model.named_parameters():
            p.copy_(torch.randn(p.shape) * 0.3 + (1 if name.endswith("LayerNorm.weight") else 0))
    model = model.to(dtype)
    if folder.exists():
        shutil.rmtree(folder)
    model.save_pretrained(folder, max_shard_size=shard_size)
    model = model.double().eval()
    lines = []
    for i in range(SEQUENCES):
        ids = torch.randint(0, VOCABULARY, (1, SEQUENCE))
        second = int(torch.randint(3, SEQUENCE - 3, ()))
        segments = (torch.arange(SEQUENCE) >= second).long()[None]
        places = torch.randperm(SEQUENCE - 2)[:MASKED] + 1
        targets = torch.randint(0, VOCABULARY, (MASKED,))
        with torch.no_grad():
            out = model(input_ids=ids, token_type_ids=segments)
        pairs = kind is BertForPreTraining
        logits = out.prediction_logits if pairs else out.logits
        loss = torch.nn.functional.cross_entropy(logits[0, places], targets).item()
        label = i % 2
        scores = out.seq_relationship_logits if pairs else None
        pair_loss = torch.nn.functional.cross_entropy(scores, torch.tensor([label])).item() if pairs else 0.0
        masked = " ".join(f"{at} {target}" for at, target in zip(places.tolist(), targets.tolist()))
        lines.append(f"{' '.join(map(str, ids[0].tolist()))} | {second} | {masked} | {label} | {loss!r} {pair_loss!r}")
    (folder / "results.txt").write_text("\n".join(lines) + "\n")


def make_old(folder):
    """Names as in the files of BERT itself."""
    old = lambda name: name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
    for path in folder.glob("*.safetensors"):
        save_file({old(name): t for name, t in load_file(path).items()}, path, metadata={"format": "pt"})
    path = folder / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    index["weight_map"] = {old(name): file for name, file in index["weight_map"].items()}
    path.write_text(json.dumps(index, indent=2) + "\n")


def main():
    here = pathlib.Path(__file__).parent
    torch.manual_seed(20181011)
    make(here / "pairs", BertForPreTraining, torch.float32, "1TB")
    make(here / "masked", BertForMaskedLM, torch.bfloat16, "2KB", hidden_act="gelu_new", layer_norm_eps=1e-5)
    make_old(here / "masked")


if __name__ == "__main__":
    main()
