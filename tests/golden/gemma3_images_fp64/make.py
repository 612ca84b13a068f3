#!/usr/bin/env python3
"""Makes this folder's reference numbers with Hugging Face transformers' Gemma3ForConditionalGeneration (CPU, fp64): a language
model of 2 layers, hidden 32, 4 heads of 10, 2 heads of keys and values, feed-forward 36 and vocabulary 53, that reads images of
12 × 12 pixels in patches of 2 × 2 with SigLIP's encoder of 2 layers, hidden 24, 3 heads and feed-forward 40. The mean of 2 × 2
patches is a token, so that an image has 9 tokens, which see one another. The first layer has a window: of 5 tokens in "short",
fewer than those of an image, and of 13 in "long"; the second layer has none.

Samples, weights and pixels are those of ../llava_fp64/make.py: samples of 31 tokens with 0, 1 and 2 images. "joined" is "short"
with the second image immediately after the first, so that the class lets the tokens of both see one another.

    python3 make.py      # needs torch, transformers

NAME.txt and NAME.f64: loss and gradients in the form of ../llava_fp64. Whatever the model's type, transformers computes rotary
positions, norms and the factor of the embeddings in fp32: here they are fp64.
"""
import importlib.util
import math
import pathlib
import sys

import torch
import transformers
from transformers import Gemma3Config, Gemma3ForConditionalGeneration, Gemma3TextConfig, SiglipVisionConfig

HERE = pathlib.Path(__file__).parent
SPEC = importlib.util.spec_from_file_location("llava_fp64", HERE.parent / "llava_fp64" / "make.py")
llava = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(llava)
from make import SANDWICH, ExactNorm, ExactRotary, noise, weight  # noqa: E402

LAYERS, HIDDEN, PATCH = 2, 32, 2
WINDOWS = {"short": 5, "long": 13, "joined": 5}
GAP = {"short": 5, "long": 5, "joined": 0}  # tokens between two images


def arrays(model):
    """(array, its tensors, whether the array is the transposed tensor) in a fixed order, which numbers the arrays."""
    tensors = {key.replace("vision_tower.vision_model.", "vision_tower."): value for key, value in model.named_parameters()}
    vision, text, projector = "model.vision_tower", "model.language_model", "model.multi_modal_projector"
    embeddings = f"{vision}.embeddings"
    names = [("embedding.token", [f"{text}.embed_tokens.weight"]), ("vision.patch", [f"{embeddings}.patch_embedding.weight"]),
             ("vision.patch_bias", [f"{embeddings}.patch_embedding.bias"]),
             ("vision.position", [f"{embeddings}.position_embedding.weight"])]
    for i in range(model.config.vision_config.num_hidden_layers):
        names += [(f"vision.layers.{i}.{ours}", [f"{vision}.encoder.layers.{i}.{t}" for t in theirs])
                  for ours, theirs in llava.VISION_LAYER.items()]
    last = f"vision.layers.{model.config.vision_config.num_hidden_layers - 1}.final_norm"
    names += [(f"{last}.gain", [f"{vision}.post_layernorm.weight"]), (f"{last}.bias", [f"{vision}.post_layernorm.bias"]),
              ("projector.norm.gain", [f"{projector}.mm_soft_emb_norm.weight"]),
              ("projector.output", [f"{projector}.mm_input_projection_weight"])]
    for layer in range(model.config.text_config.num_hidden_layers):
        names += [(f"layers.{layer}.{ours}", [f"{text}.layers.{layer}.{t}" for t in theirs]) for ours, theirs in SANDWICH.items()]
    names += [("final_norm.gain", [f"{text}.norm.weight"]), ("output.weight", ["lm_head.weight"])]  # if not tied
    found = [(ours, [tensors[t] for t in theirs], ours == "projector.output")
             for ours, theirs in names if theirs and theirs[0] in tensors]
    head = [key for key in tensors if ".head." in key]  # SigLIP's pooling head, which the model does not use
    used = sum(part.numel() for _, parts, _ in found for part in parts)
    assert used + sum(tensors[key].numel() for key in head) == sum(p.numel() for p in model.parameters())
    return found


