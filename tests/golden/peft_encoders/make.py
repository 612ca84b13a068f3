#!/usr/bin/env python3
"""Makes this folder's references with Hugging Face's PEFT: adapters of the small T5s of ../t5_hugging_face and of the small
LLaVAs of ../llava_hugging_face, as `save_pretrained` writes them, and what fine-tuning them in fp64 computes.

    python3 make.py        # needs torch, transformers, peft; made with 2.15.0, 5.24.0, 0.21.2

t5          LoRA on all linear layers of v1_1: of the encoder, of the decoder, and of cross-attention
t5_dora     DoRA on queries, keys and values of the encoder of v1_0
clip        LoRA on all linear layers of the encoder of images and of the language model
siglip_dora DoRA on queries, keys and values of the encoder of images

NAME/adapter_config.json, NAME/adapter_model.safetensors: random A and B, and random magnitudes, in fp32
NAME.txt: per step of AdamW a line "step LOSS NORM" with the mean loss of the samples, and the norm of all gradients of the
adapters; for T5 then per sample a line "text" with the first 9 greedy tokens after the training. The samples are those of the
models' folders; sources and targets of T5 end with token 1.
"""
import importlib.util
import json
import pathlib
import shutil

import torch
from peft import LoraConfig, get_peft_model
from transformers import LlavaForConditionalGeneration, T5ForConditionalGeneration

HERE = pathlib.Path(__file__).parent
STEPS, TEXT, END = 5, 9, 1


def load(folder, file):
    """make.py of a neighbouring folder as a module."""
    spec = importlib.util.spec_from_file_location(folder, HERE.parent / folder / file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


t5 = load("t5_fp64", "make.py")
llava = load("llava_fp64", "make.py")


def t5_samples(name):
    lines = (HERE.parent / "t5_hugging_face" / name / "results.txt").read_text().splitlines()
    parts = [[[int(word) for word in part.split()] for part in line.split("|")[:2]] for line in lines]
    source, targets = (torch.tensor([part[i] for part in parts]) for i in (0, 1))
    source[:, -1] = targets[:, -1] = END
    return source, targets


def make_t5(name, of, config):
    model = T5ForConditionalGeneration.from_pretrained(HERE.parent / "t5_hugging_face" / of, attn_implementation="eager",
                                                       dtype=torch.float32)
    source, targets = t5_samples(of)

    def loss(peft):
        logits = peft(input_ids=source, decoder_input_ids=peft.base_model.model._shift_right(targets)).logits
        return torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1))

    def texts(peft):
        lines = []
        for one in source:
            ids = torch.zeros(1, 1, dtype=torch.int64)
            for _ in range(TEXT):
                with torch.no_grad():
                    logits = peft(input_ids=one[None], decoder_input_ids=ids).logits[0, -1]
                first, second = logits.topk(2).values.tolist()
                assert first - second > 1e-6  # far from a tie
                ids = torch.cat((ids, logits.argmax().reshape(1, 1)), 1)
            lines.append("text " + " ".join(str(i) for i in ids[0, 1:].tolist()))
        return lines

    make(name, model, config, t5.make_exact, loss, texts)


def make_llava(name, of, config):
    model = LlavaForConditionalGeneration.from_pretrained(HERE.parent / "llava_hugging_face" / of, dtype=torch.float32)
    ids, pixels = llava.tokens(), llava.pixels(of)
    targets = ids[:, 1:].clone()
    targets[targets == llava.PLACEHOLDER] = -100

    def exact(peft):
        peft = peft.double()
        peft.base_model.model.set_attn_implementation("sdpa")  # its softmax is not in fp32
        for module in list(peft.modules()):
            for key, child in module.named_children():
                if type(child).__name__ == "LlamaRMSNorm":
                    setattr(module, key, llava.ExactNorm(child))
                if type(child).__name__ == "LlamaRotaryEmbedding":
                    setattr(module, key, llava.ExactRotary(model.config.text_config, llava.SEQUENCE))
        return peft

    def loss(peft):
        logits = peft(input_ids=ids[:, :-1], pixel_values=pixels).logits
        return torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1))

    make(name, model, config, exact, loss, lambda peft: [])


def make(name, model, config, exact, loss_of, texts):
    folder = HERE / name
    if folder.exists():
        shutil.rmtree(folder)
    peft = get_peft_model(model, LoraConfig(lora_dropout=0.0, **config))
    with torch.no_grad():
        for parameter, p in peft.named_parameters():
            if "lora_magnitude" in parameter:
                p.mul_(1 + torch.randn(p.shape) * 0.2)
            elif "lora_" in parameter:
                p.copy_(torch.randn(p.shape) * 0.2)
    peft.save_pretrained(folder)
    (folder / "README.md").unlink()
    path = folder / "adapter_config.json"
    values = json.loads(path.read_text())
    values["base_model_name_or_path"] = None  # a path of the machine
    if isinstance(values["target_modules"], list):
        values["target_modules"] = sorted(values["target_modules"])  # a set, in any order
    path.write_text(json.dumps(values, indent=2, sort_keys=True) + "\n")

    peft = exact(peft).eval()
    trained = [p for p in peft.parameters() if p.requires_grad]
    groups = [{"params": [p for p in trained if p.dim() > 1]},
              {"params": [p for p in trained if p.dim() == 1], "weight_decay": 0}]  # magnitudes do not decay
    optimizer = torch.optim.AdamW([g for g in groups if g["params"]], lr=0.01, betas=(0.9, 0.95), eps=1e-8,
                                  weight_decay=0.1)
    lines = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(peft)
        assert loss.dtype == torch.float64
        loss.backward()
        # CLIP's last layer has adapters too, but the model does not use it.
        norm = torch.sqrt(sum((p.grad**2).sum() for p in trained if p.grad is not None))
        lines.append(f"step {loss.item()!r} {norm.item()!r}")
        optimizer.step()
    (HERE / f"{name}.txt").write_text("\n".join(lines + texts(peft)) + "\n")


if __name__ == "__main__":
    torch.manual_seed(20261)
    make_t5("t5", "v1_1", dict(r=3, lora_alpha=5, task_type="SEQ_2_SEQ_LM",
                               target_modules=["q", "k", "v", "o", "wi_0", "wi_1", "wo"]))
    make_t5("t5_dora", "v1_0", dict(
        r=2, lora_alpha=4, use_dora=True, task_type="SEQ_2_SEQ_LM",
        target_modules=r"encoder\.block\.\d+\.layer\.\d+\.SelfAttention\.k"
                       r"|encoder\.block\.\d+\.layer\.\d+\.SelfAttention\.q"
                       r"|encoder\.block\.\d+\.layer\.\d+\.SelfAttention\.v"))
    make_llava("clip", "clip", dict(
        r=3, lora_alpha=5, task_type="CAUSAL_LM",
        target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "out_proj", "fc1", "fc2", "gate_proj", "up_proj",
                        "down_proj"]))
    make_llava("siglip_dora", "siglip", dict(
        r=2, lora_alpha=4, use_dora=True, task_type="CAUSAL_LM",
        target_modules=r"model\.vision_tower\.encoder\.layers\.\d+\.self_attn\.k_proj"
                       r"|model\.vision_tower\.encoder\.layers\.\d+\.self_attn\.q_proj"
                       r"|model\.vision_tower\.encoder\.layers\.\d+\.self_attn\.v_proj"))
