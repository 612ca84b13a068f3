#!/usr/bin/env python3
"""Makes this folder's greedy texts with Hugging Face transformers' T5ForConditionalGeneration.generate (CPU, fp64) and the models
in ../t5_hugging_face.

    python3 make.py      # needs torch, transformers

v1_0.txt, v1_1.txt: lines "SOURCE | TEXT" with the ids of a source, whose last id is the end token 1, and the ids that follow the
decoder's start token 0: up to and without the end token, at most TOKENS. Sources have different lengths of 1 to 13 tokens. They are
chosen among random sources: half of the texts end early, the others do not, and all have several different tokens. The two largest
logits of a step, which generate() rounds to fp32, differ by at least GAP. transformers 5.24 has no cache for decoders with more
layers than the encoder: every step passes the whole text.
"""
import importlib.util
import pathlib

import torch
import transformers
from transformers import T5ForConditionalGeneration

HERE = pathlib.Path(__file__).parent
SPEC = importlib.util.spec_from_file_location("t5_fp64", HERE.parent / "t5_fp64" / "make.py")
fp64 = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(fp64)

VOCABULARY, LONGEST, TOKENS, END, TEXTS, GAP, TRIALS = 31, 13, 24, 1, 6, 1e-3, 200


def generated(model, sources):
    """(ids of the greedy text, smallest difference between the two largest logits) of sources of one length."""
    out = model.generate(sources, max_new_tokens=TOKENS, do_sample=False, num_beams=1, use_cache=False,
                         decoder_start_token_id=0, eos_token_id=END, pad_token_id=0, output_logits=True,
                         return_dict_in_generate=True)
    two = torch.stack([logits.topk(2).values for logits in out.logits])
    found = []
    for i, ids in enumerate(out.sequences.tolist()):
        assert ids[0] == 0
        steps = ids.index(END) if END in ids else len(ids) - 1
        found.append((ids[1:steps if END in ids else steps + 1], (two[:steps, i, 0] - two[:steps, i, 1]).min().item()))
    return found


def make(name):
    model = T5ForConditionalGeneration.from_pretrained(HERE.parent / "t5_hugging_face" / name, attn_implementation="eager")
    model = fp64.make_exact(model)
    kinds = {True: [], False: []}
    for length in range(LONGEST):
        sources = torch.cat((torch.randint(2, VOCABULARY, (TRIALS, length)), torch.full((TRIALS, 1), END)), 1)
        samples = [(source, text) for source, (text, gap) in zip(sources.tolist(), generated(model, sources)) if gap >= GAP]
        source, text = max(samples, key=lambda sample: (len(set(sample[1])), len(sample[1])))
        early = max((s for s in samples if len(s[1]) < TOKENS), key=lambda s: len(set(s[1])), default=None)
        kinds[False].append((source, text))
        if early is not None:
            kinds[True].append(early)
    chosen, lengths = [], set()
    for early in (True, False):
        for source, text in sorted(kinds[early], key=lambda sample: -len(set(sample[1]))):
            of_kind = sum((len(t) < TOKENS) == early for _, t in chosen)
            if of_kind < TEXTS // 2 and len(source) not in lengths and (len(text) < TOKENS) == early:
                assert generated(model, torch.tensor([source]))[0][0] == text
                chosen.append((source, text))
                lengths.add(len(source))
    print(name, [(len(source), len(text), len(set(text))) for source, text in chosen])
    assert len(chosen) == TEXTS
    lines = [" | ".join(" ".join(map(str, ids)) for ids in sample) for sample in chosen]
    (HERE / f"{name}.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    print(transformers.__version__)
    torch.manual_seed(20240608)
    for model_name in ("v1_0", "v1_1"):
        make(model_name)
