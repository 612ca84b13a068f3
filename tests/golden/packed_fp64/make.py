#!/usr/bin/env python3
"""Makes this folder's reference numbers with Hugging Face transformers' LlamaForCausalLM (CPU): the model of
tests/golden/llama_fp64/make.py, untied, on two samples of packed documents. The first sample has documents of 20, 1 and 33
tokens and 7 tokens of padding, the second one document of 61 tokens. transformers gets position_ids that restart at each
document and a block-diagonal causal mask.

    python3 make.py        # needs torch, transformers

llama.txt, llama.f64: as those of tests/golden/llama_fp64, with every 97th element of each array's gradient. The loss is the
mean over the 115 tokens of documents.
"""
import importlib.util
import pathlib

import torch
import transformers

HERE = pathlib.Path(__file__).parent
specification = importlib.util.spec_from_file_location("fp64", HERE.parent / "llama_fp64" / "make.py")
fp64 = importlib.util.module_from_spec(specification)
specification.loader.exec_module(fp64)

LENGTHS = [[20, 1, 33], [61]]
STRIDE = 97


def token(b, s):
    return (7919 + b * 104729 + s * 1299709 + s * s * (b + 31)) % fp64.VOCABULARY


def batch():
    """Tokens, targets (-100: none), positions and numbers of documents; [BATCH, SEQUENCE]."""
    shape = (fp64.BATCH, fp64.SEQUENCE)
    ids, positions = torch.zeros(shape, dtype=torch.int64), torch.zeros(shape, dtype=torch.int64)
    targets = torch.full(shape, -100)
    documents = torch.arange(fp64.SEQUENCE).repeat(fp64.BATCH, 1) + 1000  # padding: each token alone
    for b, lengths in enumerate(LENGTHS):
        begin = 0
        for number, length in enumerate(lengths):
            for i in range(length):
                s = begin + i
                ids[b, s], positions[b, s], documents[b, s] = token(b, s), i, number
                targets[b, s] = token(b, s + 1 if i + 1 < length else s + 100)
            begin += length
    return ids, targets, positions, documents


def main():
    ids, targets, positions, documents = batch()
    sees = (documents[:, :, None] == documents[:, None, :]).tril()
    mask = torch.zeros(sees.shape, dtype=torch.float64).masked_fill(~sees, float("-inf"))[:, None]
    model = fp64.make_model(False)
    fp64.make_exact(model)
    out = model(ids, position_ids=positions, attention_mask=mask).logits
    loss = torch.nn.functional.cross_entropy(out.reshape(-1, fp64.VOCABULARY), targets.reshape(-1))
    loss.backward()
    with torch.no_grad():  # the mask is what it should be: each document alone
        total = 0.0
        for b, lengths in enumerate(LENGTHS):
            begin = 0
            for length in lengths:
                part = slice(begin, begin + length)
                alone = model(ids[b:b + 1, part]).logits[0]
                total += torch.nn.functional.cross_entropy(alone, targets[b, part], reduction="sum").item()
                begin += length
        assert abs(total / sum(map(sum, LENGTHS)) - loss.item()) < 1e-12 * loss.item()
    lines, some = [f"loss {loss.item()!r}"], []
    for name, _ in fp64.arrays(False):
        g = fp64.gradient(model, name)
        lines.append(f"{name} {g.sum().item()!r} {(g * fp64.noise(len(g))).sum().item()!r} {(g * g).sum().item()!r}")
        some.append(g[::STRIDE])
    (HERE / "llama.txt").write_text("\n".join(lines) + "\n")
    torch.cat(some).numpy().astype("<f8").tofile(HERE / "llama.f64")


if __name__ == "__main__":
    print("torch", torch.__version__, "transformers", transformers.__version__)
    main()
