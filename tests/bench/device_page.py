"""The page of device_report.py: results as Markdown."""


def number(value, digits=4):
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    return f"{value:.{digits}g}" if abs(value) < 10000 else f"{value:,.0f}"


def table(header, rows):
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return lines + ["| " + " | ".join(number(cell).replace("|", "\\|").replace("\n", " ") for cell in row) + " |" for row in rows]


def figures_of(data, name):
    return data["steps"].get(name, {}).get("figures", {})


def right(data):
    """Comparisons and tests so far."""
    rows = [("agreement with the host: " + entry["model"] + ", " + entry["precision"],
             "yes" if entry["ok"] else "NO", entry["loss"], entry["loss_tolerance"], entry["gradient_norm"],
             entry["gradient_norm_tolerance"])
            for step in ("wide_runs", "narrow_runs", "family_runs") for entry in figures_of(data, step).get("runs", [])]
    lines = table(["run", "agrees", "largest difference of losses", "tolerance", "of gradient norms", "tolerance"],
                  rows) if rows else []
    tests = [(name.removeprefix("test_"), *(found["figures"].get(key, 0) for key in ("tests", "passed", "failed", "skipped")))
             for name, found in data["steps"].items() if name.startswith("test_") and found["status"] != "absent"]
    return lines + [""] + (table(["tests of", "all", "passed", "failed", "skipped"], tests) if tests else [])


TRAINING = [("train_1_7b", "GPT 1.7B"), ("fp8_1_7b", "GPT 1.7B, fp8"), ("pytorch_1_7b", "GPT 1.7B, PyTorch eager"),
            ("train_124m", "GPT-2 124M"), ("pytorch_124m_compiled", "GPT-2 124M, PyTorch compiled"),
            ("train_experts", "four layers of Qwen3-30B-A3B"), ("train_t5", "T5 1.1 large")]


def fast(data):
    rows = []
    for step, title in TRAINING:
        f = figures_of(data, step)
        if "tokens_per_second" in f:
            mfu = f"{100 * f['mfu']:.1f} %" if "mfu" in f else ""
            rows.append((title, f["tokens_per_second"], f["step_seconds"], mfu, f.get("measured_peak_tflops", ""),
                         f.get("planned_mib", ""), f.get("used_mib") or f.get("mib", "")))
    return table(["training", "tokens/s", "seconds per step", "MFU of the measured peak", "measured peak, TFLOP/s",
                  "planned MiB", "used MiB"], rows) if rows else []


def products(data):
    ours = figures_of(data, "bench_1_7b").get("matmul", {})
    theirs = figures_of(data, "torch_products").get("products", {})
    rows = []
    for name, found in ours.items():
        product, _, kind = name.rpartition(".")
        beside = theirs.get(product, {}).get(kind)
        if "rate" in found:
            rows.append((name, found["rate"] / 1e3, f"{100 * found['share']:.1f} %", beside if beside else "",
                         found["rate"] / 1e3 / beside if beside else ""))
    return table(["product of GPT 1.7B", "TFLOP/s", "share of peak", "PyTorch, TFLOP/s", "ratio"], rows) if rows else []


def kernels(data):
    rows = [(name, 1e6 * k["seconds"], k["rate"], f"{100 * k['share']:.1f} %", k["calls"])
            for name, k in figures_of(data, "bench_1_7b").get("kernels", {}).items() if "share" in k]
    return table(["kernel of GPT 1.7B", "µs", "GB/s or GFLOP/s", "share of attainable", "calls per step"],
                 rows) if rows else []


def attention(data):
    f = figures_of(data, "attention_rates")
    theirs = f.get("pytorch_rates", [{}] * len(f.get("trireme", [])))
    rows = [("×".join(map(str, ours["shape"])), ours["forward"], other.get("forward", ""), ours["backward"],
             other.get("backward", "")) for ours, other in zip(f.get("trireme", []), theirs)]
    return table(["attention: batch × heads × sequence × head size", "forward, TFLOP/s", "PyTorch", "backward", "PyTorch"],
                 rows) if rows else []


def plain(figures):
    """Figures that no table has, as `name: value` lines."""
    shown = {"runs", "tests", "matmul", "kernels", "trireme", "pytorch_rates", "products", "losses", "failures"}
    lines = []
    for key, value in figures.items():
        if key in shown and not isinstance(value, (int, float, str)):
            continue
        if isinstance(value, dict):
            value = ", ".join(f"{k} {number(v)}" for k, v in value.items())
        lines.append(f"  - {key}: {number(value)}")
    return lines


def page(data, steps):
    bundle = data["bundle"]
    lines = ["# Device report", "", f"Trireme {bundle['version']} for {bundle['device']}, "
             f"compiled for {bundle['architecture'] or 'x86-64'} processors.", ""]
    rows = []
    for name, limit, step in steps:
        found = data["steps"].get(name)
        status = found["status"] if found else ("begun" if name in data["begun"] else "not run yet")
        rows.append((name, status, found["seconds"] if found else "", limit, (step.__doc__ or "").splitlines()[0],
                     found["message"][:200] if found else ""))
    lines += table(["step", "status", "seconds", "limit", "what it does", "message"], rows)
    for title, part in (("Is it right?", right), ("How fast?", fast), ("Matrix products", products), ("Kernels", kernels),
                        ("Attention", attention)):
        found = part(data)
        if any(found):
            lines += ["", f"## {title}", "", *found]
    lines += ["", "## All figures", ""]
    for name, found in data["steps"].items():
        lines += [f"- {name}", *plain(found["figures"])]
    return "\n".join(lines) + "\n"
