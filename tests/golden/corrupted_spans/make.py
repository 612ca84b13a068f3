#!/usr/bin/env python3
"""Writes golden.json with T5's rules, as in seqio and t5.data.preprocessors of Raffel et al. 2020:

    python3 make.py        # in this folder; needs only the standard library

lengths   [source, density, mean span, raw, noise, spans, target]
samples   for one sample number each: the lengths, seed, stream, sample number, source and target of raw tokens
          0, 1, 2, ... with first sentinel 31999 and end 1
"""
import json
import pathlib

WORD = 0xFFFFFFFF


def philox(seed, stream, step, block):
    """Philox4x32-10 with the key `seed` and purpose 6, masking."""
    c = [block & WORD, block >> 32, 6 << 28 ^ stream, step]
    key = [seed & WORD, seed >> 32]
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [b >> 32 ^ c[1] ^ key[0], b & WORD, a >> 32 ^ c[3] ^ key[1], a & WORD]
        key = [(key[0] + 0x9E3779B9) & WORD, (key[1] + 0xBB67AE85) & WORD]
    return c


def integers(seed, stream, sample):
    """A function that returns the next random integer below n."""
    def words():
        block = sample >> 32 << 32
        while True:
            yield from philox(seed, stream, sample & WORD, block)
            block += 1
    word = words()
    return lambda n: int(((next(word) << 32 | next(word)) >> 11) * 2.0**-53 * n)


def source_and_target(raw, density, mean_span):
    noise = int(round(raw * density))
    spans = int(round(noise / mean_span))
    return raw - noise + spans + 1, noise + spans + 1


def span_lengths(source, density, mean_span):
    """Lengths by random_spans_helper, or None where it has no span, so that the mask has more noise than it counts."""
    raw = source - 1
    while source_and_target(raw + 1, density, mean_span)[0] <= source:
        raw += 1
    found, target = source_and_target(raw, density, mean_span)
    if density == 0.5 and target > found:
        raw, target = raw - 1, target - 1
    noise = int(round(raw * density))
    spans = int(round(noise / mean_span))
    if noise < 1 or spans < 1 or spans > raw - noise:
        return None
    assert found == source, "no padding"
    return raw, noise, spans, target


def noise_mask(raw, noise, spans, below):
    """Kept tokens and noise in turn: in each, the first items of segments are chosen as items pass by."""
    mask = []
    rest = {False: [raw - noise, spans], True: [noise, spans]}
    for _ in range(spans):
        for is_noise in False, True:
            items, segments = rest[is_noise]
            mask.append(is_noise)
            items, segments = items - 1, segments - 1
            while items and (segments == 0 or below(items) >= segments):
                mask.append(is_noise)
                items -= 1
            rest[is_noise] = [items, segments]
    return mask


def with_sentinels(tokens, mask, first_sentinel, end):
    """noise_span_to_unique_sentinel, then the end."""
    out, spans = [], 0
    for i, token in enumerate(tokens):
        if not mask[i]:
            out.append(token)
        elif i == 0 or not mask[i - 1]:
            out.append(first_sentinel - spans)
            spans += 1
    return out + [end]


def main():
    lengths = []
    for source in [*range(3, 40), 64, 100, 114, 127, 128, 129, 255, 256, 511, 512, 513, 568, 1000, 1024, 2048, 4096]:
        for density, mean_span in [(0.15, 3), (0.15, 8), (0.15, 1), (0.1, 3), (0.5, 3), (0.5, 8), (0.5, 64), (0.5, 1),
                                   (0.25, 2.5), (0.3, 3.5), (0.75, 10), (0.9, 32)]:
            found = span_lengths(source, density, mean_span)
            if found:
                lengths.append([source, density, mean_span, *found])
    samples = []
    for source, density, mean_span in [(32, 0.15, 3), (48, 0.5, 3), (40, 0.3, 1.5), (40, 0.15, 8)]:
        for seed, stream, sample in [(0, 1, 0), (1234567890123, 0, 7), (3, 0, 5 * 2**32 + 11)]:
            raw, noise, spans, _ = span_lengths(source, density, mean_span)
            mask = noise_mask(raw, noise, spans, integers(seed, stream, sample))
            assert sum(mask) == noise and len(mask) == raw
            samples.append([source, density, mean_span, seed, stream, sample,
                            with_sentinels(range(raw), mask, 31999, 1),
                            with_sentinels(range(raw), [not m for m in mask], 31999, 1)])
    def rows(values):
        return "[\n" + ",\n".join(json.dumps(value, separators=(",", ":")) for value in values) + "\n]"
    text = f'{{"lengths":{rows(lengths)},\n"samples":{rows(samples)}}}\n'
    (pathlib.Path(__file__).parent / "golden.json").write_text(text, encoding="ascii")


if __name__ == "__main__":
    main()
