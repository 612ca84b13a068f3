#!/usr/bin/env python3
"""Makes this folder's reference models with Hugging Face transformers: small Llama, Qwen2, Qwen3, Mistral, Gemma, OLMo 2,
Mixtral, OLMoE, GPT-OSS and DeepSeek-V3 models with random weights, as `save_pretrained` writes them, and what they say in fp64
to a few sequences of tokens.

    python3 make.py        # needs torch, transformers, safetensors

NAME_tied/    fp32 weights in one file, embeddings tied; Qwen2 with a window in all layers, Mistral with one
NAME_untied/  bf16 weights in shards with their index, an lm_head of its own, another base of the rotary positions and another
              epsilon; no window; the keys of config.json as they were before 2025

olmo2/        as NAME_untied/

mixtral/, olmoe/  as NAME_untied/, with 5 experts, of which a token uses 2; Mixtral with a window
qwen3_moe/    as NAME_tied/, with 5 experts in the layers 1 and 3 of 4
gpt_oss/      as NAME_untied/, with 5 experts, of which a token uses 2, a window in the first layer, a limit that changes many
              numbers, and scaled rotary positions as in llama_yarn/, but with a ramp that ends between frequencies
deepseek_v3/  as NAME_untied/, with 6 experts in the layers 1 and 2 of 3, of which a token uses 2, from 2 of 3 groups, and
              scaled rotary positions as in llama_yarn/; the bias of routers is fp32

gemma/, gemma2/, gemma3/  bf16 weights in shards, embeddings tied; soft caps that change many numbers; of 3 layers, every second
              one of Gemma 2 and 3 has no window

llama_TYPE/   fp32 weights in one file, with scaled rotary positions of a model that was trained on 6 tokens

Qwen3's heads have 6 elements, where hidden / heads is 4. results.txt of each: per sequence a line with its 14 tokens, a bar,
and the mean loss of predicting all but the first; then a line "logits" with the first 8 logits behind the first 13 tokens of
the first sequence.

For these numbers the parts that transformers computes in fp32 are replaced as in ../decoders_fp64/make.py.
"""
import importlib.util
import json
import pathlib
import shutil

import torch
from transformers import (DeepseekV3Config, DeepseekV3ForCausalLM, Gemma2Config, Gemma2ForCausalLM, Gemma3ForCausalLM,
                          Gemma3TextConfig, GemmaConfig, GemmaForCausalLM, GptOssConfig, GptOssForCausalLM, LlamaConfig,
                          LlamaForCausalLM, MistralConfig, MistralForCausalLM, MixtralConfig, MixtralForCausalLM, Olmo2Config,
                          Olmo2ForCausalLM, OlmoeConfig, OlmoeForCausalLM, Qwen2Config, Qwen2ForCausalLM, Qwen2MoeConfig,
                          Qwen2MoeForCausalLM, Qwen3Config, Qwen3ForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM)

HERE = pathlib.Path(__file__).parent
specification = importlib.util.spec_from_file_location("fp64", HERE.parent / "decoders_fp64" / "make.py")
fp64 = importlib.util.module_from_spec(specification)
specification.loader.exec_module(fp64)

SEQUENCE, VOCABULARY, SEQUENCES = 13, 31, 4

TIED = dict(tie_word_embeddings=True, rms_norm_eps=1e-6)
UNTIED = dict(tie_word_embeddings=False, rms_norm_eps=1e-5, rope_theta=500.0)
MODELS = {
    "qwen2_tied": (Qwen2ForCausalLM, Qwen2Config, dict(TIED, rope_theta=1e6, use_sliding_window=True, sliding_window=4,
                                                       max_window_layers=0)),
    "qwen2_untied": (Qwen2ForCausalLM, Qwen2Config, UNTIED),
    "qwen3_tied": (Qwen3ForCausalLM, Qwen3Config, dict(TIED, rope_theta=1e6, head_dim=6)),
    "qwen3_untied": (Qwen3ForCausalLM, Qwen3Config, dict(UNTIED, head_dim=6)),
    "mistral_tied": (MistralForCausalLM, MistralConfig, dict(TIED, rope_theta=10000.0, sliding_window=5)),
    "mistral_untied": (MistralForCausalLM, MistralConfig, dict(UNTIED, sliding_window=None)),
}
# Heads of 12 have six frequencies: of wavelengths from 6 to several hundred tokens.
SCALED = {
    "linear": dict(factor=2.5),
    "dynamic": dict(factor=2.0),
    "yarn": dict(factor=4.0, beta_fast=0.8, beta_slow=0.1, original_max_position_embeddings=6),
    "llama3": dict(factor=8.0, low_freq_factor=0.1, high_freq_factor=0.8, original_max_position_embeddings=6),
}
MODELS |= {f"llama_{kind}": (LlamaForCausalLM, LlamaConfig,
                             dict(TIED, head_dim=12, rope_parameters=dict(rope_type=kind, rope_theta=100.0, **parameters),
                                  max_position_embeddings=6 if kind == "dynamic" else SEQUENCE))
           for kind, parameters in SCALED.items()}
