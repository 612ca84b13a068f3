#!/usr/bin/env python3
"""Times `trireme tokenize` beside Hugging Face's `tokenizers` on one core each, on the same documents:

    python3 tests/bench/compare_tokenizers.py --bin build/host/bin --tokenizer TOKENIZER.json TEXT...

A text is cut into documents at empty lines. Runs alternate; printed are medians of wall-clock and of user
CPU time, which a busy machine disturbs less. Hugging Face's time is that of encode_batch_fast alone, without
reading, cutting and writing; Trireme's is that of the whole command, start and loading included. Also checks
that the ids are equal, and times the byte tokenizer.
"""
import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time

os.environ["RAYON_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

SEPARATOR = "\n\n"


def trireme(options, tokenizer, texts, output):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begin = time.perf_counter()
    subprocess.run(["taskset", "-c", options.core, os.path.join(options.bin, "trireme"), "tokenize", "-o", output,
                    "--tokenizer", tokenizer, "--document-separator", r"\n\n", *texts],
                   check=True, stdout=subprocess.DEVNULL)
    wall = time.perf_counter() - begin
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime - before.ru_utime


def hugging_face(tokenizer, documents):
    before = time.process_time()
    begin = time.perf_counter()
    encode = getattr(tokenizer, "encode_batch_fast", tokenizer.encode_batch)
    ids = [e.ids for e in encode(documents, add_special_tokens=False)]
    return time.perf_counter() - begin, time.process_time() - before, ids


def same_ids(path, expected, end):
    import h5py
    import numpy
    with h5py.File(path) as file:
        found = file["tokens"][:].astype(numpy.int64)
    flat = []
    for ids in expected:
        flat += ids + [end]
    return numpy.array_equal(found, numpy.array(flat))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True)
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--end", default="<|endoftext|>")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--core", default="0")
    parser.add_argument("texts", nargs="+")
    options = parser.parse_args()
    os.sched_setaffinity(0, {int(options.core)})
    from tokenizers import Tokenizer
    tokenizer = Tokenizer.from_file(options.tokenizer)
    tokenizer.encode_special_tokens = True
    documents = []
    for text in options.texts:
        content = open(text, encoding="utf-8", newline="").read()
        documents += [d for d in content.split(SEPARATOR) if d]
    megabytes = sum(os.path.getsize(t) for t in options.texts) / 1e6
    times = {"trireme": [], "hugging face": [], "trireme bytes": []}
    with tempfile.TemporaryDirectory() as folder:
        output = os.path.join(folder, "t.h5")
        for round_number in range(options.rounds):
            times["trireme"].append(trireme(options, options.tokenizer, options.texts, output))
            wall, cpu, ids = hugging_face(tokenizer, documents)
            times["hugging face"].append((wall, cpu))
            if round_number == 0 and not same_ids(output, ids, tokenizer.token_to_id(options.end)):
                sys.exit("the ids differ")
            times["trireme bytes"].append(trireme(options, "bytes", options.texts, output))
    print(f"{megabytes:.1f} MB in {len(documents)} documents, equal ids, medians of {options.rounds} rounds")
    median = {}
    for name, values in times.items():
        wall, cpu = (statistics.median(v[i] for v in values) for i in (0, 1))
        median[name] = (wall, cpu)
        print(f"{name:14} {megabytes / wall:8.1f} MB/s by wall clock, {megabytes / max(cpu, 1e-3):8.1f} MB/s by user CPU")
    ratios = [median["hugging face"][i] / max(median["trireme"][i], 1e-3) for i in (0, 1)]
    print(f"ratio          {ratios[0]:8.2f} by wall clock, {ratios[1]:8.2f} by user CPU")


main()
