#!/usr/bin/env python3
"""Makes this folder's reference models with Hugging Face transformers: two small LlamaForCausalLMs with random weights, as
`save_pretrained` writes them, and what they say in fp64 to a few sequences of tokens.

    python3 make.py        # needs torch, transformers, safetensors

tied/    fp32 weights in one file, embeddings tied
untied/  bf16 weights in shards with their index, an lm_head of its own, another base of the rotary positions and another
         epsilon; the keys of config.json as they were before 2025

results.txt of each: per sequence a line with its 14 tokens, a bar, and the mean loss of predicting all but the first; then
a line "logits" with the first 8 logits behind the first 13 tokens of the first sequence.

Whatever the model's type, transformers computes angles and RMSNorm in fp32; for these numbers both are replaced by the same
formulas in fp64.
"""
import json
import pathlib
import shutil

import torch
from transformers import LlamaConfig, LlamaForCausalLM

SEQUENCE, VOCABULARY, SEQUENCES = 13, 31, 4


class ExactRotary(torch.nn.Module):
    """Cosines and sines as LlamaRotaryEmbedding makes them, in fp64."""

    def __init__(self, head, theta):
        super().__init__()
        self.head, self.theta = head, theta

    def forward(self, x, position_ids):
        i = torch.arange(0, self.head, 2, dtype=torch.float64)
        angles = position_ids[:, :, None].double() * self.theta ** (-i / self.head)
        angles = torch.cat((angles, angles), dim=-1)
        return angles.cos().to(x.dtype), angles.sin().to(x.dtype)


class ExactNorm(torch.nn.Module):
    """LlamaRMSNorm in fp64."""

    def __init__(self, norm, epsilon):
        super().__init__()
        self.weight, self.epsilon = norm.weight, epsilon

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.epsilon))


def make_exact(model, theta, epsilon):
    model.model.rotary_emb = ExactRotary(model.config.hidden_size // model.config.num_attention_heads, theta)
    model.model.norm = ExactNorm(model.model.norm, epsilon)
    for layer in model.model.layers:
        layer.input_layernorm = ExactNorm(layer.input_layernorm, epsilon)
        layer.post_attention_layernorm = ExactNorm(layer.post_attention_layernorm, epsilon)


def make(folder, dtype, shard_size, theta, epsilon, tied):
    config = LlamaConfig(num_hidden_layers=2, hidden_size=24, num_attention_heads=6, num_key_value_heads=3,
                         intermediate_size=10, max_position_embeddings=SEQUENCE, vocab_size=VOCABULARY,
                         rms_norm_eps=epsilon, rope_theta=theta, tie_word_embeddings=tied, bos_token_id=30,
                         eos_token_id=30, attn_implementation="sdpa")
    assert config.rope_parameters["rope_theta"] == theta
    model = LlamaForCausalLM(config)
    with torch.no_grad():  # far from the symmetric beginning: every gain matters
        for name, p in model.named_parameters():
            p.copy_(torch.randn(p.shape) * 0.3 + (1 if "norm" in name else 0))
    model = model.to(dtype)
    if folder.exists():
        shutil.rmtree(folder)
    model.save_pretrained(folder, max_shard_size=shard_size)
    for extra in folder.glob("generation_config.json"):
        extra.unlink()
    model = model.double().eval()
    make_exact(model, theta, epsilon)
    tokens = torch.randint(0, VOCABULARY, (SEQUENCES, SEQUENCE + 1))
    with torch.no_grad():
        logits = model(tokens[:, :-1]).logits
        losses = torch.nn.functional.cross_entropy(logits.transpose(1, 2), tokens[:, 1:], reduction="none").mean(1)
    lines = [" ".join(map(str, ids)) + f" | {loss!r}" for ids, loss in zip(tokens.tolist(), losses.tolist())]
    lines.append("logits " + " ".join(repr(x) for x in logits[0, -1, :8].tolist()))
    (folder / "results.txt").write_text("\n".join(lines) + "\n")


def make_old(folder):
    """The keys that config.json had before 2025."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config["rope_theta"] = config.pop("rope_parameters")["rope_theta"]
    config["rope_scaling"] = None
    config["torch_dtype"] = config.pop("dtype")
    del config["head_dim"]
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def main():
    here = pathlib.Path(__file__).parent
    torch.manual_seed(20240418)
    make(here / "tied", torch.float32, "1TB", 10000.0, 1e-6, True)
    make(here / "untied", torch.bfloat16, "5KB", 500.0, 1e-5, False)
    make_old(here / "untied")


if __name__ == "__main__":
    main()
