"""Damage to bytes and to texts, and checksums that fit the damage: what finds a bit that has flipped must then find
more."""
import ctypes
import json
import random
import re
import struct

BINARY = ["flip", "noise", "cut", "insert", "zero", "copy", "append"]
WORDS = [b"0", b"-1", b"1.5", b"1e999", b"-1e-320", b"9223372036854775807", b"9223372036854775808", b"1" * 400, b"null",
         b"true", b"NaN", b"Infinity", b'"x"', b'""', b'"\\u0000"', b'"../../x"', b"[]", b"{}", b"[" * 20000, b'{"a":' * 5000,
         b"\xff\xfe", b"\x1b[2J", b"\n", b",", b"}", b"=", b"inf", b"\x00"]
TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|-?\d[\w.+-]*|\w+|[][{}:,=]')


def mutated(data, rng, text):
    """The data with one to three changes."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        data = changed_word(data, rng) if text and rng.random() < 0.7 else changed(data, rng)
    return data


def changed(data, rng):
    kind = rng.choice(BINARY)
    size = max(len(data), 1)
    at = rng.randrange(size)
    length = min(1 + int(64 * rng.random() ** 2), size - at)
    if kind == "flip" and data:
        return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1:]
    if kind == "noise":
        return data[:at] + rng.randbytes(length) + data[at + length:]
    if kind == "cut":
        return data[:at]
    if kind == "insert":
        return data[:at] + bytes([rng.randrange(256)]) * length + data[at:]
    if kind == "zero":
        return data[:at] + bytes(length) + data[at + length:]
    if kind == "append":
        return data + rng.randbytes(length)
    to = rng.randrange(size)
    return data[:to] + data[at:at + length] + data[to + length:]


def changed_word(data, rng):
    """A number, word or sign becomes another one, of the file or not, or a line is doubled, dropped or moved."""
    if rng.random() < 0.15:
        lines = data.split(b"\n")
        a, b = rng.randrange(len(lines)), rng.randrange(len(lines))
        lines[a:a + 1] = rng.choice(([lines[a]] * 2, [], [lines[b]]))
        return b"\n".join(lines)
    tokens = list(TOKEN.finditer(data))
    if not tokens:
        return changed(data, rng)
    token = rng.choice(tokens)
    digits = [i for i in range(token.start(), token.end()) if data[i:i + 1].isdigit()]
    if digits and rng.random() < 0.5:  # what most readers accept
        at = rng.choice(digits)
        return data[:at] + rng.choice(b"0123456789").to_bytes(1, "big") + data[at + 1:]
    new = rng.choice(tokens).group() if rng.random() < 0.4 else rng.choice(WORDS)
    return data[:token.start()] + new + data[token.end():]


class Checksums:
    def __init__(self, library):
        self.library = ctypes.CDLL(str(library))
        self.library.xxh3_64.restype = ctypes.c_ulonglong

    def hex128(self, data):
        out = (ctypes.c_ulonglong * 2)()
        self.library.xxh3_128(bytes(data), ctypes.c_size_t(len(data)), out)
        return f"{out[1]:016x}{out[0]:016x}"

    def raw128(self, data):
        out = (ctypes.c_ulonglong * 2)()
        self.library.xxh3_128(bytes(data), ctypes.c_size_t(len(data)), out)
        return struct.pack("<QQ", out[0], out[1])

    def seal_manifest(self, folder, name):
        """The manifest's own checksum."""
        path = folder / name
        body = path.read_bytes().rsplit(b',\n"checksum"', 1)[0]
        path.write_bytes(body + b',\n"checksum":"' + self.hex128(body).encode() + b'"}\n')

    def seal_member(self, folder, name):
        """All checksums of a file of a checkpoint in its manifest."""
        path = folder / name
        data = path.read_bytes()
        manifest_path = path.with_name("manifest.json")
        manifest = json.loads(manifest_path.read_text())
        sizes = {"fp32": 4, "fp64": 8, "bf16": 2, "fp16": 2}
        for file in manifest["files"]:
            if file["name"] == path.name:
                file.update(bytes=len(data), xxh3_128=self.hex128(data))
        for shard in manifest["shards"]:
            if shard["name"] != path.name:
                continue
            rest, end = b"", 0
            for entry in sorted(shard["slices"], key=lambda s: s[3]):
                size = sizes[manifest["arrays"][entry[0]]["dtype"]]
                for extent in entry[2]:
                    size *= extent
                entry[4] = self.hex128(data[entry[3]:entry[3] + size])  # of one block
                rest += data[end:entry[3]]
                end = entry[3] + size
            shard.update(bytes=len(data), structure=self.hex128(rest + data[end:]))
        del manifest["checksum"]
        manifest_path.write_text(json.dumps(manifest, separators=(",", ":"))[:-1] + ',\n"checksum":""}\n')
        self.seal_manifest(folder, manifest_path.relative_to(folder))

    def seal_tokens(self, folder, name):
        """The checksums of a token file: of its header and its datasets, and of HDF5's structures only as they were."""
        path = folder / name
        data = bytearray(path.read_bytes())
        if len(data) < 4096:
            return
        size = struct.unpack_from("<I", data, 20)[0]
        tokens, documents, _, _, at, offsets = struct.unpack_from("<6q", data, 24)
        parts = [(80, at, tokens * size), (96, offsets, (documents + 1) * 8)]
        if struct.unpack_from("<I", data, 16)[0] == 2:
            parts.append((1424, struct.unpack_from("<q", data, 1408)[0], (tokens + 7) // 8))
        for place, begin, length in parts:
            if begin >= 0 <= length <= len(data):
                data[place:place + 16] = self.raw128(data[begin:begin + length])
        data[4088:4096] = struct.pack("<Q", self.library.xxh3_64(bytes(data[:4088]), ctypes.c_size_t(4088)))
        path.write_bytes(data)


def generator(seed, *words):
    return random.Random(f"{seed} {words}")
