#!/usr/bin/env python3
"""Images of every kind with their pixels, and resized images, as Pillow and NumPy compute them.

    python3 tests/golden/images/make.py

Needs numpy, Pillow 12.1 and transformers 5.24. (Pillow 13 resizes columns before rows where the height shrinks much more
than the width, so that some of its results differ in the last digits.) Writes beside this file:

NAME.png, NAME.jpg    files of a kind
NAME.npy              the pixels that they have, uint8 [height, width, 3]
resize_input.npy      an image, and resize_WxH.npy the result of Pillow's Image.resize((W, H), BICUBIC)
WIDE_crop.npy ...     wide.npy and tall.npy as squares of 24 pixels: crop as CLIPImageProcessor, stretch as
                      SiglipImageProcessor, pad by its definition
"""
import io
import struct
import zlib
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

HERE = Path(__file__).parent
PASSES = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]
SQUARE = 24


def chunk(name, data):
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def rows(samples, depth):
    """Bytes of the rows of an image of samples [height, width, channels], each after filter 0."""
    out = b""
    for row in samples.reshape(samples.shape[0], -1):
        if depth == 16:
            out += b"\0" + row.astype(">u2").tobytes()
        elif depth == 8:
            out += b"\0" + row.astype(np.uint8).tobytes()
        else:
            bits = "".join(format(v, f"0{depth}b") for v in row)
            bits += "0" * (-len(bits) % 8)
            out += b"\0" + bytes(int(bits[i:i + 8], 2) for i in range(0, len(bits), 8))
    return out


def png(name, samples, depth, colour, interlaced=False, between=b""):
    height, width, _ = samples.shape
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, int(interlaced))
    parts = [samples[y::dy, x::dx] for x, y, dx, dy in PASSES] if interlaced else [samples]
    data = b"".join(rows(p, depth) for p in parts if p.size > 0)
    content = chunk(b"IHDR", header) + between + chunk(b"IDAT", zlib.compress(data, 9)) + chunk(b"IEND", b"")
    (HERE / f"{name}.png").write_bytes(b"\x89PNG\r\n\x1a\n" + content)


def save(name, pixels):
    np.save(HERE / f"{name}.npy", np.ascontiguousarray(pixels.astype(np.uint8)))


def over_white(colours, alpha):
    """(a c + (255 - a) 255) / 255, halves rounded up."""
    c, a = colours.astype(int), alpha.astype(int)
    return (a * c + (255 - a) * 255 + 127) // 255


def eight_bits(samples):
    return (samples.astype(int) * 255 + 32767) // 65535


def three(grey):
    return np.repeat(grey, 3, axis=2)


def pngs(random):
    shape = (7, 11)
    grey1 = random.integers(0, 2, shape + (1,))
    png("grey1", grey1, 1, 0)
    save("grey1", three(grey1 * 255))
    grey8 = random.integers(0, 256, shape + (1,))
    png("grey8", grey8, 8, 0)
    save("grey8", three(grey8))
    png("grey8_transparent", grey8, 8, 0, between=chunk(b"tRNS", struct.pack(">H", grey8[3, 4, 0])))
    save("grey8_transparent", three(np.where(grey8 == grey8[3, 4, 0], 255, grey8)))
    grey16 = random.integers(0, 65536, shape + (1,))
    png("grey16", grey16, 16, 0)
    save("grey16", three(eight_bits(grey16)))
    rgb8 = random.integers(0, 256, shape + (3,))
    png("rgb8", rgb8, 8, 2)
    save("rgb8", rgb8)
    png("rgb8_interlaced", rgb8, 8, 2, interlaced=True)
    save("rgb8_interlaced", rgb8)
    rgb16 = random.integers(0, 65536, shape + (3,))
    png("rgb16", rgb16, 16, 2)
    save("rgb16", eight_bits(rgb16))
    palette = random.integers(0, 256, (16, 3))
    alphas = random.integers(0, 256, 9)
    index = random.integers(0, 16, shape + (1,))
    png("palette4", index, 4, 3, between=chunk(b"PLTE", palette.astype(np.uint8).tobytes()) +
        chunk(b"tRNS", alphas.astype(np.uint8).tobytes()))
    alpha = np.concatenate([alphas, np.full(7, 255)])[index]
    save("palette4", over_white(palette[index[:, :, 0]], alpha))
    rgba8 = random.integers(0, 256, shape + (4,))
    png("rgba8", rgba8, 8, 6)
    save("rgba8", over_white(rgba8[:, :, :3], rgba8[:, :, 3:]))
    png("rgba8_interlaced", rgba8, 8, 6, interlaced=True)
    save("rgba8_interlaced", over_white(rgba8[:, :, :3], rgba8[:, :, 3:]))
    grey_alpha16 = random.integers(0, 65536, shape + (2,))
    png("grey_alpha16", grey_alpha16, 16, 4)
    both = eight_bits(grey_alpha16)
    save("grey_alpha16", three(over_white(both[:, :, :1], both[:, :, 1:])))
    exif = Image.Exif()
    exif[0x0112] = 6
    content = exif.tobytes()
    content = content[6:] if content.startswith(b"Exif\0\0") else content
    png("rgb8_turned", rgb8, 8, 2, between=chunk(b"eXIf", content))
    save("rgb8_turned", np.rot90(rgb8, -1))


