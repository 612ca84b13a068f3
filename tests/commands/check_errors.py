#!/usr/bin/env python3
"""Makes the mistakes of first_hour.toml and compares what the programs print, word for word, with the stored texts.

    check_errors.py --bin BUILD/bin [--mpiexec mpiexec] [--update] [--only WORDS]

Each case runs in a copy of one folder with a deck, token files and a finished run. The last line of its script is the
mistake; the lines before it must succeed. The texts of cases with a remark are docs/errors.md, the other texts are
first_hour.expected.md. Prints what differs and ends with 1; --update writes both files instead. Some cases need an
ordinary user or a small disk: where this machine cannot provide them, the stored text is kept.
"""
import argparse
import difflib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
import tomllib
from pathlib import Path

SOURCE = Path(__file__).parents[2]
TABLE = Path(__file__).with_name("first_hour.toml")
PAGE = SOURCE / "docs/errors.md"  # cases with a remark
REST = Path(__file__).with_name("first_hour.expected.md")  # all other cases
ORDINARY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"] if os.geteuid() == 0 else []
SMALL_DISK = ["unshare", "--mount" if os.geteuid() == 0 else "-rm", "sh", "-c",
              'mkdir -p disk && mount -t tmpfs -o size=512k none disk && exec "$0" "$@"']
NOT_ZERO = -1  # exit code of a job whose ranks a launcher ended
# A crash, an MPI library's own error, or an exception that nobody has put into words.
RAW = re.compile(r"Fatal error in|MPI_Abort|Abort\(|BAD TERMINATION|terminate called|std::|what\(\)|Segmentation|"
                 r"Assertion|HDF5-DIAG|H5E|json\.exception|Traceback|toml::|runtime_error|basic_string|filesystem error")


def words_of(text, folder, programs, masks):
    """What a run printed, without what differs between machines."""
    text = text.split("\n" + "-" * 20)[0]  # Open MPI's launcher adds a box of its own
    text = re.sub(r"(?m)^\[\S+:\d+ *:\d+:\d+\] .*\n", "", text)  # UCX, on a message of a rank that dies
    text = text.replace(str(programs), "BIN").replace(str(folder), "RUN")
    text = re.sub(r"  \[(src|include)/[^\]]*:\d+\]", "  [src/...]", text)
    text = re.sub(r"\(pid \d+ on [^ )]+\)", "(pid PID on HOST)", text)
    text = re.sub(r"\bchecksum [0-9a-f]{32}, expected [0-9a-f]{32}", "checksum X, expected Y", text)
    for pattern, replacement in masks:
        text = re.sub(pattern, replacement, text)
    return [line.rstrip() for line in text.rstrip("\n").split("\n")]


class Runs:
    def __init__(self, options):
        self.programs = Path(options.bin).resolve()
        self.mpiexec = options.mpiexec
        names = ("PMI_", "PMIX_", "OMPI_", "SLURM_", "TRIREME_", "HDF5_", "OMP_")
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith(names)}
        self.environment.update(LC_ALL="C", OMPI_MCA_rmaps_base_oversubscribe="1")

    def shell(self, script, folder, wrapper=()):
        """The script's exit code and what it printed on standard error."""
        links = folder / ".bin"  # so that no path of a machine is on the page, and mpiexec is the build's
        environment = dict(self.environment, PATH=f"{links}:{self.programs}:{self.environment['PATH']}", HOME=str(folder))
        done = subprocess.run([*wrapper, "sh", "-c", script], cwd=folder, env=environment, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=180)
        return done.returncode, done.stderr.decode("utf-8", "backslashreplace"), done.stdout.decode(errors="replace")

    def prepare(self, folder, script):
        folder.mkdir()
        (folder / ".bin").mkdir()
        launcher = folder / ".bin/mpiexec"
        launcher.write_text(f'#!/bin/sh\nexec "{shutil.which(self.mpiexec) or self.mpiexec}" "$@"\n')
        launcher.chmod(0o755)
        code, printed, _ = self.shell("set -e\n" + script, folder)
        if code != 0:
            raise SystemExit(f"the folder that all cases start from could not be made:\n{printed}")

    def wrapper(self, case, folder):
        """Words before the script; None where this machine lacks what the case needs."""
        needs = case.get("needs")
        wrapper = {"ordinary user": ORDINARY, "small disk": SMALL_DISK}.get(needs, [])
        if needs == "pgrep" and not shutil.which("pgrep"):
            return None
        if needs == "ordinary user" and ORDINARY:
            for path in [folder, *folder.rglob("*")]:
                os.chown(path, 65534, 65534, follow_symlinks=False)
        if wrapper and (not shutil.which(wrapper[0]) or self.shell("trireme --version", folder, wrapper)[0] != 0):
            return None
        return wrapper

    @staticmethod
    def unprinted(case, said):
        """The line that a launcher may cut off, where it did."""
        line = case.get("may_lack")
        return [line] if line and line not in said else []

    def run(self, case, base, folder):
        """(lines on standard error, complaint or "") of a case; (None, why) where it cannot run here."""
        shutil.copytree(base, folder, symlinks=True)
        wrapper = self.wrapper(case, folder)
        if wrapper is None:
            return None, f"this machine has no {case['needs']}"
        lines = case["script"].strip("\n").split("\n")
        before = "\n".join(lines[:-1])
        script = f"{{\nset -e\n{before}\nset +e\n}} >/dev/null 2>.before\n{lines[-1]}"
        code, printed, out = self.shell(script, folder, wrapper)
        shown = case.get("shows")  # lines to show of a run that continues
        text = "\n".join(line for line in (printed + out).split("\n") if re.search(shown, line)) if shown else printed
        said = words_of(text, folder, self.programs, case.get("mask", []))
        said += self.unprinted(case, said)
        expected = case.get("exit", 2)
        if code == 0 if expected == NOT_ZERO else code != expected:
            return said, f"exit code {code} in place of {expected}\n{printed}{out}{(folder / '.before').read_text()}"
        if RAW.search(printed):
            return said, "the message is not in the program's own words:\n" + printed
        errors = sum(line.startswith("trireme: error: ") for line in printed.split("\n"))
        if shown and said == [""]:
            return said, f"no line with {shown} in:\n{out}"
        if errors != (0 if expected == 0 else 1):
            return said, f"{errors} errors in place of one:\n{printed}"
        return said, ""


