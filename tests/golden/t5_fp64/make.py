#!/usr/bin/env python3
"""Makes this folder's reference numbers with Hugging Face transformers' T5ForConditionalGeneration (CPU, fp64): models with 2
layers in the encoder and 3 in the decoder, hidden 20, 4 heads of 7, feed-forward 30, vocabulary 53, 8 buckets of distances up to
12, sources of 23 tokens and targets of 14. Version 1.0 has ReLU, tied embeddings and scaled logits; version 1.1 has a gated
GELU, an output matrix of its own and logits that are not scaled.

Weights and tokens come from integer formulas that the test repeats exactly, so that only results are stored.

    python3 make.py      # needs torch, transformers

NAME.txt: a line "loss" with the mean loss of a batch; then for every array of Trireme's model a line "NAME SUM PROJECTION
SQUARES" about its gradient g: sum of g, sum of g·r with r of the formula `noise`, sum of g².
NAME.f64: every 11th element of each array's gradient, in the order of the lines.

Whatever the model's type, transformers computes the variance of a norm in fp32: here it is fp64. The class of a distance is
computed in fp32, as Trireme does. transformers 5 ties lm_head.weight even with "tie_word_embeddings": false, unless a file has
other values for it: version 1.1 gets a matrix of its own here.
"""
import pathlib
import sys

import torch
import transformers
from transformers import T5Config, T5ForConditionalGeneration

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "decoders_fp64"))
from make import noise, weight  # noqa: E402

ENCODER, DECODER, HIDDEN, HEADS, HEAD, FEED_FORWARD, VOCABULARY = 2, 3, 20, 4, 7, 30, 53
SOURCE, TARGET, BATCH, STRIDE = 23, 14, 3, 11
MODELS = {"v1_0": dict(feed_forward_proj="relu", tie_word_embeddings=True),
          "v1_1": dict(feed_forward_proj="gated-gelu", tie_word_embeddings=False)}


def layer(theirs, ours, decoder):
    """(array, its tensors) of a layer."""
    parts = [("SelfAttention", "attention")] + ([("EncDecAttention", "cross_attention")] if decoder else [])
    names = []
    for number, (kind, name) in enumerate(parts):
        of = f"{theirs}.layer.{number}"
        names += [(f"{ours}.{name}_norm.gain", [f"{of}.layer_norm.weight"]),
                  (f"{ours}.{name}.query", [f"{of}.{kind}.q.weight"]),
                  (f"{ours}.{name}.key_value", [f"{of}.{kind}.k.weight", f"{of}.{kind}.v.weight"]),
                  (f"{ours}.{name}.output", [f"{of}.{kind}.o.weight"])]
    of = f"{theirs}.layer.{len(parts)}"
    return names + [(f"{ours}.feed_forward_norm.gain", [f"{of}.layer_norm.weight"]),
                    (f"{ours}.feed_forward.up", [f"{of}.DenseReluDense.wi.weight"]),
                    (f"{ours}.feed_forward.gate_up",
                     [f"{of}.DenseReluDense.wi_0.weight", f"{of}.DenseReluDense.wi_1.weight"]),
                    (f"{ours}.feed_forward.down", [f"{of}.DenseReluDense.wo.weight"])]


def arrays(model):
    """(name, its tensors) in a fixed order, which numbers the arrays for `weight`."""
    tensors = dict(model.named_parameters())
    bias = "block.0.layer.0.SelfAttention.relative_attention_bias.weight"
    names = [("embedding.token", ["shared.weight"]), ("encoder.relative_bias", [f"encoder.{bias}"]),
             ("relative_bias", [f"decoder.{bias}"])]
    for i in range(ENCODER):
        names += layer(f"encoder.block.{i}", f"encoder.layers.{i}", False)
    names.append((f"encoder.layers.{ENCODER - 1}.final_norm.gain", ["encoder.final_layer_norm.weight"]))
    for i in range(DECODER):
        names += layer(f"decoder.block.{i}", f"layers.{i}", True)
    names += [("final_norm.gain", ["decoder.final_layer_norm.weight"]), ("output.weight", ["lm_head.weight"])]
    found = [(ours, [tensors[t] for t in theirs]) for ours, theirs in names if theirs[0] in tensors]
    assert sum(part.numel() for _, parts in found for part in parts) == sum(p.numel() for p in model.parameters())
    return found


def ids(length, factor):
    """[BATCH, length] token ids."""
    b = torch.arange(BATCH).reshape(-1, 1)
    s = torch.arange(length).reshape(1, -1)
    return (7919 + b * 104729 + s * 1299709 + s * s * (b + factor)) % VOCABULARY


class ExactNorm(torch.nn.Module):
    """T5LayerNorm, an RMSNorm, in the type of its input."""

    def __init__(self, norm):
        super().__init__()
        self.weight, self.epsilon = norm.weight, norm.variance_epsilon

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.epsilon))


def make_exact(model):
    """Replaces what computes in fp32 whatever the type of the model, which is then an fp64 one."""
    model = model.double().eval()
    for module in list(model.modules()):
        for name, child in module.named_children():
            if type(child).__name__ == "T5LayerNorm":
                setattr(module, name, ExactNorm(child))
    return model


def make_model(settings):
    config = T5Config(vocab_size=VOCABULARY, d_model=HIDDEN, d_kv=HEAD, d_ff=FEED_FORWARD, num_layers=ENCODER,
                      num_decoder_layers=DECODER, num_heads=HEADS, relative_attention_num_buckets=8,
                      relative_attention_max_distance=12, dropout_rate=0.0, attn_implementation="eager", **settings)
    model = T5ForConditionalGeneration(config)
    if not settings["tie_word_embeddings"]:
        model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone())
    assert model.config.scale_decoder_outputs == settings["tie_word_embeddings"]
    return make_exact(model)


def make(folder, name):
    model = make_model(MODELS[name])
    with torch.no_grad():
        for number, (array, parts) in enumerate(arrays(model)):
            sizes = [part.numel() for part in parts]
            for part, piece in zip(parts, weight(number, array, sum(sizes), 1).split(sizes)):
                part.copy_(piece.reshape(part.shape))
    source, targets = ids(SOURCE, 31), ids(TARGET, 17)
    inputs = torch.cat((torch.zeros(BATCH, 1, dtype=torch.int64), targets[:, :-1]), 1)
    logits = model(input_ids=source, decoder_input_ids=inputs).logits
    assert logits.dtype == torch.float64
    loss = torch.nn.functional.cross_entropy(logits.reshape(-1, VOCABULARY), targets.reshape(-1))
    loss.backward()
    lines = [f"loss {loss.item()!r}"]
    some = []
    for array, parts in arrays(model):
        g = torch.cat([part.grad.reshape(-1) for part in parts])
        lines.append(f"{array} {g.sum().item()!r} {(g * noise(len(g))).sum().item()!r} {(g * g).sum().item()!r}")
        some.append(g[::STRIDE])
    (folder / f"{name}.txt").write_text("\n".join(lines) + "\n")
    torch.cat(some).numpy().astype("<f8").tofile(folder / f"{name}.f64")


if __name__ == "__main__":
    print(transformers.__version__)
    for model_name in MODELS:
        make(pathlib.Path(__file__).parent, model_name)
