#!/usr/bin/env python3
"""Makes this folder's reference numbers with Hugging Face transformers' LlavaForConditionalGeneration (CPU, fp64): a language model
of 2 layers, hidden 32, 4 heads, 2 heads of keys and values, feed-forward 36 and vocabulary 53, that reads images of 12 × 12
pixels in patches of 4 × 4. "clip" has CLIP's encoder with 3 layers, of which the last one is not used, hidden 24, 3 heads and
feed-forward 40; "siglip" has SigLIP's with 2 layers. Neither uses the norm after its last layer.

Samples have 31 tokens and 0, 1 and 2 images; an image has one token for each patch. Weights, tokens and pixels come from integer
formulas that the test repeats exactly, so that only results are stored.

    python3 make.py      # needs torch, transformers

NAME.txt: a line "loss" with the mean loss of the targets; then for every array of Trireme's model a line "NAME SUM PROJECTION
SQUARES" about its gradient g: sum of g, sum of g·r with r of the formula `noise`, sum of g².
NAME.f64: every 7th element of each array's gradient, in the order of the lines.

The targets are the next tokens, except those that are an image's. Whatever the model's type, transformers computes rotary
positions and the variance of a norm in fp32: here they are fp64.
"""
import pathlib
import sys

import torch
import transformers
from transformers import CLIPVisionConfig, LlamaConfig, LlavaConfig, LlavaForConditionalGeneration, SiglipVisionConfig

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "decoders_fp64"))
from make import LAYER, ExactNorm, ExactRotary, noise, weight  # noqa: E402

