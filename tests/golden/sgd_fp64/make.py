#!/usr/bin/env python3
"""Makes this folder's reference numbers with PyTorch (fp64, CPU): losses and gradient norms of 20 steps of
torch.optim.SGD on the small GPT of ../gpt_fp64/make.py, for each form of the rule.

    python3 make.py        # needs torch; writes plain.txt, momentum.txt and nesterov.txt beside this file
"""
import importlib.util
import pathlib

import torch

HERE = pathlib.Path(__file__).parent
spec = importlib.util.spec_from_file_location("gpt", HERE.parent / "gpt_fp64" / "make.py")
gpt = importlib.util.module_from_spec(spec)
spec.loader.exec_module(gpt)

LEARNING_RATE = 0.5  # times that of gpt.learning_rate over its peak


def run(momentum, nesterov):
    w = {name: gpt.weight(i, name, shape).requires_grad_() for i, (name, shape, _) in enumerate(gpt.arrays())}
    decays = [w[name] for name, _, decay in gpt.arrays() if decay]
    others = [w[name] for name, _, decay in gpt.arrays() if not decay]
    optimizer = torch.optim.SGD([{"params": decays, "weight_decay": gpt.DECAY}, {"params": others}],
                                lr=LEARNING_RATE, momentum=momentum, nesterov=nesterov)
    for step in range(1, gpt.STEPS + 1):
        for group in optimizer.param_groups:
            group["lr"] = gpt.learning_rate(step) / gpt.LEARNING_RATE * LEARNING_RATE
        optimizer.zero_grad()
        loss = gpt.loss_of(w, gpt.tokens(step))
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(list(w.values()), gpt.CLIP)
        optimizer.step()
        yield loss.item(), norm.item()


if __name__ == "__main__":
    torch.set_default_dtype(torch.float64)
    for form, momentum, nesterov in ("plain", 0.0, False), ("momentum", 0.9, False), ("nesterov", 0.9, True):
        (HERE / f"{form}.txt").write_text("".join(f"{loss!r} {norm!r}\n" for loss, norm in run(momentum, nesterov)))
