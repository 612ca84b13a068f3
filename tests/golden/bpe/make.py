#!/usr/bin/env python3
"""Writes the tokenizers and ids of this folder with Hugging Face's `tokenizers` (made with 0.23.3):

    python3 make.py        # in this folder

sample.txt      text of many scripts, documents parted by empty lines
gpt2.json       BPE of 700 ids with GPT-2's pattern, learned from the documents by `BpeTrainer`
llama3.json     the same with the pattern of Llama 3 by a Split, ignore_merges, and added tokens
several.json    the same with two Splits before GPT-2's pattern
prefixed.json   the same with GPT-2's pattern and add_prefix_space
gpt2/           gpt2.json's model as vocab.json and merges.txt
ids.json        for each tokenizer the ids of each document; "special": with the names of special
                tokens in the text taken for these tokens
"""
import json
import os

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")


def learned(pre_tokenizer, documents, ignore_merges):
    tokenizer = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(documents, trainers.BpeTrainer(
        vocab_size=700, special_tokens=["<|endoftext|>"], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return tokenizer


def ids_of(tokenizer, documents):
    out = {}
    for name, plain in (("plain", True), ("special", False)):
        tokenizer.encode_special_tokens = plain
        out[name] = [tokenizer.encode(d, add_special_tokens=False).ids for d in documents]
    return out


documents = open("sample.txt", encoding="utf-8", newline="").read().split("\n\n")
ids = {}
gpt2 = learned(pre_tokenizers.ByteLevel(add_prefix_space=False), documents, False)
gpt2.save("gpt2.json")
os.makedirs("gpt2", exist_ok=True)
gpt2.model.save("gpt2")
ids["gpt2"] = ids_of(gpt2, documents)

split = pre_tokenizers.Split(Regex(LLAMA3), "isolated")
llama3 = learned(pre_tokenizers.Sequence(
    [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]), documents, True)
llama3.add_special_tokens(["<|eot|>"])
llama3.add_tokens([AddedToken("    ", normalized=False), AddedToken("  ", normalized=False),
                   AddedToken("caf\u00e9", normalized=True), AddedToken("caf", normalized=True)])
llama3.save("llama3.json")
ids["llama3"] = ids_of(llama3, documents)

several = learned(pre_tokenizers.Sequence(
    [pre_tokenizers.Split(Regex(r"\p{N}{1,3}"), "isolated"),
     pre_tokenizers.Split(Regex("[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"), "isolated"),
     pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)]), documents, False)
several.save("several.json")
ids["several"] = ids_of(several, documents)

prefixed = learned(pre_tokenizers.ByteLevel(add_prefix_space=True), documents, False)
prefixed.save("prefixed.json")
ids["prefixed"] = ids_of(prefixed, documents)
json.dump(ids, open("ids.json", "w"), separators=(",", ":"))
