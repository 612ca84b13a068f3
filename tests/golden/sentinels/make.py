#!/usr/bin/env python3
"""Writes golden.json with Hugging Face's `tokenizers` (made with 0.23.3):

    python3 make.py        # in this folder

The tokenizer is ../tokenizers/t5.json with the sentinels of T5's tokenizer.json: <extra_id_99> to <extra_id_0> are the
last ids, in the vocabulary with a score of 0 and in added_tokens. Some files have the flags lstrip and rstrip there, and
give the same ids. golden.json has the strings, the ids of each string and their text.
"""
import json
import pathlib

from tokenizers import Tokenizer

STRINGS = ["the <extra_id_0> over the <extra_id_1> dog", "a<extra_id_0>b", "<extra_id_99>", "<extra_id_0><extra_id_1>",
           "<extra_id_100> <extra_id_0 extra_id_0>", "over  <extra_id_12>  the\n<extra_id_3>.\n", " <extra_id_1> ",
           "\u2581<extra_id_7>\u2581the"]


def t5_like(strips):
    path = pathlib.Path(__file__).parent.parent / "tokenizers" / "t5.json"
    whole = json.loads(path.read_text(encoding="utf-8"))
    vocab, added = whole["model"]["vocab"], whole["added_tokens"][:3]
    for i in range(99, -1, -1):
        added.append({"id": len(vocab), "content": f"<extra_id_{i}>", "single_word": False, "lstrip": strips,
                      "rstrip": strips, "normalized": False, "special": True})
        vocab.append([f"<extra_id_{i}>", 0.0])
    whole["added_tokens"] = added
    return Tokenizer.from_str(json.dumps(whole))


def main():
    ids, same_ids = ([t5_like(strips).encode(string, add_special_tokens=False).ids for string in STRINGS]
                     for strips in (False, True))
    assert ids == same_ids
    golden = {"strings": STRINGS, "ids": ids,
              "texts": [t5_like(False).decode(few, skip_special_tokens=False) for few in ids]}
    text = "{\n" + ",\n".join(f'"{k}":{json.dumps(v, separators=(",", ":"))}' for k, v in golden.items()) + "\n}\n"
    (pathlib.Path(__file__).parent / "golden.json").write_text(text, encoding="ascii")


if __name__ == "__main__":
    main()
