#!/usr/bin/env python3
"""Makes this folder's small LLaVAs with Hugging Face transformers (CPU): a Llama of 2 layers that reads images of 12 × 12 pixels
in patches of 4 × 4, with random weights.

    python3 make.py      # needs torch, transformers, safetensors

clip: CLIP's encoder with 3 layers, of which vision_feature_layer = -2 leaves out the last one; fp32, as transformers 5 writes it.
siglip: SigLIP's encoder with 2 layers and its head, which the model does not use; bf16, tied embeddings, two shards, and the
names of tensors and keys of config.json of files before transformers 4.52.

NAME: config.json, preprocessor_config.json and safetensors. NAME.txt and NAME.f64: loss and gradients in fp64 for the samples of
../llava_fp64/make.py, in the form that is described there.
"""
import importlib.util
import json
import pathlib
import shutil

import torch
from safetensors.torch import load_file, save_file
from transformers import (CLIPImageProcessor, CLIPVisionConfig, LlamaConfig, LlavaConfig, LlavaForConditionalGeneration,
                          SiglipImageProcessor, SiglipVisionConfig)

HERE = pathlib.Path(__file__).parent
SPEC = importlib.util.spec_from_file_location("llava_fp64", HERE.parent / "llava_fp64" / "make.py")
fp64 = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(fp64)

TEXT = dict(vocab_size=fp64.VOCABULARY, hidden_size=16, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
            intermediate_size=18, max_position_embeddings=64, rms_norm_eps=1e-5)
VISION = dict(hidden_size=12, intermediate_size=14, num_attention_heads=3, image_size=fp64.IMAGE, patch_size=fp64.PATCH)


def make(name):
    clip = name == "clip"
    text = LlamaConfig(tie_word_embeddings=not clip, **TEXT)
    vision = CLIPVisionConfig(num_hidden_layers=3, **VISION) if clip else SiglipVisionConfig(num_hidden_layers=2, **VISION)
    config = LlavaConfig(vision_config=vision, text_config=text, image_token_index=fp64.PLACEHOLDER,
                         image_seq_length=fp64.TOKENS, tie_word_embeddings=not clip,
                         vision_feature_layer=-2 if clip else -1,
                         vision_feature_select_strategy="default" if clip else "full")
    model = LlavaForConditionalGeneration(config).eval()
    with torch.no_grad():  # far from the symmetric beginning: every gain matters
        for parameter, p in model.named_parameters():
            p.copy_(torch.randn(p.shape) * 0.3 + (1 if "norm" in parameter and parameter.endswith("weight") else 0))
    model = model.to(torch.float32 if clip else torch.bfloat16)
    folder = HERE / name
    if folder.exists():
        shutil.rmtree(folder)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    processor = (CLIPImageProcessor(size={"shortest_edge": 12}, crop_size={"height": 12, "width": 12}) if clip
                 else SiglipImageProcessor(size={"height": 12, "width": 12}))
    processor.save_pretrained(folder)
    if not clip:
        make_old(folder)
    model = model.double()
    model.set_attn_implementation("sdpa")  # its softmax is not in fp32
    for module in list(model.modules()):
        for key, child in module.named_children():
            if type(child).__name__ == "LlamaRMSNorm":
                setattr(module, key, fp64.ExactNorm(child))
            if type(child).__name__ == "LlamaRotaryEmbedding":
                setattr(module, key, fp64.ExactRotary(text, fp64.SEQUENCE))
    write_results(model, name)


def make_old(folder):
    """The names and keys of older versions, in two files."""
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    tensors = {key.replace("vision_tower.", "vision_tower.vision_model."): t for key, t in tensors.items()}
    assert "vision_tower.vision_model.head.probe" in tensors
    names = sorted(tensors)
    index = {"metadata": {"total_size": sum(t.numel() * t.element_size() for t in tensors.values())}, "weight_map": {}}
    for number, part in enumerate((names[:20], names[20:])):
        file = f"model-0000{number + 1}-of-00002.safetensors"
        save_file({key: tensors[key] for key in part}, folder / file, metadata={"format": "pt"})
        index["weight_map"].update({key: file for key in part})
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config["torch_dtype"] = config.pop("dtype")
    config["image_token_id"] = config.pop("image_token_index")
    config["ignore_index"] = -100
    config["text_config"]["rope_theta"] = config["text_config"].pop("rope_parameters")["rope_theta"]
    for key in ("hidden_act", "layer_norm_eps", "num_channels", "vision_use_head", "attention_dropout"):
        del config["vision_config"][key]  # as files that have only what differs from the class
    for key in ("image_seq_length", "multimodal_projector_bias", "tie_word_embeddings"):
        del config[key]
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def arrays(model, name):
    """Those of llava_fp64, without the output of tied embeddings and the tensors that no result depends on."""
    tensors = {key.replace("vision_tower.vision_model.", "vision_tower."): value for key, value in model.named_parameters()}
    original = model.named_parameters
    unused = ("encoder.layers.2.", "post_layernorm", "vision_tower.head.")
    model.named_parameters = lambda: [(k, p) for k, p in tensors.items() if not any(word in k for word in unused)]
    model.parameters, everything = (lambda: [p for _, p in model.named_parameters()]), model.parameters
    try:
        return fp64.arrays(model, name)
    finally:
        model.named_parameters, model.parameters = original, everything


def write_results(model, name):
    ids = fp64.tokens()
    targets = ids[:, 1:].clone()
    targets[targets == fp64.PLACEHOLDER] = -100
    logits = model(input_ids=ids[:, :-1], pixel_values=fp64.pixels(name)).logits
    assert logits.dtype == torch.float64
    loss = torch.nn.functional.cross_entropy(logits.reshape(-1, fp64.VOCABULARY), targets.reshape(-1))
    loss.backward()
    lines = [f"loss {loss.item()!r}"]
    some = []
    for array, parts in arrays(model, name):
        g = torch.cat([part.grad.reshape(-1) for part in parts])
        lines.append(f"{array} {g.sum().item()!r} {(g * fp64.noise(len(g))).sum().item()!r} {(g * g).sum().item()!r}")
        some.append(g[::fp64.STRIDE])
    (HERE / f"{name}.txt").write_text("\n".join(lines) + "\n")
    torch.cat(some).numpy().astype("<f8").tofile(HERE / f"{name}.f64")


if __name__ == "__main__":
    torch.manual_seed(20260711)
    for model_name in ("clip", "siglip"):
        make(model_name)