LAYERS, HIDDEN, FEED_FORWARD, VOCABULARY, SEQUENCE, BATCH, STRIDE = 2, 32, 36, 53, 31, 3, 7
VISION, IMAGE, PATCH, PLACEHOLDER, MOST = 24, 12, 4, 50, 2
TOKENS = (IMAGE // PATCH) ** 2  # of an image
MEAN = {"clip": (0.48145466, 0.4578275, 0.40821073), "siglip": (0.5, 0.5, 0.5)}
DEVIATION = {"clip": (0.26862954, 0.26130258, 0.27577711), "siglip": (0.5, 0.5, 0.5)}

VISION_LAYER = {
    "attention_norm.gain": ["layer_norm1.weight"],
    "attention_norm.bias": ["layer_norm1.bias"],
    "attention.query": ["self_attn.q_proj.weight"],
    "attention.key_value": ["self_attn.k_proj.weight", "self_attn.v_proj.weight"],
    "attention.query_bias": ["self_attn.q_proj.bias"],
    "attention.key_value_bias": ["self_attn.k_proj.bias", "self_attn.v_proj.bias"],
    "attention.output": ["self_attn.out_proj.weight"],
    "attention.output_bias": ["self_attn.out_proj.bias"],
    "feed_forward_norm.gain": ["layer_norm2.weight"],
    "feed_forward_norm.bias": ["layer_norm2.bias"],
    "feed_forward.up": ["mlp.fc1.weight"],
    "feed_forward.up_bias": ["mlp.fc1.bias"],
    "feed_forward.down": ["mlp.fc2.weight"],
    "feed_forward.down_bias": ["mlp.fc2.bias"],
}


def arrays(model, name):
    """(array, its tensors) in a fixed order, which numbers the arrays for `weight`."""
    tensors = {key.replace("vision_tower.vision_model.", "vision_tower."): value for key, value in model.named_parameters()}
    vision, text = "model.vision_tower", "model.language_model"
    embeddings = f"{vision}.embeddings"
    names = [("embedding.token", [f"{text}.embed_tokens.weight"]), ("vision.patch", [f"{embeddings}.patch_embedding.weight"]),
             ("vision.patch_bias", [f"{embeddings}.patch_embedding.bias"]),
             ("vision.position", [f"{embeddings}.position_embedding.weight"]),
             ("vision.class_token", [f"{embeddings}.class_embedding"])]
    for end in ("gain", "bias"):
        theirs = "weight" if end == "gain" else "bias"
        names.append((f"vision.layers.0.first_norm.{end}", [f"{vision}.pre_layrnorm.{theirs}"]))
    for i in range(2):
        names += [(f"vision.layers.{i}.{ours}", [f"{vision}.encoder.layers.{i}.{t}" for t in theirs])
                  for ours, theirs in VISION_LAYER.items()]
    for ours, theirs in (("up", "linear_1"), ("down", "linear_2")):
        names += [(f"projector.{ours}", [f"model.multi_modal_projector.{theirs}.weight"]),
                  (f"projector.{ours}_bias", [f"model.multi_modal_projector.{theirs}.bias"])]
    for layer in range(LAYERS):
        names += [(f"layers.{layer}.{ours}", [f"{text}.layers.{layer}.{t}" for t in theirs]) for ours, theirs in LAYER.items()]
    names += [("final_norm.gain", [f"{text}.norm.weight"]), ("output.weight", ["lm_head.weight"])]
    found = [(ours, [tensors[t] for t in theirs]) for ours, theirs in names if theirs and theirs[0] in tensors]
    used = sum(part.numel() for _, parts in found for part in parts)
    unused = [key for key in tensors if "encoder.layers.2." in key or "post_layernorm" in key]
    assert used + sum(tensors[key].numel() for key in unused) == sum(p.numel() for p in model.parameters())
    return found


def tokens():
    """[BATCH, SEQUENCE + 1] token ids: sample b has b images, from token 2 and from token 2 + TOKENS + 5."""
    b = torch.arange(BATCH).reshape(-1, 1)
    s = torch.arange(SEQUENCE + 1).reshape(1, -1)
    ids = (7919 + b * 104729 + s * 1299709 + s * s * (b + 31)) % PLACEHOLDER
    for sample in range(BATCH):
        for image in range(sample):
            first = 2 + image * (TOKENS + 5)
            ids[sample, first:first + TOKENS] = PLACEHOLDER
    return ids


def pixels(name):
    """[images, 3, IMAGE, IMAGE] values of the samples' images in order: image i of sample b is number b MOST + i."""
    numbers = torch.tensor([b * MOST + i for b in range(BATCH) for i in range(b)]).reshape(-1, 1)
    at = torch.arange(3 * IMAGE * IMAGE).reshape(1, -1)
    v = ((numbers * 7001 + at) * 2654435761 % 2**32 // 2**24).reshape(-1, IMAGE, IMAGE, 3).double() / 255
    v = (v - torch.tensor(MEAN[name], dtype=torch.float64)) / torch.tensor(DEVIATION[name], dtype=torch.float64)
    return v.permute(0, 3, 1, 2).contiguous()


def make_model(name):
    text = LlamaConfig(vocab_size=VOCABULARY, hidden_size=HIDDEN, num_hidden_layers=LAYERS, num_attention_heads=4,
                       num_key_value_heads=2, intermediate_size=FEED_FORWARD, max_position_embeddings=64, rms_norm_eps=1e-5,
                       tie_word_embeddings=False)
    sizes = dict(hidden_size=VISION, intermediate_size=40, num_attention_heads=3, image_size=IMAGE, patch_size=PATCH)
    vision = (CLIPVisionConfig(num_hidden_layers=3, **sizes) if name == "clip"
              else SiglipVisionConfig(num_hidden_layers=2, vision_use_head=False, **sizes))
    config = LlavaConfig(vision_config=vision, text_config=text, image_token_index=PLACEHOLDER, projector_hidden_act="gelu",
                         vision_feature_layer=-2 if name == "clip" else -1,
                         vision_feature_select_strategy="default" if name == "clip" else "full")
    model = LlavaForConditionalGeneration(config).double().eval()
    model.set_attn_implementation("sdpa")  # its softmax is not in fp32
    for module in list(model.modules()):
        for key, child in module.named_children():
            if type(child).__name__ == "LlamaRMSNorm":
                setattr(module, key, ExactNorm(child))
            if type(child).__name__ == "LlamaRotaryEmbedding":
                setattr(module, key, ExactRotary(text, SEQUENCE))
    return model


def make(folder, name):
    model = make_model(name)
    with torch.no_grad():
        for number, (array, parts) in enumerate(arrays(model, name)):
            sizes = [part.numel() for part in parts]
            for part, piece in zip(parts, weight(number, array, sum(sizes), 1).split(sizes)):
                part.copy_(piece.reshape(part.shape))
    ids = tokens()
    targets = ids[:, 1:].clone()
    targets[targets == PLACEHOLDER] = -100
    logits = model(input_ids=ids[:, :-1], pixel_values=pixels(name)).logits
    assert logits.dtype == torch.float64
    loss = torch.nn.functional.cross_entropy(logits.reshape(-1, VOCABULARY), targets.reshape(-1))
    loss.backward()
    lines = [f"loss {loss.item()!r}"]
    some = []
    for array, parts in arrays(model, name):
        g = torch.cat([part.grad.reshape(-1) for part in parts])
        lines.append(f"{array} {g.sum().item()!r} {(g * noise(len(g))).sum().item()!r} {(g * g).sum().item()!r}")
        some.append(g[::STRIDE])
    (folder / f"{name}.txt").write_text("\n".join(lines) + "\n")
    torch.cat(some).numpy().astype("<f8").tofile(folder / f"{name}.f64")


if __name__ == "__main__":
    print(transformers.__version__)
    for model_name in MEAN:
        make(pathlib.Path(__file__).parent, model_name)
