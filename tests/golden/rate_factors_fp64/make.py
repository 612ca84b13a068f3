#!/usr/bin/env python3
"""Makes this folder's reference numbers with PyTorch (2.5 or later, fp64, CPU): losses and gradient norms of 8 steps on the small
GPT of ../gpt_fp64/make.py, whose arrays are in param_groups with learning rates of their own: `FACTORS` times that of the
step.

    python3 make.py        # needs torch; writes adamw.txt, nesterov.txt and adafactor.txt beside this file

adafactor: with rates 25 times as large, so that 1 / √step limits those of some groups; without weight decay.
"""
import importlib.util
import pathlib

import torch

HERE = pathlib.Path(__file__).parent
FACTORS = {"embedding.": 0.25, "layers.0.": 1.75, "layers.1.attention.": 0.5}
STEPS = 8


def load(folder):
    spec = importlib.util.spec_from_file_location(folder, HERE.parent / folder / "make.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


adafactor = load("adafactor_fp64")
gpt = adafactor.gpt


def run(make, times, decay):
    p = {name: gpt.weight(i, name, shape).reshape(adafactor.matrices(name, shape)).clone().requires_grad_()
         for i, (name, shape, _) in enumerate(gpt.arrays())}
    groups = [{"params": [p[name]], "weight_decay": decay if decays else 0.0,
               "factor": next((f for start, f in FACTORS.items() if name.startswith(start)), 1.0)}
              for name, _, decays in gpt.arrays()]
    assert {group["factor"] for group in groups} == {*FACTORS.values(), 1.0}
    optimizer = make(groups)
    for step in range(1, STEPS + 1):
        for group in optimizer.param_groups:
            group["lr"] = group["factor"] * times * gpt.learning_rate(step)
        optimizer.zero_grad()
        loss = gpt.loss_of({name: p[name].reshape(shape) for name, shape, _ in gpt.arrays()}, gpt.tokens(step))
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(list(p.values()), gpt.CLIP)
        optimizer.step()
        yield loss.item(), norm.item()


if __name__ == "__main__":
    torch.set_default_dtype(torch.float64)
    rules = {
        "adamw": (lambda g: torch.optim.AdamW(g, betas=(0.9, 0.95), eps=gpt.EPSILON), 1, gpt.DECAY),
        "nesterov": (lambda g: torch.optim.SGD(g, lr=1.0, momentum=0.9, nesterov=True), 0.5 / gpt.LEARNING_RATE, gpt.DECAY),
        "adafactor": (lambda g: torch.optim.Adafactor(g, eps=(gpt.EPSILON, 1e-3), d=1.0, beta2_decay=-0.8, foreach=False),
                      25, 0.0)}
    for name, how in rules.items():
        (HERE / f"{name}.txt").write_text("".join(f"{loss!r} {norm!r}\n" for loss, norm in run(*how)))
