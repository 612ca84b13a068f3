#!/usr/bin/env python3
"""Makes this folder's reference numbers with Hugging Face transformers' LlamaForCausalLM (CPU): a model with 6 heads of 24,
3 heads of keys and values, vocabulary 503 and sequence 61, with embeddings tied and untied. Weights and tokens come from
integer formulas that the test repeats exactly, so that only results are stored.

    python3 make.py        # needs torch, transformers

tied.txt, untied.txt: a line "loss" with the mean loss of a batch in fp64; then for every array of Trireme's registry a line
"NAME SUM PROJECTION SQUARES" about its gradient g in fp64: sum of g, sum of g·r with r of the formula `noise`, sum of g²;
then a line "logits" with the first 16 fp32 logits behind the last 3 tokens of the first sequence.
tied.f64, untied.f64: every 29th element of each array's gradient, in order of the registry.

Whatever the model's type, transformers computes the angles of rotary positions, RMSNorm and the softmax of its "eager"
attention in fp32. For the fp64 numbers the first two are replaced by the same formulas in fp64, and attention is PyTorch's
scaled_dot_product_attention. The fp32 logits are of the model as it is.
"""
import math
import pathlib

import torch
import transformers
from transformers import LlamaConfig, LlamaForCausalLM

LAYERS, HIDDEN, HEADS, GROUPS, FEED_FORWARD, SEQUENCE, VOCABULARY, BATCH = 2, 144, 6, 3, 100, 61, 503, 2
THETA, EPSILON = 10000.0, 1e-6
HEAD = HIDDEN // HEADS


def arrays(tied):
    """(name, shape) in the order of the parameter registry."""
    yield "embedding.token", (VOCABULARY, HIDDEN)
    for layer in range(LAYERS):
        prefix = f"layers.{layer}."
        yield prefix + "attention_norm.gain", (HIDDEN,)
        yield prefix + "attention.query", (HEADS, HEAD, HIDDEN)
        yield prefix + "attention.key_value", (2, GROUPS, HEAD, HIDDEN)
        yield prefix + "attention.output", (HIDDEN, HEADS, HEAD)
        yield prefix + "feed_forward_norm.gain", (HIDDEN,)
        yield prefix + "feed_forward.gate_up", (2, FEED_FORWARD, HIDDEN)
        yield prefix + "feed_forward.down", (HIDDEN, FEED_FORWARD)
    yield "final_norm.gain", (HIDDEN,)
    if not tied:
        yield "output.weight", (VOCABULARY, HIDDEN)


def names(name):
    """The tensors of LlamaForCausalLM that make up an array, one behind the other."""
    if name == "embedding.token":
        return ["model.embed_tokens.weight"]
    if name == "final_norm.gain":
        return ["model.norm.weight"]
    if name == "output.weight":
        return ["lm_head.weight"]
    _, layer, rest = name.split(".", 2)
    parts = {"attention_norm.gain": ["input_layernorm"], "attention.query": ["self_attn.q_proj"],
             "attention.key_value": ["self_attn.k_proj", "self_attn.v_proj"],
             "attention.output": ["self_attn.o_proj"], "feed_forward_norm.gain": ["post_attention_layernorm"],
             "feed_forward.gate_up": ["mlp.gate_proj", "mlp.up_proj"], "feed_forward.down": ["mlp.down_proj"]}
    return [f"model.layers.{layer}.{part}.weight" for part in parts[rest]]


def weight(number, name, shape):
    """Multiplicative hash of (array number, element) to (-1/2, 1/2), times 0.4; gains are around 1."""
    i = torch.arange(math.prod(shape), dtype=torch.int64)
    hashed = ((i + 1) * 2654435761 + (number + 1) * 40503 * 65537) % 2**32
    value = (hashed.double() / 2**32 - 0.5) * 0.4
    return ((1 + value) if name.endswith("gain") else value).reshape(shape)