def exact(model, sequence=llava.SEQUENCE):
    """Replaces what computes in fp32 whatever the type of the model, which is then an fp64 one."""
    model = model.double().eval()
    model.set_attn_implementation("sdpa")  # its softmax is not in fp32
    text = model.config.text_config
    embeddings = model.get_input_embeddings()
    embeddings.embed_scale = torch.tensor(math.sqrt(text.hidden_size), dtype=torch.float64)
    for module in list(model.modules()):
        for key, child in module.named_children():
            if type(child).__name__ == "Gemma3RMSNorm":
                setattr(module, key, ExactNorm(child))
            if type(child).__name__ == "Gemma3RotaryEmbedding":
                setattr(module, key, ExactRotary(text, sequence))
    return model


def make_model(name):
    text = Gemma3TextConfig(
        vocab_size=llava.VOCABULARY, hidden_size=HIDDEN, num_hidden_layers=LAYERS, num_attention_heads=4, num_key_value_heads=2,
        head_dim=10, intermediate_size=llava.FEED_FORWARD, max_position_embeddings=64, rms_norm_eps=1e-6,
        query_pre_attn_scalar=12, sliding_window=WINDOWS[name], layer_types=["sliding_attention", "full_attention"],
        rope_parameters={"full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
                         "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}})
    vision = SiglipVisionConfig(hidden_size=llava.VISION, intermediate_size=40, num_attention_heads=3, num_hidden_layers=2,
                                image_size=llava.IMAGE, patch_size=PATCH, vision_use_head=False)
    config = Gemma3Config(vision_config=vision, text_config=text, image_token_index=llava.PLACEHOLDER, mm_tokens_per_image=9,
                          boi_token_index=51, eoi_token_index=52)
    return exact(Gemma3ForConditionalGeneration(config))


def set_weights(model):
    with torch.no_grad():
        for number, (array, parts, transposed) in enumerate(arrays(model)):
            sizes = [part.numel() for part in parts]
            # Gains of LayerNorms are around 1, those of Gemma's norms around 0.
            gain = 1 if array.startswith("vision.") else 0
            for part, piece in zip(parts, weight(number, array, sum(sizes), gain).split(sizes)):
                part.copy_(piece.reshape(part.T.shape).T if transposed else piece.reshape(part.shape))


def tokens(gap):
    """[BATCH, SEQUENCE + 1] token ids: sample b has b images, from token 2 and from token 2 + TOKENS + gap."""
    b = torch.arange(llava.BATCH).reshape(-1, 1)
    s = torch.arange(llava.SEQUENCE + 1).reshape(1, -1)
    ids = (7919 + b * 104729 + s * 1299709 + s * s * (b + 31)) % llava.PLACEHOLDER
    for sample in range(llava.BATCH):
        for image in range(sample):
            first = 2 + image * (llava.TOKENS + gap)
            ids[sample, first:first + llava.TOKENS] = llava.PLACEHOLDER
    return ids


def write(stem, model, gap):
    ids = tokens(gap)
    targets = ids[:, 1:].clone()
    targets[targets == llava.PLACEHOLDER] = -100
    inputs = ids[:, :-1]
    types = (inputs == llava.PLACEHOLDER).long()
    logits = model(input_ids=inputs, pixel_values=llava.pixels("siglip"), token_type_ids=types).logits
    assert logits.dtype == torch.float64
    loss = torch.nn.functional.cross_entropy(logits.reshape(-1, llava.VOCABULARY), targets.reshape(-1))
    loss.backward()
    lines = [f"loss {loss.item()!r}"]
    some = []
    for array, parts, transposed in arrays(model):
        g = torch.cat([(part.grad.T if transposed else part.grad).reshape(-1) for part in parts])
        lines.append(f"{array} {g.sum().item()!r} {(g * noise(len(g))).sum().item()!r} {(g * g).sum().item()!r}")
        some.append(g[::llava.STRIDE])
    stem.with_suffix(".txt").write_text("\n".join(lines) + "\n")
    torch.cat(some).numpy().astype("<f8").tofile(stem.with_suffix(".f64"))


if __name__ == "__main__":
    print(transformers.__version__)
    for model_name in sys.argv[1:] or WINDOWS:
        made = make_model(model_name)
        set_weights(made)
        write(HERE / model_name, made, GAP[model_name])
