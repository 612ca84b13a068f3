#!/usr/bin/env python3
"""Makes this folder's reference numbers with PyTorch (2.5 or later, fp64, CPU): losses and gradient norms of
torch.optim.Adafactor on the small GPT of ../gpt_fp64/make.py. Each array is a parameter of its matrices [..., rows,
columns], or if it has none, a vector.

    python3 make.py        # needs torch; writes given.txt and relative.txt beside this file

given: 20 steps with the learning rates of gpt.learning_rate. relative: 8 steps with rates 25 times as large, so that 1 /
√step limits them from step 5 on; without weight decay. Steps as large as the weights amplify roundings, about tenfold each.
"""
import importlib.util
import pathlib

import torch

HERE = pathlib.Path(__file__).parent
spec = importlib.util.spec_from_file_location("gpt", HERE.parent / "gpt_fp64" / "make.py")
gpt = importlib.util.module_from_spec(spec)
spec.loader.exec_module(gpt)


def matrices(name, shape):
    """Shape of the parameter of an array."""
    if name.endswith("attention.query"):
        return (-1, shape[-1])
    if name.endswith("attention.key_value"):
        return (2, -1, shape[-1])
    if name.endswith("attention.output"):
        return (shape[0], -1)
    return shape if len(shape) == 2 and not name.endswith("bias") else (-1,)


def run(times, decay, steps):
    p = {name: gpt.weight(i, name, shape).reshape(matrices(name, shape)).clone().requires_grad_()
         for i, (name, shape, _) in enumerate(gpt.arrays())}
    decays = [p[name] for name, _, decays in gpt.arrays() if decays]
    others = [p[name] for name, _, decays in gpt.arrays() if not decays]
    optimizer = torch.optim.Adafactor([{"params": decays, "weight_decay": decay}, {"params": others}],
                                      eps=(gpt.EPSILON, 1e-3), d=1.0, beta2_decay=-0.8, weight_decay=0.0, foreach=False)
    for step in range(1, steps + 1):
        for group in optimizer.param_groups:
            group["lr"] = times * gpt.learning_rate(step)
        optimizer.zero_grad()
        loss = gpt.loss_of({name: p[name].reshape(shape) for name, shape, _ in gpt.arrays()}, gpt.tokens(step))
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(list(p.values()), gpt.CLIP)
        optimizer.step()
        yield loss.item(), norm.item()


if __name__ == "__main__":
    torch.set_default_dtype(torch.float64)
    for form, *how in ("given", 1, gpt.DECAY, gpt.STEPS), ("relative", 25, 0.0, 8):
        (HERE / f"{form}.txt").write_text("".join(f"{loss!r} {norm!r}\n" for loss, norm in run(*how)))
