#!/usr/bin/env python3
"""Injects faults into the programs and checks what docs/reliability.md promises.

    faults.py calls|kills|formats|disks|flips... --bin BUILD/bin --library FOLDER [--mpiexec mpiexec]
              [--soak] [--jobs N] [--seed N] [--number N] [--only WORDS]
              [--keep FOLDER] [--update]

calls    calls of the system fail in turn            table in calls.py
kills    jobs are killed at random times             table in kills.py
formats  files of every format are damaged           table in formats.py
disks    disks are full                              table in disks.py
flips    bits of numbers are flipped                 table in flips.py

A new command or format is a new row of a table. Without --soak, some attempts of each row, the same ones each time.
--update writes the figures to docs/notes/faults.md. Prints each broken promise and ends with 1 if there is one, and with 77 if
everything was skipped.
"""
import argparse
import concurrent.futures
import importlib
import re
import sys
import tempfile
import time
from pathlib import Path

import runs as jobs

PAGE = Path(__file__).parents[2] / "docs/notes/faults.md"


def run_all(driver, runs, options):
    """{row: {what happened: number}} and the number of broken promises."""
    rows, lost = {}, 0

    def one(entry):
        name, what, function = entry
        try:
            happened, complaints = function()
        except Exception as failure:  # pylint: disable=broad-except
            happened, complaints = "broken driver", [repr(failure)]
        return name, what, happened, complaints

    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for name, what, happened, complaints in pool.map(one, driver.attempts(runs, options)):
            row = rows.setdefault(name, {})
            row[happened] = row.get(happened, 0) + 1
            if complaints:
                lost += 1
                row["lost"] = row.get("lost", 0) + 1
                print(f"{name}: {what}:\n  " + "\n  ".join(complaints), flush=True)
    return rows, lost


def lines_of(rows):
    """The rows of a table in Markdown."""
    for name, counts in rows.items():
        lost = counts.get("lost", 0)
        skipped = counts.get("not reached", 0) + sum(n for what, n in counts.items() if what.startswith("skipped"))
        tried = sum(counts.values()) - lost - skipped
        yield f"| {name} | {tried:,} | {counts.get('continued', 0):,} | {tried - lost:,} | {lost:,} |"


def update(driver, lines):
    """Writes rows of a driver's table into the page; rows that did not run stay as they are."""
    page = PAGE.read_text(encoding="utf-8")
    block = re.search(rf"<!-- figures: {driver} -->\n(?:\|[^\n]*\n){{2}}((?:\|[^\n]*\n)*)", page)
    if not block:
        raise SystemExit(f"{PAGE} has no table for {driver}")
    rows = {line.split("|")[1]: line for line in [*block.group(1).splitlines(), *lines]}
    written = "".join(line + "\n" for line in rows.values())
    PAGE.write_text(page[:block.start(1)] + written + page[block.end(1):], encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("drivers", nargs="+", choices=["calls", "kills", "formats", "disks", "flips"])
    parser.add_argument("--bin", required=True)
    parser.add_argument("--library", required=True, help="folder of libfailing_calls.so, libfault_checksums.so, libflip_bit.so")
    parser.add_argument("--mpiexec", default="mpiexec")
    parser.add_argument("--soak", action="store_true", help="all attempts")
    parser.add_argument("--jobs", type=int, default=1, help="attempts at a time")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--number", type=int, help="attempts of each row")
    parser.add_argument("--keep", help="folder for files that broke a promise")
    parser.add_argument("--only", default="", help="rows whose names contain these words")
    parser.add_argument("--update", action="store_true", help="write the figures to docs/notes/faults.md")
    options = parser.parse_args()
    jobs.take_in_orphans()
    all_lost, skipped = 0, True
    with tempfile.TemporaryDirectory() as root:
        runs = jobs.Runs(options, root)
        for name in options.drivers:
            begin = time.monotonic()
            driver = importlib.import_module(name)
            rows, lost = run_all(driver, runs, options)
            all_lost += lost
            lines = list(lines_of(rows))
            happened = [what for row in rows.values() for what in row]
            skipped = skipped and bool(happened) and all(what.startswith("skipped") for what in happened)
            print("\n".join([f"== {name}, {time.monotonic() - begin:.0f} s", *lines]))
            for row, counts in rows.items():
                print(f"{row}: " + ", ".join(f"{n} {what}" for what, n in sorted(counts.items())))
            if options.update:
                update(name, lines)
    return 1 if all_lost else 77 if skipped else 0


if __name__ == "__main__":
    sys.exit(main())
