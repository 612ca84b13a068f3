#!/usr/bin/env python3
"""Makes this folder's references with Hugging Face's PEFT: a small LlamaForCausalLM and a small GPT2LMHeadModel with random
weights and LoRA or DoRA adapters on all linear layers, as `save_pretrained` writes them, and what fine-tuning them in fp64
computes.

    python3 make.py        # needs torch, transformers, peft; made with 2.15.0, 5.23.0, 0.21.2

llama/, gpt2/, llama_dora/, gpt2_dora/
                 the model: config.json and model.safetensors in fp32
  adapter/       adapter_config.json and adapter_model.safetensors in fp32, with random A and B, and random magnitudes
  results.txt    "tokens" with a text of 4 · 13 + 1 tokens; "logits" with the first 8 logits after the first 13 tokens of the
                 text, with the adapters; per step of AdamW a line "step LOSS NORM" with the mean loss of the 4 samples of 13
                 tokens, and the norm of all gradients of the adapters; after 5 steps the logits again

Whatever the model's type, transformers computes Llama's angles and RMSNorm in fp32; both are replaced by the same formulas in
fp64.
"""
import json
import pathlib
import shutil

import torch
from peft import LoraConfig, get_peft_model
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

SEQUENCE, VOCABULARY, SAMPLES, STEPS = 13, 31, 4, 5


class ExactRotary(torch.nn.Module):
    """Cosines and sines as LlamaRotaryEmbedding makes them, in fp64."""

    def __init__(self, head, theta):
        super().__init__()
        self.head, self.theta = head, theta

    def forward(self, x, position_ids):
        i = torch.arange(0, self.head, 2, dtype=torch.float64)
        angles = position_ids[:, :, None].double() * self.theta ** (-i / self.head)
        angles = torch.cat((angles, angles), dim=-1)
        return angles.cos().to(x.dtype), angles.sin().to(x.dtype)


class ExactNorm(torch.nn.Module):
    """LlamaRMSNorm in fp64."""

    def __init__(self, norm):
        super().__init__()
        self.weight, self.epsilon = norm.weight, norm.variance_epsilon

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.epsilon))


def make_exact(model):
    for module in list(model.modules()):
        for name, child in module.named_children():
            if type(child).__name__ == "LlamaRMSNorm":
                setattr(module, name, ExactNorm(child))
            if type(child).__name__ == "LlamaRotaryEmbedding":
                setattr(module, name, ExactRotary(4, 10000.0))


def llama():
    return LlamaForCausalLM(LlamaConfig(
        num_hidden_layers=2, hidden_size=24, num_attention_heads=6, num_key_value_heads=3, intermediate_size=10,
        max_position_embeddings=SEQUENCE, vocab_size=VOCABULARY, rms_norm_eps=1e-5, rope_theta=10000.0,
        tie_word_embeddings=False, bos_token_id=30, eos_token_id=30, attn_implementation="sdpa"))


def gpt2():
    return GPT2LMHeadModel(GPT2Config(
        n_layer=2, n_embd=24, n_head=3, n_inner=40, n_positions=SEQUENCE, vocab_size=VOCABULARY, resid_pdrop=0.0,
        embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=30, eos_token_id=30, attn_implementation="sdpa"))


def make(folder, model, adapter):
    if folder.exists():
        shutil.rmtree(folder)
    with torch.no_grad():  # far from the symmetric beginning: every gain matters
        for name, p in model.named_parameters():
            gain = "norm" in name or "ln_" in name and name.endswith("weight")
            p.copy_(torch.randn(p.shape) * 0.3 + (1 if gain else 0))
    model.save_pretrained(folder)
    for extra in folder.glob("generation_config.json"):
        extra.unlink()
    peft = get_peft_model(model, adapter)
    with torch.no_grad():
        for name, p in peft.named_parameters():
            if "lora_magnitude" in name:
                p.mul_(1 + torch.randn(p.shape) * 0.2)
            elif "lora_" in name:
                p.copy_(torch.randn(p.shape) * 0.2)
    peft.peft_config["default"].base_model_name_or_path = None
    peft.save_pretrained(folder / "adapter")
    (folder / "adapter" / "README.md").unlink()
    config = folder / "adapter" / "adapter_config.json"
    values = json.loads(config.read_text())
    values["target_modules"] = sorted(values["target_modules"])  # a set, in any order
    config.write_text(json.dumps(values, indent=2, sort_keys=True) + "\n")

    peft = peft.double().train()
    make_exact(peft)
    text = torch.randint(0, VOCABULARY, (SAMPLES * SEQUENCE + 1,))
    inputs, targets = text[:-1].reshape(SAMPLES, SEQUENCE), text[1:].reshape(SAMPLES, SEQUENCE)
    trained = [p for p in peft.parameters() if p.requires_grad]
    groups = [{"params": [p for p in trained if p.dim() > 1]},
              {"params": [p for p in trained if p.dim() == 1], "weight_decay": 0}]  # magnitudes do not decay
    optimizer = torch.optim.AdamW([g for g in groups if g["params"]], lr=0.01, betas=(0.9, 0.95), eps=1e-8,
                                  weight_decay=0.1)

    def logits():
        with torch.no_grad():
            return " ".join(f"{x:.17g}" for x in peft(inputs[:1]).logits[0, -1, :8].tolist())

    lines = ["tokens " + " ".join(str(t) for t in text.tolist()), "logits " + logits()]
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(peft(inputs).logits.reshape(-1, VOCABULARY), targets.reshape(-1))
        loss.backward()
        norm = torch.sqrt(sum((p.grad**2).sum() for p in trained))
        lines.append(f"step {loss.item():.17g} {norm.item():.17g}")
        optimizer.step()
    lines.append("logits " + logits())
    (folder / "results.txt").write_text("\n".join(lines) + "\n")


LLAMA = dict(r=3, lora_alpha=5, lora_dropout=0.0, task_type="CAUSAL_LM",
             target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"])
GPT2 = dict(r=4, lora_alpha=6, use_rslora=True, lora_dropout=0.0, task_type="CAUSAL_LM", fan_in_fan_out=True,
            target_modules=["c_attn", "attn.c_proj", "c_fc", "mlp.c_proj"])
here = pathlib.Path(__file__).parent
torch.manual_seed(20260)
make(here / "llama", llama(), LoraConfig(**LLAMA))
make(here / "gpt2", gpt2(), LoraConfig(**GPT2))
make(here / "llama_dora", llama(), LoraConfig(**LLAMA, use_dora=True))
make(here / "gpt2_dora", gpt2(), LoraConfig(**GPT2, use_dora=True))
