#!/usr/bin/env python3
"""Holds tools/tensorboard to the TFRecord format and to the numbers of metrics.jsonl, with a reader of its own."""
import json
import math
import os
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

PROGRAM = Path(__file__).parents[2] / "tools/tensorboard"
sys.path.insert(0, str(PROGRAM.parent / "python"))
from trireme_scripts import tensorboard as tool  # noqa: E402


def fields(data):
    """(number, value) of each field of a protobuf message."""
    at = 0

    def varint():
        nonlocal at
        value, shift = 0, 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(data):
        key = varint()
        kind = key & 7
        if kind == 0:
            yield key >> 3, varint()
            continue
        size = {1: 8, 5: 4}.get(kind) or varint()
        yield key >> 3, data[at:at + size]
        at += size


def events(path):
    """(wall time, step, {tag: value}) of each event behind the first, which names the version."""
    data, at, found = path.read_bytes(), 0, []
    while at < len(data):
        length, = struct.unpack_from("<Q", data, at)
        body = data[at + 12:at + 12 + length]
        assert len(body) == length
        crcs = struct.unpack_from("<I", data, at + 8) + struct.unpack_from("<I", data, at + 12 + length)
        assert crcs == (tool.masked(tool.crc32c(data[at:at + 8])), tool.masked(tool.crc32c(body)))
        found.append(dict(fields(body)))
        at += 16 + length
    assert found[0][3] == b"brain.Event:2"
    for event in found[1:]:
        values = [dict(fields(value)) for _, value in fields(event[5])]
        yield (struct.unpack("<d", event[1])[0], event.get(2, 0),
               {v[1].decode(): struct.unpack("<f", v[2])[0] for v in values})


class Tensorboard(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory(prefix="trireme-tensorboard-")
        self.addCleanup(self.scratch.cleanup)
        self.run_folder = Path(self.scratch.name) / "run"
        self.run_folder.mkdir()

    def convert(self, content, *options):
        (self.run_folder / "metrics.jsonl").write_text(content)
        return subprocess.run([sys.executable, "-B", PROGRAM, self.run_folder, *options], capture_output=True, text=True)

    def converted(self):
        return list(events(self.run_folder / "tensorboard" / tool.NAME))

    def test_checksums_match_rfc_3720(self):
        self.assertEqual(tool.crc32c(b"123456789"), 0xE3069283)
        self.assertEqual(tool.crc32c(bytes(32)), 0x8A9136AA)
        self.assertEqual(tool.crc32c(bytes(range(32))), 0x46DD794E)

    def test_every_value_of_every_line_is_written(self):
        lines = [{"step": 10, "loss": 5.25, "tokens": 640, "step_seconds": 0.5, "new_key": 2},
                 {"step": 30, "loss": None, "tokens": 1920, "step_seconds": 0.25, "validation_loss": 1e300}]
        run = self.convert("".join(json.dumps(line) + "\n" for line in lines))
        self.assertEqual((run.returncode, run.stderr), (0, ""))
        (first_time, first, a), (second_time, second, b) = self.converted()
        self.assertEqual((first, second), (10, 30))
        self.assertEqual(a, {"loss/loss": 5.25, "progress/tokens": 640, "speed/step_seconds": 0.5, "other/new_key": 2})
        self.assertTrue(math.isnan(b["loss/loss"]))
        self.assertEqual(b["validation/validation_loss"], math.inf)
        self.assertAlmostEqual(second_time - first_time, 5.0, places=3)
        self.assertAlmostEqual(second_time, (self.run_folder / "metrics.jsonl").stat().st_mtime, places=3)

    def test_a_line_keeps_its_time(self):
        lines = [{"step": 1, "time": "1970-01-02T00:00:00.250Z", "loss": 2, "step_seconds": 9},
                 {"step": 2, "time": "2026-11-22T20:20:23.045Z", "loss": 1, "step_seconds": 9}]
        run = self.convert("".join(json.dumps(line) + "\n" for line in lines))
        self.assertEqual((run.returncode, run.stderr), (0, ""))
        (first, _, a), (second, _, _) = self.converted()
        self.assertEqual(first, 86400.25)
        self.assertAlmostEqual(second, 1795378823.045, places=3)
        self.assertEqual(a, {"loss/loss": 2, "speed/step_seconds": 9})

    def test_an_unlogged_step_gets_an_interpolated_time(self):
        lines = [{"step": 8, "loss": 3}, {"step": 9, "loss": 2.5, "gradient_norm": 1},
                 {"step": 10, "time": "1970-01-02T00:00:10.000Z", "loss": 2, "step_seconds": 3}]
        run = self.convert("".join(json.dumps(line) + "\n" for line in lines))
        self.assertEqual((run.returncode, run.stderr), (0, ""))
        found = self.converted()
        self.assertEqual([(time, step) for time, step, _ in found], [(86404, 8), (86407, 9), (86410, 10)])
        self.assertEqual(found[1][2], {"loss/loss": 2.5, "optimizer/gradient_norm": 1})

    def test_converting_again_replaces_the_files_and_omits_a_truncated_line(self):
        for content in ('{"step": 1, "loss": 2}\n{"step": 2, "lo', '{"step": 1, "loss": 2}\n'):
            self.assertEqual(self.convert(content).returncode, 0)
            self.assertEqual([step for _, step, _ in self.converted()], [1])
        self.assertEqual(os.listdir(self.run_folder / "tensorboard"), [tool.NAME])

    def test_earlier_runs_are_separate_runs(self):
        (self.run_folder / "metrics.previous-1.jsonl").write_text('{"step": 7, "loss": 3}\n')
        self.assertEqual(self.convert("").returncode, 0)
        self.assertEqual(self.converted(), [])
        (_, step, values), = events(self.run_folder / "tensorboard/previous-1" / tool.NAME)
        self.assertEqual((step, values), (7, {"loss/loss": 3}))

    def test_mistakes_are_reported(self):
        for content, part in (('{"step": 1}\n{"st\n{"step": 3}\n', 'metrics.jsonl:2: `{"st` is not a JSON object'),
                              ('{"step": "x"}\n', 'metrics.jsonl:1: "step" is "x"'),
                              ('{"step": 1, "time": 3}\n', 'metrics.jsonl:1: "time" is 3, expected UTC'),
                              ('{"step": 1, "time": "2026-13-22T20:20:23.045Z"}\n', "expected UTC"),
                              ('{"step": 1, "loss": [1]}\n', 'metrics.jsonl:1: "loss" is [1], expected a number')):
            run = self.convert(content)
            self.assertEqual(run.returncode, 2)
            self.assertIn(part, run.stderr)
            self.assertEqual(run.stderr.count("\n"), 1)
        run = self.convert('{"step": 1}\n', "-o", "/proc/none")
        self.assertEqual(run.returncode, 2)
        self.assertIn("cannot be written", run.stderr)
        run = self.convert('{"step": 1}\n', self.run_folder.parent / "nowhere")
        self.assertEqual(run.returncode, 2)
        self.assertIn("nowhere: no such folder", run.stderr)


if __name__ == "__main__":
    unittest.main()
