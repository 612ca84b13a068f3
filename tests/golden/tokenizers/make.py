#!/usr/bin/env python3
"""Writes the tokenizers and golden files of this folder with Hugging Face's `tokenizers` (made with 0.23.3) and
`sentencepiece` (0.2.3):

    python3 make.py        # in this folder

NAME.json       tokenizers of a few hundred ids in the forms of published models (kinds.py)
strings.json    text of many scripts, white space, control characters, combining marks, emoji, names of added tokens
golden.json     for each tokenizer the ids of each string without names of special tokens, in "special" the ids
                with these names taken for the tokens where they differ, and the decoded text where it differs from the
                string
parts.json      tokenizers that are one of the others with other parts, and their ids
"""
import json
import os
import tempfile

from tokenizers import Tokenizer

import kinds
import texts


def small_charsmap():
    """A few of the rules of nmt_nfkc: the whole map has 300 kB."""
    rules = [("FB01", "66 69"), ("FB03", "66 66 69"), ("2460", "31"), ("2161", "49 49"), ("33A2", "6B 6D 32"),
             ("BD", "31 2044 32"), ("A0", "20"), ("3000", "20"), ("2003", "20"), ("202F", "20"), ("9", "20"), ("A", "20"),
             ("D", "20"), ("200B", "20"), ("FEFF", "20"), ("1", ""), ("7", ""), ("1F", ""), ("7F", ""), ("65 301", "E9"),
             ("41 30A", "C5"), ("212B", "C5"), ("304B 3099", "304C"), ("FF11", "31"), ("FF12", "32"), ("FF13", "33"),
             ("FF76", "30AB"), ("FF80", "30BF"), ("FF85", "30CA"), ("2122", "54 4D"), ("1112 1161 11AB", "D55C"),
             ("20000", "4E00"), ("B2", "32"), ("AD", "")]
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as file:
        for source, target in rules:
            file.write(f"{source}\t{target}\n")
        file.flush()
        return kinds.charsmap_of(rule_tsv=file.name)


def golden(tokenizer, strings):
    out = {"ids": [], "special": {}, "text": {}}
    names = [token.content for token in tokenizer.get_added_tokens_decoder().values() if token.special]
    for i, string in enumerate(strings):
        tokenizer.encode_special_tokens = True
        plain = tokenizer.encode(string, add_special_tokens=False).ids
        if any(name in string for name in names):
            plain = []  # tokenizers' models may take the name for the token
        tokenizer.encode_special_tokens = False
        special = tokenizer.encode(string, add_special_tokens=False).ids
        out["ids"].append(plain)
        if special != plain:
            out["special"][str(i)] = special
        if not plain:
            continue
        text = tokenizer.decode(plain, skip_special_tokens=False)
        if text != string:
            out["text"][str(i)] = text
    return out


SPLITS = [{"type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert}
          for pattern in ({"Regex": "[aeiou]+|\\p{N}"}, {"String": "o"})
          for behavior in ("Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous")
          for invert in (False, True)]


def variants():
    """Changes of mixed.json and others, as [name, key, value]."""
    for splitter in SPLITS:
        yield "mixed", {"pre_tokenizer": splitter}
    for behavior in ("Removed", "MergedWithPrevious", "MergedWithNext"):
        yield "mixed", {"pre_tokenizer": {"type": "Punctuation", "behavior": behavior}}
    for kind in ("WhitespaceSplit", "Whitespace", "BertPreTokenizer"):
        yield "mixed", {"pre_tokenizer": {"type": kind}, "normalizer": None}
    yield "mixed", {"pre_tokenizer": {"type": "Digits", "individual_digits": False}, "normalizer": {"type": "NFKD"}}
    for left, right in ((True, False), (False, True)):
        yield "mixed", {"pre_tokenizer": None,
                        "normalizer": {"type": "Strip", "strip_left": left, "strip_right": right}}
    yield "mixed", {"normalizer": {"type": "Replace", "pattern": {"Regex": "o+"}, "content": "0"}}
    yield "llama2", {"normalizer": None, "pre_tokenizer": {"type": "Metaspace", "replacement": "\u2581",
                                                            "add_prefix_space": True, "str_rep": "\u2581"}}
    yield "llama2", {"normalizer": None, "pre_tokenizer": {"type": "Metaspace", "replacement": "\u2581",
                                                            "prepend_scheme": "never", "split": True}}
    yield "llama2", {"normalizer": None, "pre_tokenizer": {"type": "Metaspace", "replacement": "\u2581",
                                                            "add_prefix_space": False, "prepend_scheme": "never"}}
    yield "qwen", {"normalizer": {"type": "NFKC"}, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": True,
                                                                    "trim_offsets": True, "use_regex": True}}
    yield "bert_cased", {"normalizer": {"type": "BertNormalizer", "clean_text": False, "handle_chinese_chars": False,
                                        "strip_accents": True, "lowercase": False}}
    yield "mixed", {"decoder": {"type": "WordPiece", "prefix": "a", "cleanup": False}}
    yield "mixed", {"decoder": {"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"Regex": "[xyz]+"}, "content": "_"}, {"type": "Strip", "content": "e",
                                                                             "start": 1, "stop": 0}]}}


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    os.chdir(here)
    documents = texts.SENTENCES * 3
    strings = texts.SENTENCES + texts.SPECIAL + texts.random_strings(7, 32)
    built = kinds.build(documents, 260, small_charsmap())
    results = {}
    for name, tokenizer in built.items():
        with open(name + ".json", "w", encoding="utf-8") as file:
            file.write(compact(json.loads(tokenizer.to_str())))
        results[name] = golden(Tokenizer.from_file(name + ".json"), strings)
    with open("strings.json", "w", encoding="ascii") as file:
        file.write("[\n" + ",\n".join(json.dumps(s) for s in strings) + "\n]\n")
    with open("golden.json", "w", encoding="utf-8") as file:
        file.write(rows(results))
    few = texts.SENTENCES[:4] + texts.SPECIAL[:2] + texts.SPECIAL[3:11]
    changed = []
    for name, change in variants():
        with open(name + ".json", encoding="utf-8") as file:
            whole = json.load(file)
        whole.update(change)
        some = few if "Split" not in json.dumps(change) else few[:1] + few[2:3] + few[-1:]
        changed.append({"base": name, "change": change, "strings": [strings.index(s) for s in some],
                        **golden(Tokenizer.from_str(json.dumps(whole)), some)})
    with open("parts.json", "w", encoding="utf-8") as file:
        file.write("[\n" + ",\n".join(json.dumps(c, separators=(",", ":")) for c in changed) + "\n]\n")


def compact(tokenizer):
    """One line for each part of the model and each other key."""
    model = tokenizer.pop("model")
    lines = [f"{json.dumps(k)}:{json.dumps(v, separators=(',', ':'))}" for k, v in tokenizer.items()]
    inner = ",\n".join(f"{json.dumps(k)}:{json.dumps(v, ensure_ascii=False, separators=(',', ':'))}" for k, v in model.items())
    return "{" + ",\n".join(lines) + ',\n"model":{' + inner + "}}\n"


def rows(results):
    return "{\n" + ",\n".join(f"{json.dumps(name)}:{json.dumps(value, separators=(',', ':'))}"
                              for name, value in results.items()) + "\n}\n"


if __name__ == "__main__":
    main()
