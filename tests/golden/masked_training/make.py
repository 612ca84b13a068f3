#!/usr/bin/env python3
"""Makes this folder's reference numbers with PyTorch and transformers in fp64: losses of 4 steps of SGD on the model of
../task_scores, where only some targets count (labels -100, as `ignore_index` of cross_entropy takes them).

    python3 make.py        # needs torch, transformers; writes losses.txt

Token i is (7 i² + 3 i) mod 700 and counts if 5 i mod 11 < 4, but none from 40 to 75 does. A step's batch is all 8 windows
of 16 tokens. Angles and RMSNorm are in fp64, as in ../task_scores/make.py.
"""
import pathlib

import torch
from transformers import LlamaForCausalLM

HERE = pathlib.Path(__file__).resolve().parent
SEQUENCE, WINDOWS, STEPS, RATE = 16, 8, 4, 0.02


def make_exact(model):
    source = (HERE.parent / "llama_hugging_face/make.py").read_text().split("\ndef make(")[0]
    names = {}
    exec(compile(source, "make.py", "exec"), names)
    names["make_exact"](model, 10000.0, 1e-5)


if __name__ == "__main__":
    model = LlamaForCausalLM.from_pretrained(HERE.parent / "task_scores/model").double()
    make_exact(model)
    tokens = torch.tensor([(7 * i * i + 3 * i) % 700 for i in range(SEQUENCE * WINDOWS + 1)])
    labels = torch.tensor([int(t) if 5 * i % 11 < 4 and not 40 <= i < 76 else -100 for i, t in enumerate(tokens)])
    inputs, targets = tokens[:-1].view(WINDOWS, SEQUENCE), labels[1:].reshape(-1)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        logits = model(inputs).logits
        loss = torch.nn.functional.cross_entropy(logits.view(-1, 700), targets, ignore_index=-100)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    (HERE / "losses.txt").write_text("".join(f"{loss!r}\n" for loss in losses))