def noise(n):
    """Numbers in (-1/2, 1/2) that belong to the elements of an array."""
    i = torch.arange(n, dtype=torch.int64)
    return (((i + 7) * 2246822519) % 2**32).double() / 2**32 - 0.5


def tokens():
    """[BATCH, SEQUENCE + 1] token ids."""
    b = torch.arange(BATCH).reshape(-1, 1)
    s = torch.arange(SEQUENCE + 1).reshape(1, -1)
    return (7919 + b * 104729 + s * 1299709 + s * s * (b + 31)) % VOCABULARY


class ExactRotary(torch.nn.Module):
    """Cosines and sines as LlamaRotaryEmbedding makes them, in fp64."""

    def forward(self, x, position_ids):
        i = torch.arange(0, HEAD, 2, dtype=torch.float64)
        angles = position_ids[:, :, None].double() * THETA ** (-i / HEAD)
        angles = torch.cat((angles, angles), dim=-1)
        return angles.cos().to(x.dtype), angles.sin().to(x.dtype)


class ExactNorm(torch.nn.Module):
    """LlamaRMSNorm in fp64."""

    def __init__(self, norm):
        super().__init__()
        self.weight = norm.weight

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPSILON))


def make_exact(model):
    model.model.rotary_emb = ExactRotary()
    model.model.norm = ExactNorm(model.model.norm)
    for layer in model.model.layers:
        layer.input_layernorm = ExactNorm(layer.input_layernorm)
        layer.post_attention_layernorm = ExactNorm(layer.post_attention_layernorm)


def make_model(tied):
    settings = dict(vocab_size=VOCABULARY, hidden_size=HIDDEN, intermediate_size=FEED_FORWARD,
                    num_hidden_layers=LAYERS, num_attention_heads=HEADS, num_key_value_heads=GROUPS,
                    max_position_embeddings=SEQUENCE, rms_norm_eps=EPSILON, tie_word_embeddings=tied,
                    attention_bias=False, mlp_bias=False, attn_implementation="sdpa")
    try:
        config = LlamaConfig(rope_theta=THETA, **settings)
    except TypeError:
        config = LlamaConfig(**settings)
    model = LlamaForCausalLM(config).double().eval()
    parameters = dict(model.named_parameters())
    with torch.no_grad():
        for number, (name, shape) in enumerate(arrays(tied)):
            value = weight(number, name, shape)
            parts = [parameters[part] for part in names(name)]
            for part, piece in zip(parts, value.reshape(len(parts), -1)):
                part.copy_(piece.reshape(part.shape))
    return model


def gradient(model, name):
    parameters = dict(model.named_parameters())
    return torch.cat([parameters[part].grad.reshape(-1) for part in names(name)])


def make(folder, tied):
    ids = tokens()
    model = make_model(tied)
    with torch.no_grad():
        logits = model.float()(ids[:, :-1]).logits[0, -3:, :16].reshape(-1)
    model = make_model(tied)
    make_exact(model)
    out = model(ids[:, :-1]).logits
    loss = torch.nn.functional.cross_entropy(out.reshape(-1, VOCABULARY), ids[:, 1:].reshape(-1))
    loss.backward()
    lines = [f"loss {loss.item()!r}"]
    some = []
    for name, _ in arrays(tied):
        g = gradient(model, name)
        lines.append(f"{name} {g.sum().item()!r} {(g * noise(len(g))).sum().item()!r} {(g * g).sum().item()!r}")
        some.append(g[::29])
    lines.append("logits " + " ".join(repr(x) for x in logits.tolist()))
    stem = "tied" if tied else "untied"
    (folder / f"{stem}.txt").write_text("\n".join(lines) + "\n")
    torch.cat(some).numpy().astype("<f8").tofile(folder / f"{stem}.f64")


if __name__ == "__main__":
    print(transformers.__version__)
    for tied in (True, False):
        make(pathlib.Path(__file__).parent, tied)
