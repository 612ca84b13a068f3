#!/usr/bin/env python3
"""Tests and measures an unpacked bundle on this machine: is it right, and how fast?

    python3 tests/bench/device_report.py -o report [--seconds 540] [--only STEP,...] [--again STEP,...]

Runs what docs/ lists as not tested on devices, in order of value, each step with a time limit: 25 minutes in all, and the
first 8 minutes hold the comparisons with a host's losses, `trireme bench` and training of GPT 1.7B and 124M, and the tests of
the kernels. Results are in report/results.json and report/report.md, which are complete after each step. Stopped or killed,
the same command continues; --seconds stops before the first step that might take longer. A step whose needs are absent (a
second device, PyTorch, compute-sanitizer) says so and does not fail. Ends with 1 if a step failed or ran out of time, with 75
if steps are left.

A bundle for hosts runs the same steps with small models. Needs Python 3.9, nothing else.
"""
import argparse
import json
import os
import signal
import sys
import time
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import device_page  # noqa: E402
from device_job import ROOT, Absent, Failed, Job  # noqa: E402
from device_steps import STEPS  # noqa: E402
from timed_process import TimeLimit  # noqa: E402

LEFT = 75
ATTEMPTS = 2  # a step in which this program was killed so many times is given up


class Results:
    """report/results.json, replaced as a whole after each change."""

    def __init__(self, out, bundle):
        self.path = out / "results.json"
        self.data = {"bundle": bundle, "steps": {}, "begun": {}}
        if self.path.exists():
            self.data = json.loads(self.path.read_text())
            if self.data["bundle"] != bundle:
                sys.exit(f"device_report: {out} has the results of another bundle; give another folder with -o")

    def save(self):
        part = self.path.with_suffix(".part")
        part.write_text(json.dumps(self.data, indent=1) + "\n")
        part.replace(self.path)
        page = self.path.with_name("report.md")
        part.write_text(device_page.page(self.data, STEPS))
        part.replace(page)

    def begin(self, name):
        """Whether the step may run: it has not brought this program down before."""
        count = self.data["begun"].get(name, 0)
        if count >= ATTEMPTS:
            self.end(name, "failed", 0, {}, f"this program was killed in it {count} times")
            return False
        self.data["begun"][name] = count + 1
        self.save()
        return True

    def end(self, name, status, seconds, figures, message):
        self.data["steps"][name] = {"status": status, "seconds": round(seconds, 1), "figures": figures, "message": message}
        self.data["begun"].pop(name, None)
        self.save()

    def forget(self, name):
        """A step that ran out of time continues with the tests that are left; others begin anew."""
        before = self.data["steps"].pop(name, {"status": ""})
        if before["status"] != "out of time":
            (self.path.parent / "work" / f"{name}.json").unlink(missing_ok=True)
        self.data["begun"].pop(name, None)


def run_step(results, out, tiny, name, limit, step):
    begin = time.monotonic()
    job = Job(out, results.data["bundle"], tiny, name, limit)
    status, message = "done", ""
    try:
        step(job)
    except Absent as absent:
        status, message = "absent", str(absent)
    except Failed as failed:
        status, message = "failed", str(failed)
    except TimeLimit as limit_reached:
        status, message = "out of time", str(limit_reached)
    except (SystemExit, KeyboardInterrupt):  # stopped on request, which is no defect of the step
        results.data["begun"].pop(name)
        results.save()
        raise
    except Exception:  # noqa: BLE001 - a defect of one step does not end the others
        status, message = "failed", traceback.format_exc()[-800:]
    results.end(name, status, time.monotonic() - begin, job.figures, message)
    said = message if status == "failed" else message[:120]
    print(f"{name:<22} {status:<12} {time.monotonic() - begin:6.1f} s  {said}", flush=True)


def chosen_steps(options, parser):
    names = [name for name, _, _ in STEPS]
    for name in [*(options.only or []), *options.again]:
        if name not in names:
            parser.error(f"{name}: no such step; the steps are {', '.join(names)}")
    return [step for step in STEPS if not options.only or step[0] in options.only]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)

    def names(text):
        return text.split(",")

    parser.add_argument("-o", "--output", type=Path, required=True, help="folder for the results")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="time for this call; the next call continues")
    parser.add_argument("--only", type=names, metavar="STEPS", help="steps to run, separated by commas")
    parser.add_argument("--again", type=names, default=[], metavar="STEPS", help="finished steps to run again")
    parser.add_argument("--tiny", action="store_true", help="small models, as with a bundle for hosts")
    options = parser.parse_args()
    description = ROOT / "bundle.json"
    if not description.exists():
        sys.exit(f"device_report: {description} is missing; run the script of an unpacked bundle (tools/bundle)")
    bundle = json.loads(description.read_text())
    end = time.monotonic() + options.seconds
    steps = chosen_steps(options, parser)
    out = options.output.resolve()
    out.mkdir(parents=True, exist_ok=True)
    results = Results(out, bundle)
    for name in options.again:
        results.forget(name)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    left = []
    for name, limit, step in steps:
        if name in results.data["steps"]:
            continue
        if time.monotonic() + limit > end:
            left.append(name)
        elif results.begin(name):
            run_step(results, out, options.tiny or bundle["device"] == "host", name, limit, step)
    print(f"results: {out}/report.md" + (f"; left: {', '.join(left)}" if left else ""))
    statuses = [results.data["steps"][name]["status"] for name, _, _ in steps if name in results.data["steps"]]
    return LEFT if left else int("failed" in statuses or "out of time" in statuses)


if __name__ == "__main__":
    os.environ.setdefault("PYTHONDONTWRITEBYTECODE", "1")
    sys.dont_write_bytecode = True
    sys.exit(main())