def blocks_of(page):
    """{title: lines of the section} of a page."""
    blocks, title = {}, None
    for line in page.split("\n"):
        if line.startswith("#"):
            title = line[4:] if line.startswith("### ") else None
        elif title:
            blocks.setdefault(title, []).append(line)
    return blocks


def section(case, said):
    """A case as it stands on its page; exit code 2 is not shown."""
    lines = ["### " + case["title"], ""]
    lines += ["    $ " + line for line in case.get("shown", case["script"]).strip("\n").split("\n")]
    lines += [("    " + line).rstrip() for line in said] + [""]
    code = case.get("exit", 2)
    said_of_code = [] if code == 2 else [
        "The launcher chooses the exit code." if code == NOT_ZERO else f"The exit code is {code}."]
    told = " ".join(said_of_code + ([case["remark"]] if "remark" in case else []))
    return lines + (textwrap.wrap(told, 118, break_long_words=False, break_on_hyphens=False) + [""] if told else [])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True)
    parser.add_argument("--mpiexec", default="mpiexec")
    parser.add_argument("--update", action="store_true", help="write docs/errors.md and first_hour.expected.md")
    parser.add_argument("--only", default="", help="show the cases whose titles contain these words")
    options = parser.parse_args()
    table = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    stored = {page: page.read_text(encoding="utf-8") if page.exists() else "" for page in (PAGE, REST)}
    blocks = {title: lines for text in stored.values() for title, lines in blocks_of(text).items()}
    runs = Runs(options)

    pages = {page: table[name].strip("\n").split("\n") + [""] for page, name in ((PAGE, "introduction"), (REST, "rest"))}
    complaints, count = 0, 0
    with tempfile.TemporaryDirectory(prefix="trireme-errors-") as scratch:
        scratch = Path(scratch)
        scratch.chmod(0o755)
        runs.prepare(scratch / "base", table["base"])
        for group in table["group"]:
            for page, remarked in ((PAGE, True), (REST, False)):
                if any(("remark" in case) == remarked for case in group["case"]):
                    pages[page] += ["## " + group["name"], ""]
            for case in group["case"]:
                if options.only and options.only not in case["title"]:
                    continue
                count += 1
                page = pages[PAGE if "remark" in case else REST]
                # A launcher may end the other ranks before they print anything. Only then the case runs again.
                for attempt in range(case.get("attempts", 1)):
                    said, complaint = runs.run(case, scratch / "base", scratch / f"case{count}.{attempt}")
                    if not complaint.startswith("0 errors"):
                        break
                    print(f"{case['title']}: attempt {attempt + 1} printed no error")
                if said is None:
                    print(f"{case['title']}: not run, {complaint}")
                    page += ["### " + case["title"], *blocks.get(case["title"], [""])]
                    continue
                page += section(case, said)
                if complaint:
                    complaints += 1
                    print(f"{case['title']}: {complaint}")
                if options.only:
                    print("\n".join(section(case, said)))
    if options.only:
        return 1 if complaints else 0
    for page, lines in pages.items():
        text = "\n".join(lines).rstrip("\n") + "\n"
        if options.update:
            page.write_text(text, encoding="utf-8")
        elif text != stored[page]:
            complaints += 1
            name = page.relative_to(SOURCE)
            print(f"{name} is not what the programs print; after a look at the differences, run\n"
                  "  tests/commands/check_errors.py --bin BUILD/bin --update")
            print("\n".join(difflib.unified_diff(stored[page].split("\n"), text.split("\n"), str(name), "printed",
                                                 lineterm="", n=2)))
    print(f"{count} mistakes, {complaints} complaints")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
