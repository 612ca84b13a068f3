"""What PyTorch reaches on this machine, for device_report.py: a JSON task in, JSON lines out, one per measurement.

    device_torch.py '{"what": "products", "device": "cuda", "shapes": [[4096, 2304, 2304]]}'

Matrix products are timed as forward (y = x w^T), gradient of the input and gradient of the weight, attention as
scaled_dot_product_attention forward and backward, both in bf16 on normal random numbers. Rates are TFLOP/s; causal attention
counts the half of the square that the mask allows, two products forward and four backward, as `trireme bench` does.
"""
import json
import sys
import time


def seconds_of(torch, device, call):
    """The best of 5 means of as many calls as take about 20 ms."""
    def wait():
        if device == "cuda":
            torch.cuda.synchronize()

    def timed(calls):
        wait()
        begin = time.perf_counter()
        for _ in range(calls):
            call()
        wait()
        return (time.perf_counter() - begin) / calls

    timed(2)
    calls = max(1, int(0.02 / max(timed(1), 1e-6)))
    return min(timed(calls) for _ in range(5))


def products(torch, task):
    device = task["device"]
    for tokens, outputs, inputs in task["shapes"]:
        x, w, y = (torch.randn(rows, columns, device=device, dtype=torch.bfloat16)
                   for rows, columns in ((tokens, inputs), (outputs, inputs), (tokens, outputs)))
        passes = {"forward": lambda: x @ w.T, "backward_input": lambda: y @ w, "backward_weight": lambda: y.T @ x}
        flops = 2 * tokens * outputs * inputs
        yield {"shape": [tokens, outputs, inputs],
               **{name: flops / seconds_of(torch, device, call) / 1e12 for name, call in passes.items()}}


def attention(torch, task):
    device = task["device"]
    for batch, heads, sequence, size in task["shapes"]:
        q, k, v, gradient = (torch.randn(batch, heads, sequence, size, device=device, dtype=torch.bfloat16,
                                         requires_grad=n < 3) for n in range(4))
        attend = torch.nn.functional.scaled_dot_product_attention
        o = attend(q, k, v, is_causal=True)
        forward = seconds_of(torch, device, lambda: attend(q, k, v, is_causal=True))
        backward = seconds_of(torch, device, lambda: torch.autograd.grad(o, (q, k, v), gradient, retain_graph=True))
        product = batch * heads * sequence * (sequence + 1) * size  # 2 S K FLOPs for (S + 1) / 2 keys on average
        yield {"shape": [batch, heads, sequence, size], "forward": 2 * product / forward / 1e12,
               "backward": 4 * product / backward / 1e12}


def main():
    import torch
    task = json.loads(sys.argv[1])
    for line in {"products": products, "attention": attention}[task["what"]](torch, task):
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
