"""Converts the metrics.jsonl of runs for TensorBoard, using only Python's standard library.

Each line becomes an event with one scalar for each of its numbers, in 4-byte floats as TensorBoard stores scalars.
null, which stands for a number that was not finite, becomes NaN. An event has the time of its line. Short lines, of steps
between logged ones, have no time: it follows from the next line's time and the duration of the steps. If the last line has
no time, as in older versions, it gets the file's modification time. Converting again replaces the earlier result.
"""
import argparse
import json
import math
import os
import struct
import sys
from datetime import datetime, timezone
from pathlib import Path

from . import program

EXAMPLE = """example:
  PROGRAM runs/tiny runs/other -o boards
  tensorboard --logdir boards
"""
GROUPS = {"loss": "loss", "pair_loss": "loss", "validation_loss": "validation", "validation_pair_loss": "validation",
          "bits_per_byte": "validation", "learning_rate": "optimizer", "gradient_norm": "optimizer",
          "loss_scale": "optimizer", "skipped_steps": "optimizer", "global_batch": "progress", "tokens": "progress",
          "tokens_per_second": "speed", "step_seconds": "speed", "flops_utilization": "speed", "peak_bytes": "memory"}
NAME = "events.out.tfevents.0000000000.trireme"  # TensorBoard reads files with tfevents in their names


class Mistake(Exception):
    """Printed once on stderr; exit code 2."""


def check(condition, message):
    if not condition:
        raise Mistake(message)


# ---- TFRecord: length, its checksum, the bytes, their checksum; Castagnoli's CRC (RFC 3720), masked

def crc_table():
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


CRC = crc_table()


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = CRC[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def masked(crc):
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def record(data):
    length = struct.pack("<Q", len(data))
    return length + struct.pack("<I", masked(crc32c(length))) + data + struct.pack("<I", masked(crc32c(data)))


# ---- tensorflow.Event: wall_time 1, step 2, file_version 3, summary 5; Summary: value 1; Value: tag 1, simple_value 2

def varint(number):
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def field(number, data):
    return varint(number << 3 | 2) + varint(len(data)) + data


def head(wall_time):
    return b"\x09" + struct.pack("<d", wall_time)


def scalar_event(wall_time, step, scalars):
    values = b"".join(field(1, field(1, tag.encode()) + b"\x15" + struct.pack("<f", single(value)))
                      for tag, value in scalars.items())
    return head(wall_time) + b"\x10" + varint(step) + field(5, values)


def single(value):
    """The value limited to the range of 4-byte floats, outside of which struct fails."""
    largest = 3.4028234663852886e38
    return value if not math.isfinite(value) or abs(value) <= largest else math.copysign(math.inf, value)


# ---- metrics.jsonl

def seconds_of(time):
    """Since 1970, of "2026-11-22T20:20:23.045Z"."""
    if len(time) != 24:
        raise ValueError(time)
    return datetime.strptime(time, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=timezone.utc).timestamp()


def lines_of(path):
    """(step, time or None, {key: number}) of each line; omits a last line that a kill has cut off."""
    raw = path.read_bytes().decode("utf-8", errors="replace")
    lines = raw.split("\n")
    for number, line in enumerate(lines, 1):
        if number == len(lines) and not line:
            return
        remedy = "; remove the line or give another run; `trireme train` writes one JSON object per line"
        try:
            values = json.loads(line)
            check(isinstance(values, dict), "")
        except (ValueError, RecursionError, Mistake):
            if number == len(lines):
                return
            raise Mistake(f"{path}:{number}: `{line[:60]}` is not a JSON object{remedy}") from None
        step = values.pop("step", None)
        check(isinstance(step, int) and 0 <= step < 1 << 63,
              f'{path}:{number}: "step" is {json.dumps(step)[:60]}, expected an integer of at least 0{remedy}')
        time = values.pop("time", None)
        try:
            at = None if time is None else seconds_of(time)
        except (TypeError, ValueError):
            raise Mistake(f'{path}:{number}: "time" is {json.dumps(time)[:60]}, expected UTC such as '
                          f"2026-11-22T20:20:23.045Z{remedy}") from None
        for key, value in values.items():
            check(value is None or (isinstance(value, (int, float)) and not isinstance(value, bool)),
                  f'{path}:{number}: "{key}" is {json.dumps(value)[:60]}, expected a number{remedy}')
        yield step, at, {key: math.nan if value is None else float(value)
                         for key, value in values.items()}


def convert(path, folder):
    lines = list(lines_of(path))
    after, at, duration, events = None, path.stat().st_mtime, 0.0, []
    for step, time, values in reversed(lines):
        passed = duration * (after - step) if after is not None else 0.0
        at = at - passed if time is None else time
        after, duration = step, values.get("step_seconds", duration)
        duration = duration if math.isfinite(duration) else 0.0
        scalars = {f"{GROUPS.get(key, 'other')}/{key}": value for key, value in values.items()}
        events.append(record(scalar_event(at, step, scalars)))
    begin = at - duration * (after or 0)
    out = [record(head(begin) + field(3, b"brain.Event:2")), *reversed(events)]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        partial = folder / (NAME + ".partial")
        partial.write_bytes(b"".join(out))
        os.replace(partial, folder / NAME)
    except OSError as error:
        raise Mistake(f"{folder / NAME}: cannot be written ({error.strerror}); choose a folder with -o") from None
    print(f"{folder / NAME}: {len(lines)} steps of {path}")


def parsers():
    """The parser of the options alone, which this program does not need, and the parser of all arguments."""
    parser = argparse.ArgumentParser(prog=program(), description=__doc__, epilog=EXAMPLE.replace("PROGRAM", program()),
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", metavar="RUN", help="folder of a run, with metrics.jsonl")
    parser.add_argument("-o", "--output", metavar="FOLDER",
                        help="folder for one subfolder per run, named after it; default: RUN/tensorboard")
    return None, parser


def main():
    _, parser = parsers()
    options = parser.parse_args()
    runs = [Path(run) for run in options.runs]
    try:
        names = [run.resolve().name for run in runs]
        double = next((name for name in names if names.count(name) > 1), None)
        check(options.output is None or double is None,
              f"-o {options.output}: two runs are named {double}; convert them one by one")
        for run, name in zip(runs, names):
            check(run.is_dir(), f"{run}: no such folder; give [run] directory of a run")
            check((run / "metrics.jsonl").exists(), f"{run}: has no metrics.jsonl; give [run] directory of a run")
        for run, name in zip(runs, names):
            folder = run / "tensorboard" if options.output is None else Path(options.output) / name
            convert(run / "metrics.jsonl", folder)
            for earlier in sorted(run.glob("metrics.previous-*.jsonl")):
                convert(earlier, folder / earlier.name[len("metrics."):-len(".jsonl")])
    except Mistake as mistake:
        print(f"{program()}: error: {mistake}", file=sys.stderr)
        return 2
    return 0
