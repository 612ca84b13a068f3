#!/usr/bin/env python3
"""Draws the folders of the source tree by levels, with the links of src/CMakeLists.txt: docs/pictures/folders.svg.

    folders.py PICTURE [--update]

Links that follow from others are left out. Ends with 1 if PICTURE is not the one that it draws; with --update writes it.
"""
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from check_sources import FLOORS, HOST_ONLY  # noqa: E402

# Column of each folder, and what it is about.
FOLDERS = {
    "commands": (2, "one file per subcommand"),
    "train": (3.5, "trainer, executor, generator"),
    "hugging_face": (0, "weights to and from files"),
    "installation": (2, "this build as a machine"),
    "optim": (4, "gradients, update rules"),
    "checkpoint": (0, "arrays and state in HDF5"),
    "data": (1, "tokenizers, samples"),
    "plan": (2, "memory and messages"),
    "model": (4, "the passes of operations"),
    "io": (0, "HDF5, complete files"),
    "architecture": (1.5, "arrays, layer, slices"),
    "grid": (3.5, "MPI, NCCL, communicators"),
    "kernels": (4.5, "products, attention, norms"),
    "deck": (1, "keys to configuration"),
    "schedule": (2, "instructions per rank"),
    "layout": (3, "process grid, splits"),
    "rules": (1.5, "update rules, one a file"),
    "tensor": (4.5, "views, arenas, streams"),
    "base": (2.5, "errors, log, types"),
}
BOX, GAP, HEIGHT, LEVEL, TOP = 158, 12, 42, 78, 52
HOST, DEVICE, LINE, TEXT = "#d7e5f7", "#f9e0c4", "#8b93a1", "#1d2129"


def links(root):
    """The folders that each folder links, without those that others of its links bring."""
    text = (root / "src/CMakeLists.txt").read_text(encoding="utf-8")
    found = {folder: set() for folder in FOLDERS}
    for name, rest in re.findall(r"^trireme_folder\((\w+)([^)]*)\)", text, re.MULTILINE):
        found[name] = {other for other in re.findall(r"\btrireme_(\w+)", rest) if other in FOLDERS}
    programs = re.findall(r"^target_link_libraries\(trireme(?:-engine|_commands_common)?\s([^)]*)\)", text, re.MULTILINE)
    found["commands"] = {other for rest in programs for other in re.findall(r"\btrireme_(\w+)", rest) if other in FOLDERS}

    def below(folder):
        return found[folder].union(*map(below, found[folder]))
    return {folder: sorted(others - set().union(*map(below, others))) for folder, others in found.items()}


def picture(root):
    floor = {folder: number for number, folders in enumerate(FLOORS) for folder in folders}
    place = {folder: (70 + column * (BOX + GAP), TOP + (len(FLOORS) - 1 - floor[folder]) * LEVEL)
             for folder, (column, _) in FOLDERS.items()}
    width, height = 70 + 5.5 * (BOX + GAP), TOP + (len(FLOORS) - 1) * LEVEL + HEIGHT + 16
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height}" '
           f'viewBox="0 0 {width:g} {height}" font-family="Helvetica, Arial, \'DejaVu Sans\', sans-serif">',
           '<rect width="100%" height="100%" fill="#ffffff"/>']

    def text(x, y, size, words, anchor="middle", weight="normal"):
        out.append(f'<text x="{x:g}" y="{y:g}" font-size="{size}" text-anchor="{anchor}" font-weight="{weight}" '
                   f'fill="{TEXT}">{words}</text>')
    for x, colour, words in [(70, HOST, "host-only: trireme contains no other folders"), (420, DEVICE, "with Kokkos or MPI: only in trireme-engine")]:
        out.append(f'<rect x="{x}" y="14" width="16" height="16" fill="{colour}"/>')
        text(x + 24, 27, 13, words, "start")
    for number in range(len(FLOORS)):
        text(10, TOP + (len(FLOORS) - 1 - number) * LEVEL + HEIGHT / 2 + 4, 12, f"level {number}", "start")
    for folder, others in links(root).items():
        for other in others:
            (x, y), (u, v) = place[folder], place[other]
            out.append(f'<path d="M{x + BOX / 2:g} {y + HEIGHT}L{u + BOX / 2:g} {v}" stroke="{LINE}" fill="none"/>')
    for folder, (_, words) in FOLDERS.items():
        x, y = place[folder]
        both = folder == "commands"
        colour = HOST if folder in HOST_ONLY or both else DEVICE
        out.append(f'<rect x="{x:g}" y="{y}" width="{BOX}" height="{HEIGHT}" rx="4" fill="{colour}" stroke="{LINE}"/>')
        if both:
            out.append(f'<path d="M{x + BOX - 40:g} {y + HEIGHT}h36a4 4 0 0 0 4 -4v-34a4 4 0 0 0 -4 -4z" fill="{DEVICE}"/>')
        text(x + BOX / 2, y + 18, 14, folder, weight="bold")
        text(x + BOX / 2, y + 34, 11, words)
    return "\n".join(out) + "\n</svg>\n"


def main():
    path = Path(sys.argv[1]).resolve()
    drawn = picture(path.parents[2])
    if sys.argv[2:] == ["--update"]:
        path.write_text(drawn, encoding="utf-8")
    elif not path.exists() or path.read_text(encoding="utf-8") != drawn:
        print(f"{path}: the folders or their links have changed; draw it again: {Path(__file__).name} {sys.argv[1]} --update")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
