#!/usr/bin/env python3
"""Makes this folder's small Gemma 3 models that read images with Hugging Face transformers (CPU): 2 layers, the first with a window
of 5 tokens, and SigLIP's encoder of 2 layers for images of 12 × 12 pixels, of which 2 × 2 patches of 2 × 2 pixels are a token;
with random weights.

    python3 make.py      # needs torch, transformers, safetensors

tied: fp32, as transformers 5 writes it, with a vision head, which the model does not use.
untied: bf16, embeddings that are not tied, two shards, the names of tensors that the modules of transformers 4.52 and later have,
and a config.json with only what differs from the classes, as Google's files.

NAME: config.json, preprocessor_config.json and safetensors. NAME.txt and NAME.f64: loss and gradients in fp64 for the samples of
../llava_fp64/make.py, in the form that is described there.
"""
import importlib.util
import json
import pathlib
import shutil

import torch
from safetensors.torch import load_file, save_file
from transformers import Gemma3Config, Gemma3ForConditionalGeneration, Gemma3TextConfig, SiglipVisionConfig

HERE = pathlib.Path(__file__).parent
SPEC = importlib.util.spec_from_file_location("gemma3_images_fp64", HERE.parent / "gemma3_images_fp64" / "make.py")
fp64 = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(fp64)
llava = fp64.llava

TEXT = dict(vocab_size=llava.VOCABULARY, hidden_size=16, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
            head_dim=6, intermediate_size=18, max_position_embeddings=64, sliding_window=5, query_pre_attn_scalar=6,
            layer_types=["sliding_attention", "full_attention"])
VISION = dict(hidden_size=12, intermediate_size=14, num_attention_heads=3, num_hidden_layers=2, image_size=llava.IMAGE,
              patch_size=fp64.PATCH)
# Of Google's Gemma 3: its resampling is bilinear.
PROCESSOR = {"do_convert_rgb": None, "do_normalize": True, "do_pan_and_scan": None, "do_rescale": True, "do_resize": True,
             "image_mean": [0.5, 0.5, 0.5], "image_processor_type": "Gemma3ImageProcessor", "image_seq_length": 9,
             "image_std": [0.5, 0.5, 0.5], "processor_class": "Gemma3Processor", "resample": 2,
             "rescale_factor": 0.00392156862745098, "size": {"height": 12, "width": 12}}


def make(name):
    tied = name == "tied"
    rotary = {"full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
              "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}
    config = Gemma3Config(vision_config=SiglipVisionConfig(vision_use_head=tied, **VISION),
                          text_config=Gemma3TextConfig(rope_parameters=rotary, **TEXT), image_token_index=llava.PLACEHOLDER,
                          boi_token_index=51, eoi_token_index=52, mm_tokens_per_image=9, tie_word_embeddings=tied)
    model = Gemma3ForConditionalGeneration(config).eval()
    with torch.no_grad():  # far from the symmetric beginning: every gain matters
        for parameter, p in model.named_parameters():
            vision_norm = "vision_tower" in parameter and "norm" in parameter and parameter.endswith("weight")
            p.copy_(torch.randn(p.shape) * 0.3 + (1 if vision_norm else 0))
    model = model.to(torch.float32 if tied else torch.bfloat16)
    folder = HERE / name
    if folder.exists():
        shutil.rmtree(folder)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    (folder / "preprocessor_config.json").write_text(json.dumps(PROCESSOR, indent=2) + "\n")
    if not tied:
        make_other(folder)
    fp64.write(HERE / name, fp64.exact(model), 5)


def make_other(folder):
    """The names of modules, in two files, and a config.json without defaults."""
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    spellings = {"language_model.lm_head.": "lm_head.", "language_model.model.": "model.language_model.",
                 "vision_tower.": "model.vision_tower.vision_model.", "multi_modal_projector.": "model.multi_modal_projector."}
    renamed = {}
    for key, tensor in tensors.items():
        start = next(start for start in spellings if key.startswith(start))
        renamed[spellings[start] + key[len(start):]] = tensor
    names = sorted(renamed)
    index = {"metadata": {"total_size": sum(t.numel() * t.element_size() for t in renamed.values())}, "weight_map": {}}
    for number, part in enumerate((names[:30], names[30:])):
        file = f"model-0000{number + 1}-of-00002.safetensors"
        save_file({key: renamed[key] for key in part}, folder / file, metadata={"format": "pt"})
        index["weight_map"].update({key: file for key in part})
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config["torch_dtype"] = config.pop("dtype")
    config["eos_token_id"] = [1, 44]
    text, vision = config["text_config"], config["vision_config"]
    rotary = text.pop("rope_parameters")
    text["rope_scaling"] = {"factor": rotary["full_attention"]["factor"], "rope_type": "linear"}
    text["sliding_window_pattern"] = 2
    for key in ("layer_types", "_sliding_window_pattern", "rms_norm_eps", "attention_bias", "tie_word_embeddings",
                "use_bidirectional_attention", "attn_logit_softcapping", "final_logit_softcapping"):
        del text[key]
    for key in ("hidden_act", "layer_norm_eps", "num_channels", "attention_dropout"):
        del vision[key]
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


if __name__ == "__main__":
    torch.manual_seed(20260712)
    for model_name in ("tied", "untied"):
        make(model_name)