GEMMA = dict(TIED, num_hidden_layers=3, head_dim=6)
ALTERNATING = dict(GEMMA, sliding_window=5, query_pre_attn_scalar=9, attn_logit_softcapping=2.0, final_logit_softcapping=3.0)
MODELS |= {
    "gemma": (GemmaForCausalLM, GemmaConfig, dict(GEMMA, rope_theta=10000.0)),
    "gemma2": (Gemma2ForCausalLM, Gemma2Config, dict(ALTERNATING, rope_theta=10000.0)),
    "gemma3": (Gemma3ForCausalLM, Gemma3TextConfig, dict(
        ALTERNATING, attn_logit_softcapping=None, layer_types=["sliding_attention", "full_attention", "sliding_attention"],
        rope_parameters={"full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
                         "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}})),
    "olmo2": (Olmo2ForCausalLM, Olmo2Config, UNTIED),
}
EXPERTS = dict(num_experts=5, num_experts_per_tok=2)
MODELS |= {
    "mixtral": (MixtralForCausalLM, MixtralConfig, dict(UNTIED, **EXPERTS, sliding_window=5)),
    "qwen3_moe": (Qwen3MoeForCausalLM, Qwen3MoeConfig, dict(TIED, **EXPERTS, rope_theta=1e6, head_dim=6, num_hidden_layers=4,
                                                            moe_intermediate_size=7, norm_topk_prob=True,
                                                            decoder_sparse_step=2)),
    "olmoe": (OlmoeForCausalLM, OlmoeConfig, dict(UNTIED, **EXPERTS)),
    "qwen2_moe": (Qwen2MoeForCausalLM, Qwen2MoeConfig, dict(UNTIED, **EXPERTS, moe_intermediate_size=7,
                                                            shared_expert_intermediate_size=9, mlp_only_layers=[0])),
    "gpt_oss": (GptOssForCausalLM, GptOssConfig, dict(
        UNTIED, **EXPERTS, head_dim=12, sliding_window=5, swiglu_limit=2.5,
        rope_parameters=dict(rope_type="yarn", rope_theta=100.0, truncate=False, **SCALED["yarn"]))),
    "deepseek_v3": (DeepseekV3ForCausalLM, DeepseekV3Config, dict(
        UNTIED, num_hidden_layers=3, num_key_value_heads=6, q_lora_rank=10, kv_lora_rank=8, qk_nope_head_dim=6,
        qk_rope_head_dim=12, v_head_dim=5, n_routed_experts=6, num_experts_per_tok=2, n_group=3, topk_group=2,
        moe_intermediate_size=7, first_k_dense_replace=1,
        rope_parameters=dict(rope_type="yarn", rope_theta=100.0, mscale=1.0, mscale_all_dim=1.0, **SCALED["yarn"]))),
}


def make(folder, kind, config, settings):
    tied = settings["tie_word_embeddings"]
    gemma = "Gemma" in kind.__name__
    model = kind(config(hidden_size=24, num_attention_heads=6, intermediate_size=10, vocab_size=VOCABULARY, bos_token_id=30,
                        eos_token_id=30, pad_token_id=None, attn_implementation=fp64.attention(kind),
                        **{"num_hidden_layers": 2, "num_key_value_heads": 3, "max_position_embeddings": SEQUENCE, **settings}))
    with torch.no_grad():  # far from the symmetric beginning: every gain matters
        for name, p in model.named_parameters():
            p.copy_(torch.randn(p.shape) * 0.3 + (1 if "norm" in name and not gemma else 0))
    model = model.to(torch.float32 if tied and not gemma else torch.bfloat16)
    for name, bias in model.named_buffers():
        if name.endswith("e_score_correction_bias"):
            bias.data = torch.rand(bias.shape) * 0.3
    if folder.exists():
        shutil.rmtree(folder)
    model.save_pretrained(folder, max_shard_size="1TB" if tied and not gemma else "9KB")
    (folder / "generation_config.json").unlink()
    model = fp64.make_exact(model, SEQUENCE)
    tokens = torch.randint(0, VOCABULARY, (SEQUENCES, SEQUENCE + 1))
    with torch.no_grad():
        logits = model(tokens[:, :-1]).logits
        losses = torch.nn.functional.cross_entropy(logits.transpose(1, 2), tokens[:, 1:], reduction="none").mean(1)
    lines = [" ".join(map(str, ids)) + f" | {loss!r}" for ids, loss in zip(tokens.tolist(), losses.tolist())]
    lines.append("logits " + " ".join(repr(x) for x in logits[0, -1, :8].tolist()))
    (folder / "results.txt").write_text("\n".join(lines) + "\n")
    if not tied:
        make_old(folder)


def make_old(folder):
    """The keys that config.json had before 2025."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    rope = config.pop("rope_parameters")
    config["rope_theta"] = rope.pop("rope_theta")
    if config["model_type"] == "deepseek_v3":
        rope["type"] = rope.pop("rope_type")
        for key in ("rope_interleave", "head_dim", "qk_head_dim"):
            config.pop(key)
    if len(rope) > 1:
        config["rope_scaling"] = rope
    config["torch_dtype"] = config.pop("dtype")
    if config["model_type"] != "gpt_oss":
        config.pop("layer_types", None)
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def main():
    torch.manual_seed(20240607)
    for name, model in MODELS.items():
        make(HERE / name, *model)


if __name__ == "__main__":
    main()
