#!/usr/bin/env python3
"""Makes this folder's small T5s with Hugging Face transformers (CPU): 2 layers in the encoder and 3 in the decoder, random
weights, v1_0 in fp32 as transformers 5 writes it, and v1_1 in bf16 with shards and the keys that config.json had before 2025.

    python3 make.py      # needs torch, transformers

v1_0, v1_1: config.json and safetensors. results.txt: 4 lines "SOURCE | TARGETS | LOSS" with the ids of a sample and its mean
loss in fp64. The decoder's first token is 0.
"""
import importlib.util
import json
import pathlib
import shutil

import torch
from transformers import T5Config, T5ForConditionalGeneration

HERE = pathlib.Path(__file__).parent
SPEC = importlib.util.spec_from_file_location("t5_fp64", HERE.parent / "t5_fp64" / "make.py")
fp64 = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(fp64)

VOCABULARY, SOURCE, TARGET, SAMPLES = 31, 13, 7, 4
MODELS = {"v1_0": dict(feed_forward_proj="relu", tie_word_embeddings=True, n_positions=SOURCE),
          "v1_1": dict(feed_forward_proj="gated-gelu", tie_word_embeddings=False)}


def make(folder, settings):
    tied = settings["tie_word_embeddings"]
    model = T5ForConditionalGeneration(T5Config(
        vocab_size=VOCABULARY, d_model=12, d_kv=5, d_ff=10, num_layers=2, num_decoder_layers=3, num_heads=3,
        relative_attention_num_buckets=8, relative_attention_max_distance=6, decoder_start_token_id=0,
        attn_implementation="eager", **settings))
    if not tied:
        model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone())
    with torch.no_grad():  # far from the symmetric beginning: every gain matters
        for name, p in model.named_parameters():
            p.copy_(torch.randn(p.shape) * 0.3 + (1 if "norm" in name else 0))
    model = model.to(torch.float32 if tied else torch.bfloat16)
    if folder.exists():
        shutil.rmtree(folder)
    model.save_pretrained(folder, max_shard_size="1TB" if tied else "9KB")
    (folder / "generation_config.json").unlink(missing_ok=True)
    model = fp64.make_exact(model)
    lines = []
    for _ in range(SAMPLES):
        source, targets = torch.randint(0, VOCABULARY, (1, SOURCE)), torch.randint(0, VOCABULARY, (1, TARGET))
        with torch.no_grad():
            logits = model(input_ids=source, decoder_input_ids=model._shift_right(targets)).logits
        assert logits.dtype == torch.float64
        loss = torch.nn.functional.cross_entropy(logits[0], targets[0])
        lines.append(" | ".join([" ".join(map(str, ids[0].tolist())) for ids in (source, targets)] + [repr(loss.item())]))
    (folder / "results.txt").write_text("\n".join(lines) + "\n")
    if not tied:
        make_old(folder)


def make_old(folder):
    """The keys that config.json had before 2025."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config["torch_dtype"] = config.pop("dtype")
    config["tie_word_embeddings"] = False
    for key in ("scale_decoder_outputs", "dense_act_fn", "is_gated_act", "is_decoder"):
        config.pop(key)
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


if __name__ == "__main__":
    torch.manual_seed(20240607)
    for model_name, model_settings in MODELS.items():
        make(HERE / model_name, model_settings)
