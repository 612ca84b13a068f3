#!/usr/bin/env python3
"""Makes this folder's reference numbers with Hugging Face transformers' BertForPreTraining (CPU): a model with 6 heads of 24,
vocabulary 503 and sequence 61, in both forms of GELU. Weights, tokens, segments and what is masked come from integer
formulas that the test repeats exactly, so that only results are stored.

    python3 make.py        # needs torch, transformers

exact.txt, tanh.txt: a line "loss" with the batch's masked loss, sentence loss and their sum in fp64; then for every array of
Trireme's registry a line "NAME SUM PROJECTION SQUARES" about its gradient g of the sum in fp64: sum of g, sum of g·r with r
of the formula `noise`, sum of g²; then a line "logits" with the first 16 fp32 logits of each masked token of the first
sequence; then a line "pairs" with the fp32 scores of all pairs.
exact.f64, tanh.f64: every 29th element of each array's gradient, in order of the registry.

transformers' softmax is PyTorch's in the model's type ("eager" attention); nothing else of it leaves that type.
"""
import math
import pathlib

import torch
import transformers
from transformers import BertConfig, BertForPreTraining

LAYERS, HIDDEN, HEADS, FEED_FORWARD, SEQUENCE, VOCABULARY, BATCH, MASKED = 2, 144, 6, 100, 61, 503, 2, 9
HEAD = HIDDEN // HEADS


def arrays():
    """(name, shape) in the order of the parameter registry."""
    norm = lambda name: [(name + ".gain", (HIDDEN,)), (name + ".bias", (HIDDEN,))]
    yield "embedding.token", (VOCABULARY, HIDDEN)
    yield "embedding.position", (SEQUENCE, HIDDEN)
    yield "embedding.segment", (2, HIDDEN)
    for layer in range(LAYERS):
        prefix = f"layers.{layer}."
        yield from norm(prefix + "attention_norm")
        yield prefix + "attention.query", (HEADS, HEAD, HIDDEN)
        yield prefix + "attention.key_value", (2, HEADS, HEAD, HIDDEN)
        yield prefix + "attention.query_bias", (HEADS, HEAD)
        yield prefix + "attention.key_value_bias", (2, HEADS, HEAD)
        yield prefix + "attention.output", (HIDDEN, HEADS, HEAD)
        yield prefix + "attention.output_bias", (HIDDEN,)
        yield from norm(prefix + "feed_forward_norm")
        yield prefix + "feed_forward.up", (FEED_FORWARD, HIDDEN)
        yield prefix + "feed_forward.up_bias", (FEED_FORWARD,)
        yield prefix + "feed_forward.down", (HIDDEN, FEED_FORWARD)
        yield prefix + "feed_forward.down_bias", (HIDDEN,)
    yield from norm("final_norm")
    yield "masked_head.dense", (HIDDEN, HIDDEN)
    yield "masked_head.dense_bias", (HIDDEN,)
    yield from norm("masked_head.norm")
    yield "output.bias", (VOCABULARY,)
    yield "sentence_head.dense", (HIDDEN, HIDDEN)
    yield "sentence_head.dense_bias", (HIDDEN,)
    yield "sentence_head.output", (2, HIDDEN)
    yield "sentence_head.output_bias", (2,)


def norm_behind(layer):
    """The LayerNorm behind layer `layer` of BertForPreTraining; −1: that of the embeddings."""
    return "bert.embeddings.LayerNorm" if layer < 0 else f"bert.encoder.layer.{layer}.output.LayerNorm"