def smooth(random, height, width):
    """A photo-like image: coloured waves and noise."""
    y, x = np.mgrid[0:height, 0:width]
    waves = [127 + 90 * np.sin(x / (3 + c) + c) * np.cos(y / (4 + c)) for c in range(3)]
    noise = random.integers(-20, 21, (height, width, 3))
    return np.clip(np.stack(waves, axis=2) + noise, 0, 255).astype(np.uint8)


def jpegs(random):
    picture = Image.fromarray(smooth(random, 19, 27))

    def jpeg(name, image, **options):
        stream = io.BytesIO()
        image.save(stream, "JPEG", quality=85, **options)
        (HERE / f"{name}.jpg").write_bytes(stream.getvalue())
        if image.mode != "CMYK":
            save(name, np.asarray(Image.open(stream).convert("RGB")))

    jpeg("colour_444", picture, subsampling=0)
    jpeg("colour_420", picture, subsampling=2)
    jpeg("progressive", picture, subsampling=2, progressive=True)
    jpeg("grey", picture.convert("L"))
    jpeg("cmyk", picture.convert("CMYK"))
    for orientation in range(1, 9):
        exif = Image.Exif()
        exif[0x0112] = orientation
        name = f"orientation_{orientation}"
        jpeg(name, picture, subsampling=0, exif=exif)
        save(name, np.asarray(ImageOps.exif_transpose(Image.open(HERE / f"{name}.jpg")).convert("RGB")))


def resized(random):
    image = random.integers(0, 256, (17, 23, 3)).astype(np.uint8)
    save("resize_input", image)
    for width, height in [(7, 5), (1, 1), (46, 34), (23, 40), (9, 17), (23, 17), (30, 3), (2, 51)]:
        save(f"resize_{width}x{height}",
             np.asarray(Image.fromarray(image).resize((width, height), Image.Resampling.BICUBIC)))


def fitted(random):
    from transformers import CLIPImageProcessorPil, SiglipImageProcessorPil
    plain = {"do_rescale": False, "do_normalize": False}
    clip = CLIPImageProcessorPil(size={"shortest_edge": SQUARE}, crop_size=SQUARE, **plain)
    siglip = SiglipImageProcessorPil(size={"height": SQUARE, "width": SQUARE}, resample=Image.Resampling.BICUBIC,
                                     **plain)
    for name, height, width in [("wide", 31, 53), ("tall", 41, 20)]:
        array = smooth(random, height, width)
        image = Image.fromarray(array)
        save(name, array)
        for word, processor in [("crop", clip), ("stretch", siglip)]:
            pixels = np.asarray(processor(image, return_tensors="np")["pixel_values"][0])
            save(f"{name}_{word}", pixels.transpose(1, 2, 0))
        part = (2 * SQUARE * min(width, height) + max(width, height)) // (2 * max(width, height))
        inner = (SQUARE, part) if width > height else (part, SQUARE)
        square = Image.new("RGB", (SQUARE, SQUARE))
        square.paste(image.resize(inner, Image.Resampling.BICUBIC), tuple((SQUARE - n) // 2 for n in inner))
        save(f"{name}_pad", np.asarray(square))


def main():
    random = np.random.default_rng(45)
    pngs(random)
    jpegs(random)
    resized(random)
    fitted(random)


if __name__ == "__main__":
    main()
