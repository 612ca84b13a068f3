#!/usr/bin/env python3
"""What a Kokkos tool sees of a run: libtrireme-trace.so is loaded into two ranks of a pipeline, and its files are read.

    test_trace.py --bin BUILD/bin --tool libtrireme-trace.so --mpiexec mpiexec
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import unittest
from collections import Counter
from pathlib import Path

SOURCE = Path(__file__).parents[2]
arguments = None

MICRO_BATCHES = 4
OF_BOTH = {"begin_step": 1, "forward": MICRO_BATCHES, "backward": MICRO_BATCHES, "read_samples": MICRO_BATCHES,
           "take_message": MICRO_BATCHES, "reduce_gradients": 1, "reduce_tied": 1, "gradient_norm": 1,
           "optimizer_step": 1, "finish_sends": 1}
OF_RANK = [{"send_activation": MICRO_BATCHES, "receive_gradient": MICRO_BATCHES},
           {"receive_activation": MICRO_BATCHES, "send_gradient": MICRO_BATCHES}]
INSIDE = {"read_samples": "forward", "reduce_layer": "backward"}  # region: the one around it


def read(path):
    """The events of a trace, whose last bracket is missing by intent."""
    return json.loads(path.read_text().rstrip().rstrip(",") + "]")


def spans(events):
    """(category, name, names of the regions around it, begin, end) of every pair of events, by threads."""
    stacks, found = {}, []
    for event in events:
        if event["ph"] == "M":
            continue
        stack = stacks.setdefault(event["tid"], [])
        if event["ph"] == "B":
            stack.append(event)
            continue
        begin = stack.pop()  # an end without a beginning is an IndexError
        around = tuple(outer["name"] for outer in stack if outer["cat"] == "region")
        assert event["ts"] >= begin["ts"], begin
        found.append((begin["cat"], begin["name"], around, begin["ts"], event["ts"]))
    assert not any(stacks.values()), f"without an end: {stacks}"
    return found


def run_program(folder, *words, **environment):
    names = ("KOKKOS_TOOLS_LIBS", "KOKKOS_PROFILE_LIBRARY", "TRIREME_TRACE", "TRIREME_TRACE_STEPS")
    clean = {name: value for name, value in os.environ.items() if name not in names}
    clean["PATH"] = f"{arguments.bin}:{clean['PATH']}"
    done = subprocess.run([str(word) for word in words], cwd=folder, env=clean | environment, capture_output=True,
                          text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def train(folder, directory, tool=True, **environment):
    if tool:  # Kokkos before 3.7 knows the second name only, newer ones take both where they are equal
        environment |= {"KOKKOS_TOOLS_LIBS": arguments.tool, "KOKKOS_PROFILE_LIBRARY": arguments.tool}
    run_program(folder, arguments.mpiexec, "-n", "2", "trireme", "train", SOURCE / "inputs/tiny.toml",
                "parallel.pipeline=2", "run.steps=3", "optimizer.warmup_steps=1", f"run.directory={directory}",
                **environment)
    lines = (folder / directory / "metrics.jsonl").read_text().splitlines()
    return [(line["loss"], line["gradient_norm"]) for line in map(json.loads, lines)]


class Trace(unittest.TestCase):
    """One run without a tool, then one with it."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.path = Path(folder.name)
        run_program(cls.path, "trireme", "tokenize", SOURCE / "README.md", "-o", "data/tiny.h5")
        cls.plain = train(cls.path, "plain", tool=False)
        cls.wrote_without_tool = (cls.path / "trace").exists()
        cls.traced = train(cls.path, "traced")

    def test_regions_are_phases_of_a_step_and_cover_its_kernels(self):
        for rank in range(2):
            found = spans(read(self.path / f"trace/rank_{rank:06}.json"))
            kernels = [span for span in found if span[0] in ("for", "reduce", "scan")]
            regions = [span for span in found if span[0] == "region"]
            steps = [span for span in regions if span[1] == "step"]
            self.assertEqual(len(steps), 3)
            for _, _, around, begin, end in steps:
                self.assertEqual(around, ())
                inner = Counter(name for _, name, _, b, e in regions if begin <= b and e <= end)
                for name, count in (OF_BOTH | OF_RANK[rank]).items():
                    self.assertEqual(inner[name], count, f"{name} on rank {rank}")
            for _, name, around, *_ in regions:
                if name in INSIDE and "step" in around:
                    self.assertEqual(around[-1], INSIDE[name])
            of_steps = [(name, around) for _, name, around, *_ in kernels if "step" in around]
            self.assertGreater(len(of_steps), 3 * MICRO_BATCHES * 10)
            for name, around in of_steps:
                self.assertTrue(name.startswith("kernels/") or "kernels/matmul" in around, (name, around))
                self.assertGreater(len(around), 1, f"{name} is in no phase of its step")
            products = Counter(around[1] for _, name, around, *_ in regions if name == "kernels/matmul" and
                               around[:1] == ("step",))
            self.assertEqual(set(products), {"forward", "backward"})
            outside = {around[0] if around else name for _, name, around, *_ in regions} - {"step"}
            self.assertLessEqual({"initialise", "result", "checkpoint", "measure_peak"}, outside)

    def test_a_tool_does_not_change_results(self):
        self.assertEqual(self.traced, self.plain)

    def test_nothing_is_written_without_a_tool(self):
        self.assertFalse(self.wrote_without_tool)

    def test_steps_are_chosen(self):
        train(self.path, "chosen", TRIREME_TRACE="a/b", TRIREME_TRACE_STEPS="2-2")
        for rank in range(2):
            names = Counter(name for category, name, *_ in spans(read(self.path / f"a/b/rank_{rank:06}.json"))
                            if category == "region")
            self.assertEqual(names["step"], 1)
            self.assertEqual(names["forward"], MICRO_BATCHES)
            self.assertNotIn("initialise", names)

    def test_traces_of_ranks_are_joined_by_the_documented_line(self):
        document = (SOURCE / "docs/observability.md").read_text()
        line, = [text.strip() for text in document.splitlines() if "trace/rank_*.json" in text and text[:4] == "    "]
        run_program(self.path, "sh", "-c", line)
        self.assertEqual({event["pid"] for event in read(self.path / "trace.json")}, {0, 1})


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for option in ("bin", "tool", "mpiexec"):
        parser.add_argument(f"--{option}", required=True)
    arguments, rest = parser.parse_known_args()
    arguments.bin = os.path.abspath(arguments.bin)
    unittest.main(argv=[sys.argv[0], *rest])
