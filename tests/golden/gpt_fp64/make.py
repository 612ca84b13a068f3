#!/usr/bin/env python3
"""Makes this folder's reference numbers with PyTorch (fp64, CPU): the loss and all gradients of one batch, and the
losses of 20 AdamW steps of a small GPT. Weights and tokens come from integer formulas that the test repeats exactly, so
that only results are stored.

    python3 make.py        # needs torch; writes gradients.f64 and losses.txt beside this file
"""
import math
import pathlib

import torch
import torch.nn.functional as F

LAYERS, HIDDEN, HEADS, SEQUENCE, VOCABULARY, BATCH, STEPS = 2, 24, 3, 13, 61, 4, 20
HEAD = HIDDEN // HEADS
FEED_FORWARD = 4 * HIDDEN
LEARNING_RATE, MINIMUM, WARMUP, BETAS, EPSILON, DECAY, CLIP = 2e-2, 2e-3, 5, (0.9, 0.95), 1e-8, 0.1, 0.8


def arrays():
    """(name, shape, decays) in the order of the parameter registry."""
    yield "embedding.token", (VOCABULARY, HIDDEN), True
    yield "embedding.position", (SEQUENCE, HIDDEN), True
    for layer in range(LAYERS):
        prefix = f"layers.{layer}."
        yield prefix + "attention_norm.gain", (HIDDEN,), False
        yield prefix + "attention_norm.bias", (HIDDEN,), False
        yield prefix + "attention.query", (HEADS, HEAD, HIDDEN), True
        yield prefix + "attention.key_value", (2, HEADS, HEAD, HIDDEN), True
        yield prefix + "attention.query_bias", (HEADS, HEAD), False
        yield prefix + "attention.key_value_bias", (2, HEADS, HEAD), False
        yield prefix + "attention.output", (HIDDEN, HEADS, HEAD), True
        yield prefix + "attention.output_bias", (HIDDEN,), False
        yield prefix + "feed_forward_norm.gain", (HIDDEN,), False
        yield prefix + "feed_forward_norm.bias", (HIDDEN,), False
        yield prefix + "feed_forward.up", (FEED_FORWARD, HIDDEN), True
        yield prefix + "feed_forward.up_bias", (FEED_FORWARD,), False
        yield prefix + "feed_forward.down", (HIDDEN, FEED_FORWARD), True
        yield prefix + "feed_forward.down_bias", (HIDDEN,), False
    yield "final_norm.gain", (HIDDEN,), False
    yield "final_norm.bias", (HIDDEN,), False


def weight(number, name, shape):
    """Multiplicative hash of (array number, element) to (-1/2, 1/2), times 0.4; gains are around 1."""
    i = torch.arange(math.prod(shape), dtype=torch.int64)
    hashed = ((i + 1) * 2654435761 + (number + 1) * 40503 * 65537) % 2**32
    value = (hashed.double() / 2**32 - 0.5) * 0.4
    return ((1 + value) if name.endswith("gain") else value).reshape(shape)


def tokens(step):
    """[BATCH, SEQUENCE + 1] token ids of a step."""
    b = torch.arange(BATCH).reshape(-1, 1)
    s = torch.arange(SEQUENCE + 1).reshape(1, -1)
    return (step * 7919 + b * 104729 + s * 1299709 + s * s * (b + 31)) % VOCABULARY


def loss_of(w, ids):
    inputs, targets = ids[:, :-1], ids[:, 1:]
    x = w["embedding.token"][inputs] + w["embedding.position"]
    for layer in range(LAYERS):
        a = {name[len(f"layers.{layer}."):]: v for name, v in w.items() if name.startswith(f"layers.{layer}.")}
        y = F.layer_norm(x, (HIDDEN,), a["attention_norm.gain"], a["attention_norm.bias"], 1e-5)
        q = torch.einsum("bsd,hkd->bhsk", y, a["attention.query"]) + a["attention.query_bias"][:, None, :]
        kv = torch.einsum("bsd,chkd->cbhsk", y, a["attention.key_value"])
        kv = kv + a["attention.key_value_bias"][:, None, :, None, :]
        o = F.scaled_dot_product_attention(q, kv[0], kv[1], is_causal=True)
        x = x + torch.einsum("bhsk,dhk->bsd", o, a["attention.output"]) + a["attention.output_bias"]
        y = F.layer_norm(x, (HIDDEN,), a["feed_forward_norm.gain"], a["feed_forward_norm.bias"], 1e-5)
        h = F.gelu(y @ a["feed_forward.up"].T + a["feed_forward.up_bias"], approximate="tanh")
        x = x + h @ a["feed_forward.down"].T + a["feed_forward.down_bias"]
    x = F.layer_norm(x, (HIDDEN,), w["final_norm.gain"], w["final_norm.bias"], 1e-5)
    logits = x @ w["embedding.token"].T
    return F.cross_entropy(logits.reshape(-1, VOCABULARY), targets.reshape(-1))


def learning_rate(step):
    if step <= WARMUP:
        return LEARNING_RATE * step / WARMUP
    progress = (step - WARMUP) / (STEPS - WARMUP)
    return MINIMUM + (LEARNING_RATE - MINIMUM) * 0.5 * (1 + math.cos(math.pi * progress))


def main():
    here = pathlib.Path(__file__).parent
    w = {name: weight(i, name, shape).requires_grad_() for i, (name, shape, _) in enumerate(arrays())}
    decays = [w[name] for name, _, decay in arrays() if decay]
    others = [w[name] for name, _, decay in arrays() if not decay]
    optimizer = torch.optim.AdamW([{"params": decays, "weight_decay": DECAY}, {"params": others, "weight_decay": 0.0}],
                                  lr=LEARNING_RATE, betas=BETAS, eps=EPSILON)
    losses = []
    for step in range(1, STEPS + 1):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step)
        optimizer.zero_grad()
        loss = loss_of(w, tokens(step))
        loss.backward()
        if step == 1:
            flat = torch.cat([w[name].grad.reshape(-1) for name, _, _ in arrays()])
            flat.numpy().astype("<f8").tofile(here / "gradients.f64")
        norm = torch.nn.utils.clip_grad_norm_(list(w.values()), CLIP)
        losses.append((loss.item(), norm.item()))
        optimizer.step()
    (here / "losses.txt").write_text("".join(f"{loss!r} {norm!r}\n" for loss, norm in losses))


if __name__ == "__main__":
    torch.set_default_dtype(torch.float64)
    main()
