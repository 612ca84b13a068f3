#!/usr/bin/env python3
"""tools/emoji: images and names of a font, held-out sets, and scores of texts.

    test_emoji.py
"""
import collections
import json
import struct
import subprocess
import sys
import tempfile
import unittest
import zlib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TONES = range(0x1F3FB, 0x1F400)
STYLES = ["yellow", "light", "medium light", "medium", "medium dark", "dark"]
# A hand, a runner, and the runner with a sign; the flag has no tones.
HAND, RUNNER, FLAG, JOINER, SIGN = 0x1F44B, 0x1F3C3, 0x1F3F4, 0x200D, 0x2640


def chunk(kind, content):
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def png(value):
    """16 x 16 pixels of indices 0 (transparent) and 1, whose colour has this red; filters 0 to 4 in turn."""
    lines, before = b"", bytes(16)
    for y in range(16):
        line, kind = bytes(int(4 <= x < 12 and 2 <= y) for x in range(16)), y % 5
        lines += bytes([kind])
        for x, now in enumerate(line):
            left, up, corner = (line[x - 1], before[x], before[x - 1]) if x else (0, before[x], 0)
            paeth = min((left, up, corner), key=lambda c: abs(left + up - corner - c))
            lines += bytes([(now - (0, left, up, (left + up) // 2, paeth)[kind]) & 255])
        before = line
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 16, 16, 8, 3, 0, 0, 0))
            + chunk(b"PLTE", bytes([0, 0, 0, value, 90, 30])) + chunk(b"tRNS", b"\0") + chunk(b"IDAT", zlib.compress(lines))
            + chunk(b"IEND", b""))


def font():
    """An OpenType font with the tables that hold images of characters and of ligatures."""
    characters = [HAND, RUNNER, FLAG, JOINER, SIGN, *TONES]
    glyph = {c: i + 1 for i, c in enumerate(characters)}
    sequences = [(HAND, t) for t in TONES] + [(RUNNER, t) for t in TONES]
    sequences += [(RUNNER, JOINER, SIGN)] + [(RUNNER, t, JOINER, SIGN) for t in TONES]
    sequences += [(SIGN, JOINER, RUNNER, t) for t in TONES]  # for text from right to left
    first_ligature = len(characters) + 1
    ligatures = collections.defaultdict(list)
    for i, sequence in enumerate(sequences):
        ligatures[glyph[sequence[0]]].append(([glyph[c] for c in sequence[1:]], first_ligature + i))

    groups = b"".join(struct.pack(">III", c, c, glyph[c]) for c in sorted(characters))
    cmap = struct.pack(">HHHHI", 0, 1, 3, 10, 12) + struct.pack(">HHIII", 12, 0, 16 + len(groups), 0, len(characters)) + groups

    covered = sorted(ligatures)
    coverage = struct.pack(">HH", 1, len(covered)) + b"".join(struct.pack(">H", g) for g in covered)
    head, sets = 6 + 2 * len(covered), b""
    offsets = []
    for g in covered:
        offsets.append(head + len(coverage) + len(sets))
        records, places = b"", []
        for rest, result in ligatures[g]:
            places.append(2 + 2 * len(ligatures[g]) + len(records))
            records += struct.pack(f">HH{len(rest)}H", result, len(rest) + 1, *rest)
        sets += struct.pack(f">H{len(places)}H", len(places), *places) + records
    substitution = struct.pack(f">HHH{len(offsets)}H", 1, head, len(offsets), *offsets) + coverage + sets
    extension = struct.pack(">HHI", 1, 4, 8) + substitution
    gsub = struct.pack(">HHHHH", 1, 0, 0, 0, 10) + struct.pack(">HH", 1, 4) + struct.pack(">HHHH", 7, 0, 1, 8) + extension

    count = first_ligature + len(sequences) - 1
    images = [png(5 * g) if g not in (glyph[JOINER], glyph[SIGN]) and g not in [glyph[t] for t in TONES] else b""
              for g in range(1, count + 1)]
    data, offsets = b"", [0]
    for image in images:
        data += (bytes(5) + struct.pack(">I", len(image)) + image) if image else b""
        offsets.append(len(data))
    cbdt = bytes(4) + data
    index = struct.pack(">HHI", 1, 17, 4) + struct.pack(f">{len(offsets)}I", *offsets)
    cblc = struct.pack(">II", 0x30000, 1) + struct.pack(">III", 56, 0, 1) + bytes(36) + struct.pack(">HHI", 1, count, 8) + index

    tables = {b"CBDT": cbdt, b"CBLC": cblc, b"GSUB": gsub, b"cmap": cmap}
    out, at, body = struct.pack(">IHHHH", 0x10000, len(tables), 0, 0, 0), 12 + 16 * len(tables), b""
    for tag, content in tables.items():
        out += struct.pack(">4sIII", tag, 0, at + len(body), len(content))
        body += content
    return out + body


def token_file(images, side=16):
    """A token file's header, and the distinct images with their numbers, as the tool reads them."""
    distinct = sorted(set(images))
    header = bytearray(4096)
    header[:15] = b"TRIREME TOKENS\n"
    struct.pack_into("<I", header, 16, 3)
    struct.pack_into("<4q", header, 1440, 4096, 0, len(images), side)
    struct.pack_into("<2q", header, 2104, len(distinct), 4096 + len(distinct) * side * side * 3)
    pixels = b"".join(bytes([value]) * (side * side * 3) for value in distinct)
    return bytes(header) + pixels + b"".join(struct.pack("<q", distinct.index(value)) for value in images)


def lines_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


class Emoji(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="trireme-emoji-")
        self.addCleanup(scratch.cleanup)
        self.folder = Path(scratch.name)
        (self.folder / "font.ttf").write_bytes(font())
        self.out = self.folder / "out"

    def run_tool(self, *words, code=0):
        done = subprocess.run([sys.executable, ROOT / "tools/emoji", self.out, *words],
                              capture_output=True, text=True, stdin=subprocess.DEVNULL)
        self.assertEqual(done.returncode, code, done.stderr)
        return done

    def make(self):
        said = self.run_tool("--font", self.folder / "font.ttf").stdout
        self.assertEqual(said, f"{self.out}: 3 names in 6 styles, 90 images for training, 3 of pairs and 3 of variants held out\n")
        return [lines_of(self.out / f"{name}.jsonl") for name in ("train", "pairs", "variants")]

    def test_sets_hold_out_pairs_and_variants(self):
        train, pairs, variants = self.make()
        names = {"waving hand sign", "runner", "female runner"}
        trained = collections.Counter(line["completion"] for line in train)
        held_out = {line["completion"] for line in pairs}
        self.assertEqual(set(trained.values()), {6})
        self.assertEqual({c.strip().rpartition(", ")[0] for c in held_out}, names)
        self.assertEqual(set(trained) | held_out, {f" {name}, {style}" for name in names for style in STYLES})
        self.assertFalse(set(trained) & held_out)
        self.assertLessEqual({line["completion"] for line in variants}, set(trained))
        images = [line["image"] for line in train + pairs + variants]
        self.assertEqual(len(images), len(set(images)))

    def test_variants_keep_the_colours_of_their_image(self):
        train, _, _ = self.make()
        reds, sizes = set(), set()
        for line in train:
            parts = collections.defaultdict(bytes)
            content, at = (self.out / line["image"]).read_bytes(), 8
            while at < len(content):
                length, kind = struct.unpack_from(">I4s", content, at)
                parts[kind] += content[at + 8:at + 8 + length]
                at += 12 + length
            pixels = zlib.decompress(parts[b"IDAT"])
            if line["completion"] == " waving hand sign, yellow":
                reds.add(tuple(parts[b"PLTE"][3:6]))
            sizes.add(pixels.count(1))
        self.assertEqual(reds, {(5, 90, 30)})
        self.assertEqual(max(sizes), 8 * 14)  # of the image without its transparent pixels
        self.assertGreater(len(sizes), 1)

    def test_texts_are_compared_with_the_names(self):
        train, pairs, variants = self.make()
        (self.out / "train.h5").write_bytes(token_file([i % 7 for i in range(len(train))]))
        (self.out / "variants.h5").write_bytes(token_file([6, 6, 6]))
        nearest = train[6]["completion"]
        wanted = [line["completion"] for line in variants]
        texts = self.out / "variants.texts.jsonl"
        texts.write_text("".join(json.dumps({"text": c}) + "\n" for c in wanted[:2] + [" runner, green"]))
        said = self.run_tool("--score", texts).stdout.splitlines()
        self.assertEqual(said[0].split(), ["variants:", "3", "images", "both", "name", "style"])
        names = 2 + (wanted[2].rpartition(", ")[0] == " runner")
        self.assertEqual(said[1].split(), ["model", "66.7%", f"{100 * names / 3:.1f}%", "66.7%"])
        self.assertEqual(said[2].split()[2], f"{100 * wanted.count(nearest) / 3:.1f}%")

    def test_mistakes_are_one_line(self):
        self.make()
        texts = self.out / "pairs.texts.jsonl"
        texts.write_text("")
        (self.folder / "other.ttf").write_bytes(font().replace(b"CBDT", b"CBDX"))
        (self.out / "train.h5").write_bytes(bytes(4096))
        for words, part in ((("--font", self.folder / "other.ttf"), "has no table CBDT; expected NotoColorEmoji.ttf"),
                            (("--font", "absent.ttf"), "No such file"),
                            (("--score", texts), "train.h5: is not a token file with images"),):
            said = self.run_tool(*words, code=2).stderr
            self.assertIn(part, said)
            self.assertEqual(len(said.splitlines()), 1, said)
        (self.out / "train.h5").write_bytes(token_file([0] * 90))
        self.assertIn("has 0 texts, expected one for each of the 3 lines of pairs.jsonl",
                      self.run_tool("--score", texts, code=2).stderr)


if __name__ == "__main__":
    unittest.main()