def names(name):
    """The tensors of BertForPreTraining that make up an array, one behind the other."""
    kind = ".bias" if name.endswith(("bias", ".bias")) else ".weight"
    stem = name.removesuffix(".gain").removesuffix(".bias").removesuffix("_bias")
    whole = {"embedding.token": "bert.embeddings.word_embeddings", "embedding.position": "bert.embeddings.position_embeddings",
             "embedding.segment": "bert.embeddings.token_type_embeddings", "final_norm": norm_behind(LAYERS - 1),
             "masked_head.dense": "cls.predictions.transform.dense", "masked_head.norm": "cls.predictions.transform.LayerNorm",
             "sentence_head.dense": "bert.pooler.dense", "sentence_head.output": "cls.seq_relationship"}
    if name == "output.bias":
        return ["cls.predictions.bias"]
    if stem in whole:
        return [whole[stem] + kind]
    _, layer, rest = stem.split(".", 2)
    if rest == "attention_norm":
        return [norm_behind(int(layer) - 1) + kind]
    parts = {"attention.query": ["attention.self.query"],
             "attention.key_value": ["attention.self.key", "attention.self.value"],
             "attention.output": ["attention.output.dense"], "feed_forward_norm": ["attention.output.LayerNorm"],
             "feed_forward.up": ["intermediate.dense"], "feed_forward.down": ["output.dense"]}
    return [f"bert.encoder.layer.{layer}.{part}{kind}" for part in parts[rest]]


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


def batch():
    """Token ids and segments [BATCH, SEQUENCE], labels (−100: not predicted) and kinds of pairs [BATCH]."""
    b = torch.arange(BATCH).reshape(-1, 1)
    s = torch.arange(SEQUENCE).reshape(1, -1)
    ids = (7919 + b * 104729 + s * 1299709 + s * s * (b + 31)) % VOCABULARY
    segments = (s >= 20 + 13 * b).long()
    labels = torch.full((BATCH, SEQUENCE), -100)
    for i in range(BATCH):
        for k in range(MASKED):
            at = 1 + i + 6 * k
            labels[i, at] = (ids[i, at] + 17 * k + 3) % VOCABULARY
    return ids, segments, labels, torch.arange(BATCH) % 2


def make_model(form):
    config = BertConfig(vocab_size=VOCABULARY, hidden_size=HIDDEN, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
                        intermediate_size=FEED_FORWARD, max_position_embeddings=SEQUENCE, type_vocab_size=2,
                        hidden_act={"exact": "gelu", "tanh": "gelu_new"}[form], layer_norm_eps=1e-12,
                        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, attn_implementation="eager")
    model = BertForPreTraining(config).double().eval()
    parameters = dict(model.named_parameters())
    used = set()
    with torch.no_grad():
        for number, (name, shape) in enumerate(arrays()):
            value = weight(number, name, shape)
            parts = [parameters[part] for part in names(name)]
            used.update(names(name))
            for part, piece in zip(parts, value.reshape(len(parts), -1)):
                part.copy_(piece.reshape(part.shape))
    assert used == set(parameters), used ^ set(parameters)
    return model


def gradient(model, name):
    parameters = dict(model.named_parameters())
    return torch.cat([parameters[part].grad.reshape(-1) for part in names(name)])


def make(folder, form):
    ids, segments, labels, kinds = batch()
    inputs = dict(input_ids=ids, token_type_ids=segments, attention_mask=torch.ones_like(ids))
    with torch.no_grad():
        single = make_model(form).float()(**inputs)
    out = (model := make_model(form))(**inputs)
    masked = torch.nn.functional.cross_entropy(out.prediction_logits.reshape(-1, VOCABULARY), labels.reshape(-1))
    pairs = torch.nn.functional.cross_entropy(out.seq_relationship_logits, kinds)
    loss = masked + pairs
    loss.backward()
    assert abs(model(**inputs, labels=labels, next_sentence_label=kinds).loss.item() - loss.item()) < 1e-12
    lines = [f"loss {masked.item()!r} {pairs.item()!r} {loss.item()!r}"]
    some = []
    for name, _ in arrays():
        g = gradient(model, name)
        lines.append(f"{name} {g.sum().item()!r} {(g * noise(len(g))).sum().item()!r} {(g * g).sum().item()!r}")
        some.append(g[::29])
    logits = single.prediction_logits[0][labels[0] >= 0][:, :16].reshape(-1)
    lines.append("logits " + " ".join(repr(x) for x in logits.tolist()))
    lines.append("pairs " + " ".join(repr(x) for x in single.seq_relationship_logits.reshape(-1).tolist()))
    (folder / f"{form}.txt").write_text("\n".join(lines) + "\n")
    torch.cat(some).numpy().astype("<f8").tofile(folder / f"{form}.f64")


if __name__ == "__main__":
    print(transformers.__version__)
    for form in ("exact", "tanh"):
        make(pathlib.Path(__file__).parent, form)
