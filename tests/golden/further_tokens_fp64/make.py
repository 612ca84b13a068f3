#!/usr/bin/env python3
"""Makes this folder's reference numbers with PyTorch (CPU, fp64): Qwen3 with 2 modules that predict the second and the third
token, and DeepSeek-V3 with one module, as DeepSeek-AI 2024, arXiv 2412.19437, section 2.2, eq. 21 to 25. The models, weights and
tokens are those of ../decoders_fp64/make.py; the layers of the modules are transformers' layers after the last one.

    python3 make.py      # needs torch, transformers

NAME.txt: a line "loss" with the losses of the next token and of the further tokens, each a sum over targets divided by the number
of targets of the next token that count (without every fifth of them, see `counts`); then the lines about gradients of
../decoders_fp64, here of loss[0] + WEIGHT · mean(loss[1:]).
NAME.f64: every 97th element of each array's gradient, in the order of the lines.
"""
import pathlib
import sys

import torch
import transformers

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "decoders_fp64"))
import make as decoders  # noqa: E402

WEIGHT = 0.7
MODULES = {"qwen3": 2, "deepseek_v3": 1}


class Module(torch.nn.Module):
    """M [norm(h) ; norm(e)], and a norm for the head. The two halves of M are arrays of their own."""

    def __init__(self, config):
        super().__init__()
        size = config.hidden_size
        for name in ("hidden_norm", "embedding_norm", "final_norm"):
            self.register_parameter(name, torch.nn.Parameter(torch.ones(size, dtype=torch.float64)))
        for name in ("hidden", "embedding"):
            self.register_parameter(name, torch.nn.Parameter(torch.zeros(size, size, dtype=torch.float64)))
        self.epsilon = config.rms_norm_eps

    def norm(self, x, gain):
        return gain * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.epsilon))

    def merge(self, h, e):
        whole = torch.cat((self.hidden, self.embedding), 1)  # M: D x 2 D
        return torch.cat((self.norm(h, self.hidden_norm), self.norm(e, self.embedding_norm)), -1) @ whole.T


def arrays(model, modules):
    """(name, its tensors, what makes a view of them in our layout), in the order that numbers them for `weight`."""
    layers = model.config.num_hidden_layers - len(modules)
    names = []
    for name, tensors, view in decoders.arrays(model):
        parts = name.split(".")
        if parts[0] == "layers" and int(parts[1]) >= layers:
            name = ".".join(["predict", str(int(parts[1]) - layers + 2)] + parts[2:])
        names.append((name, tensors, view))
    for number, module in enumerate(modules):
        of = f"predict.{number + 2}."
        names += [(of + name, [tensor], lambda t: t)
                  for name, tensor in [("merge.hidden_norm.gain", module.hidden_norm), ("merge.hidden", module.hidden),
                                       ("merge.embedding_norm.gain", module.embedding_norm),
                                       ("merge.embedding", module.embedding), ("final_norm.gain", module.final_norm)]]
    return names


def counts():
    """[BATCH, SEQUENCE] whether the target of a token counts."""
    i = torch.arange(decoders.BATCH * decoders.SEQUENCE).reshape(decoders.BATCH, -1)
    return i % 5 != 3


def run(layer, x, rotary):
    positions = torch.arange(x.shape[1])[None]
    out = layer(x, attention_mask=None, position_ids=positions, position_embeddings=rotary(x, positions))
    return out[0] if isinstance(out, tuple) else out


def losses(model, modules):
    ids, counted = decoders.tokens(), counts()
    inner, length = model.model, decoders.SEQUENCE
    layers = list(inner.layers)
    depth = len(layers) - len(modules)

    def loss(normed, distance):
        logits = model.lm_head(normed)
        each = torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1 + distance:].flatten(), reduction="none")
        return (each * counted[:, distance:].flatten()).sum() / counted.sum()

    h = inner.embed_tokens(ids[:, :length])
    for layer in layers[:depth]:
        h = run(layer, h, inner.rotary_emb)
    found = [loss(inner.norm(h), 0)]
    for k, (module, layer) in enumerate(zip(modules, layers[depth:]), 1):
        # Rows without a target are left out, as in the paper.
        h = run(layer, module.merge(h[:, :length - k], inner.embed_tokens(ids[:, k:length])), inner.rotary_emb)
        found.append(loss(module.norm(h, module.final_norm), k))
    return found


def make(folder, name):
    number = MODULES[name]
    kind, config, settings = decoders.MODELS[name]
    depth = settings.get("num_hidden_layers", decoders.LAYERS)
    decoders.MODELS[name] = (kind, config, dict(settings, num_hidden_layers=depth + number))
    model = decoders.make_exact(decoders.make_model(name))
    modules = [Module(model.config) for _ in range(number)]
    with torch.no_grad():
        for at, (array, parts, view) in enumerate(arrays(model, modules)):
            sizes = [view(part).numel() for part in parts]
            for part, piece in zip(parts, decoders.weight(at, array, sum(sizes), 1).split(sizes)):
                view(part).copy_(piece.reshape(view(part).shape))
    found = losses(model, modules)
    (found[0] + WEIGHT * sum(found[1:]) / number).backward()
    lines, some = ["loss " + " ".join(repr(x.item()) for x in found)], []
    for array, parts, view in arrays(model, modules):
        g = torch.cat([view(part.grad if part.requires_grad else torch.zeros_like(part)).reshape(-1) for part in parts])
        lines.append(f"{array} {g.sum().item()!r} {(g * decoders.noise(len(g))).sum().item()!r} {(g * g).sum().item()!r}")
        some.append(g[::decoders.STRIDE])
    (folder / f"{name}.txt").write_text("\n".join(lines) + "\n")
    torch.cat(some).numpy().astype("<f8").tofile(folder / f"{name}.f64")


if __name__ == "__main__":
    print(torch.__version__, transformers.__version__)
    for model_name in MODULES:
        make(pathlib.Path(__file__).parent, model_name)
