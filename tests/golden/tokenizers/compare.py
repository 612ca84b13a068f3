#!/usr/bin/env python3
"""Compares `trireme tokenize` and `trireme inspect --decode` with Hugging Face's `tokenizers`, by hand:

    python3 compare.py --bin build/host/bin --folder FOLDER [--megabytes 10] [--strings 100000] [NAME...]

Trains tokenizers in the forms of published models (kinds.py, and the byte-level ones of ../bpe/make.py) on text of
Debian's packages (dict-gcide and the messages in /usr/share/locale), with the charsmap nmt_nfkc. Then compares ids and
decoded text of all documents, of random strings, and of the documents as one; and prints the speed of each program.
Needs the Python packages tokenizers, sentencepiece, h5py and numpy.
"""
import argparse
import os
import random
import subprocess
import sys
import time
import unicodedata

import h5py
import numpy
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

import kinds
import texts

SEPARATOR = "\n@@@ next document @@@\n"
ENDS = ["<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "[SEP]"]
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")


def byte_level(documents, size):
    split = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(LLAMA3), "isolated"),
                                     pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    for name, words in (("gpt2", pre_tokenizers.ByteLevel(add_prefix_space=False)), ("llama3", split)):
        tokenizer = Tokenizer(models.BPE(ignore_merges=name == "llama3"))
        tokenizer.pre_tokenizer = words
        tokenizer.decoder = decoders.ByteLevel()
        tokenizer.train_from_iterator(documents, trainers.BpeTrainer(
            vocab_size=size, special_tokens=["<|endoftext|>"], show_progress=False,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
        yield name, tokenizer


def trireme(options, name, special, path, separator):
    output = os.path.join(options.folder, "tokens.h5")
    command = [os.path.join(options.bin, "trireme"), "tokenize", "-o", output, "--tokenizer",
               os.path.join(options.folder, name + ".json"), "--document-separator", separator, path]
    begin = time.perf_counter()
    subprocess.run(command + (["--special-tokens"] if special else []), check=True, stdout=subprocess.DEVNULL)
    seconds = time.perf_counter() - begin
    with h5py.File(output) as file:
        ids = file["tokens"][:].astype(numpy.int64)
    decoded = subprocess.run([os.path.join(options.bin, "trireme"), "inspect", "--decode", output], check=True,
                             stdout=subprocess.PIPE).stdout
    return ids, decoded, seconds


def split_documents(ids, end):
    places = numpy.flatnonzero(ids == end)
    begin = 0
    for place in places:
        yield ids[begin:place].tolist()
        begin = place + 1


def compare(options, name, what, documents, special=False):
    tokenizer = Tokenizer.from_file(os.path.join(options.folder, name + ".json"))
    tokenizer.encode_special_tokens = not special
    end = next(tokenizer.token_to_id(e) for e in ENDS if tokenizer.token_to_id(e) is not None)
    # Trireme's models never take the name of a special token for it, also if it appears by normalization.
    names = [t.content for t in tokenizer.get_added_tokens_decoder().values() if t.special]
    normal = tokenizer.normalizer.normalize_str if tokenizer.normalizer else str
    documents = [d for d in documents
                 if not any(n in normal(d) and n not in d or n in d and not special for n in names)]
    path = os.path.join(options.folder, "text")
    with open(path, "w", encoding="utf-8", newline="") as file:
        file.write(SEPARATOR.join(documents))
    ids, decoded, seconds = trireme(options, name, special, path, SEPARATOR)
    begin = time.perf_counter()
    encoded = [e.ids for e in tokenizer.encode_batch_fast(documents, add_special_tokens=False)]
    theirs = time.perf_counter() - begin
    if special:  # ends of documents within documents
        encoded = [part for e in encoded for part in split_documents(numpy.array(e + [end]), end)]
    found = list(split_documents(ids, end))
    different = [i for i, (a, b) in enumerate(zip(found, encoded)) if a != b]
    newer = [i for i in different if not special and any(unicodedata.category(c) == "Cn" for c in documents[i])]
    texts_ = [tokenizer.decode(e, skip_special_tokens=False) for e in encoded]
    expected = "".join(texts_)
    same_text = bool(newer) or decoded.decode("utf-8", "replace") == expected
    megabytes = os.path.getsize(path) / 1e6
    good = len(different) == len(newer) and len(found) == len(encoded) and same_text
    print(f"{name:14} {what:16} {'equal' if good else 'DIFFERENT':9} {len(encoded):7} documents {len(ids):9} ids  "
          f"{megabytes / seconds:6.1f} MB/s, tokenizers {megabytes / theirs:6.1f} MB/s", flush=True)
    if newer:
        print(f"    {len(newer)} documents with characters newer than Unicode {unicodedata.unidata_version} differ")
    if not good:
        print(f"    {len(different)} documents differ, {len(found)} of {len(encoded)}, "
              f"text {'equal' if same_text else 'differs'}")
        for i in different[:options.show]:
            a, b = found[i], encoded[i]
            at = next((k for k, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
            print(f"    document {i} {documents[i][:60]!r} ({len(documents[i])} characters) at id {at}:\n"
                  f"      trireme    {[(k, tokenizer.id_to_token(k)) for k in a[max(0, at - 2):at + 6]]}\n"
                  f"      tokenizers {[(k, tokenizer.id_to_token(k)) for k in b[max(0, at - 2):at + 6]]}")
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True)
    parser.add_argument("--folder", required=True)
    parser.add_argument("--megabytes", type=float, default=10)
    parser.add_argument("--strings", type=int, default=100000)
    parser.add_argument("--vocabulary", type=int, default=16000)
    parser.add_argument("--show", type=int, default=3, help="differing documents to print")
    parser.add_argument("--keep", action="store_true", help="use the tokenizers that are in the folder")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    os.makedirs(options.folder, exist_ok=True)
    documents = texts.debian(options.megabytes)
    random.Random(3).shuffle(documents)
    print(f"{sum(len(d.encode()) for d in documents) / 1e6:.1f} MB in {len(documents)} documents")
    if not options.keep:
        some = documents[:len(documents) // 5]
        built = kinds.build(some, options.vocabulary, kinds.charsmap_of(rule_name="nmt_nfkc"))
        built.update(byte_level(some, options.vocabulary))
        for name, tokenizer in built.items():
            tokenizer.save(os.path.join(options.folder, name + ".json"))
    names = options.names or sorted(f[:-5] for f in os.listdir(options.folder) if f.endswith(".json"))
    strings = [s for s in texts.random_strings(5, options.strings) if s]
    good = True
    for name in names:
        good &= compare(options, name, "text", documents)
        good &= compare(options, name, "random strings", strings)
        good &= compare(options, name, "special tokens", strings[:20000], special=True)
        good &= compare(options, name, "one document", ["\n".join(documents)[:2000000]])
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
