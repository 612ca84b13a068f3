#!/usr/bin/env python3
"""Makes this folder's reference numbers with Hugging Face transformers (CPU): Qwen2ForCausalLM, Qwen3ForCausalLM,
MistralForCausalLM, GemmaForCausalLM, Gemma2ForCausalLM, Gemma3ForCausalLM, Olmo2ForCausalLM, MixtralForCausalLM,
Qwen3MoeForCausalLM, OlmoeForCausalLM, Qwen2MoeForCausalLM, GptOssForCausalLM and DeepseekV3ForCausalLM with 6 heads of queries,
3 of keys and values, vocabulary 503 and sequence 61; heads of 32 for Qwen3, Gemma and GPT-OSS, where hidden / heads is 24, and
a window of 17 tokens for Mistral, and for the first layer of Gemma 2 and 3 and of GPT-OSS. The soft caps of Gemma 2 and the
limit of GPT-OSS are so small that they change many numbers. A token uses 2 of 5 experts of width 24; the first layer of
qwen3_moe_dense has none.

DeepSeek-V3 has 6 heads of keys and values, and a token uses 2 of 6 experts, from 2 of 3 groups; the first of 3 layers has none.
deepseek_v3_plain makes queries from the hidden row itself and has halves of heads turned, not pairs; its rotary positions are
not scaled; its experts are one group, their scores are not normalised, and the shared expert has twice the width.

Weights and tokens come from integer formulas that the test repeats exactly, so that only results are stored.

    python3 make.py [NAME...]      # needs torch, transformers

NAME.txt: a line "loss" with the mean loss of a batch in fp64; then for every array of Trireme's model a line "NAME SUM
PROJECTION SQUARES" about its gradient g in fp64: sum of g, sum of g·r with r of the formula `noise`, sum of g²; then a line
"logits" with the first 16 fp32 logits behind the last 3 tokens of the first sequence. The array "experts.bias" is constant: its
line has zeros.
NAME.f64: every 97th element of each array's gradient, in the order of the lines.

Whatever the model's type, transformers computes the angles of rotary positions, RMSNorm, Gemma's scale of the embeddings, the
scores of routers and the softmax of its "eager" attention in fp32. For the fp64 numbers they are replaced by the same formulas
in fp64; attention is PyTorch's scaled_dot_product_attention, and for Gemma the eager one with its softmax in fp64. GPT-OSS has
only the eager one, with a softmax of the model's type. The fp32 logits are of the model as it is.
"""
import math
import pathlib
import sys

import torch
import transformers
from transformers import (DeepseekV3Config, DeepseekV3ForCausalLM, Gemma2Config, Gemma2ForCausalLM, Gemma3ForCausalLM,
                          Gemma3TextConfig, GemmaConfig, GemmaForCausalLM, GptOssConfig, GptOssForCausalLM, MistralConfig,
                          MistralForCausalLM, MixtralConfig, MixtralForCausalLM, Olmo2Config, Olmo2ForCausalLM, OlmoeConfig,
                          OlmoeForCausalLM, Qwen2Config, Qwen2ForCausalLM, Qwen2MoeConfig, Qwen2MoeForCausalLM, Qwen3Config,
                          Qwen3ForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM, modeling_rope_utils)

LAYERS, HIDDEN, HEADS, GROUPS, FEED_FORWARD, SEQUENCE, VOCABULARY, BATCH, STRIDE = 2, 144, 6, 3, 100, 61, 503, 2, 97

EXPERTS = dict(tie_word_embeddings=False, num_experts=5, num_experts_per_tok=2)
QWEN3_MOE = dict(EXPERTS, rms_norm_eps=1e-6, rope_theta=1e6, head_dim=32, moe_intermediate_size=24, norm_topk_prob=True)
DEEPSEEK_V3 = dict(tie_word_embeddings=False, rms_norm_eps=1e-6, num_hidden_layers=3, num_key_value_heads=HEADS, kv_lora_rank=36,
                   qk_nope_head_dim=20, qk_rope_head_dim=12, v_head_dim=24, n_routed_experts=6, num_experts_per_tok=2,
                   routed_scaling_factor=2.5, moe_intermediate_size=24, first_k_dense_replace=1)
SMALLEST_MARGIN = 1e-6  # between the scores of kept and rejected experts

MODELS = {
    "qwen2": (Qwen2ForCausalLM, Qwen2Config, dict(tie_word_embeddings=True, rms_norm_eps=1e-6, rope_theta=1e6)),
    "qwen3": (Qwen3ForCausalLM, Qwen3Config, dict(tie_word_embeddings=False, rms_norm_eps=1e-6, rope_theta=1e6, head_dim=32)),
    "mistral": (MistralForCausalLM, MistralConfig, dict(tie_word_embeddings=False, rms_norm_eps=1e-5, rope_theta=10000.0,
                                                        sliding_window=17)),
    "gemma": (GemmaForCausalLM, GemmaConfig, dict(tie_word_embeddings=True, rms_norm_eps=1e-6, rope_theta=10000.0, head_dim=32)),
    "gemma2": (Gemma2ForCausalLM, Gemma2Config, dict(tie_word_embeddings=True, rms_norm_eps=1e-6, rope_theta=10000.0, head_dim=32,
                                                     sliding_window=17, query_pre_attn_scalar=20, attn_logit_softcapping=0.7,
                                                     final_logit_softcapping=1.5)),
    "gemma3": (Gemma3ForCausalLM, Gemma3TextConfig, dict(
        tie_word_embeddings=False, rms_norm_eps=1e-6, head_dim=32, sliding_window=17, query_pre_attn_scalar=32,
        layer_types=["sliding_attention", "full_attention"],
        rope_parameters={"full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
                         "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}})),
    "olmo2": (Olmo2ForCausalLM, Olmo2Config, dict(tie_word_embeddings=False, rms_norm_eps=1e-6, rope_theta=5e5)),
    "mixtral": (MixtralForCausalLM, MixtralConfig, dict(EXPERTS, rms_norm_eps=1e-5, rope_theta=1e6, intermediate_size=24)),
    "qwen3_moe": (Qwen3MoeForCausalLM, Qwen3MoeConfig, QWEN3_MOE),
    "qwen3_moe_dense": (Qwen3MoeForCausalLM, Qwen3MoeConfig, dict(QWEN3_MOE, decoder_sparse_step=2)),
    "olmoe": (OlmoeForCausalLM, OlmoeConfig, dict(EXPERTS, rms_norm_eps=1e-5, rope_theta=1e4, intermediate_size=24,
                                                  norm_topk_prob=False)),
    "qwen2_moe": (Qwen2MoeForCausalLM, Qwen2MoeConfig, dict(EXPERTS, rms_norm_eps=1e-6, rope_theta=1e6, moe_intermediate_size=24,
                                                            shared_expert_intermediate_size=28, norm_topk_prob=False)),
    # YaRN's ramp goes from frequency 1.2 to 9.1 of 16, and for deepseek_v3, with ends made whole, from 1 to 5 of 6.
    "gpt_oss": (GptOssForCausalLM, GptOssConfig, dict(
        EXPERTS, rms_norm_eps=1e-5, head_dim=32, sliding_window=17, intermediate_size=24, attention_bias=True, swiglu_limit=2.5,
        rope_parameters=dict(rope_type="yarn", rope_theta=1000.0, factor=4.0, beta_fast=1.5, beta_slow=0.05, truncate=False,
                             original_max_position_embeddings=16))),
    "deepseek_v3": (DeepseekV3ForCausalLM, DeepseekV3Config, dict(
        DEEPSEEK_V3, q_lora_rank=40, rope_interleave=True, n_group=3, topk_group=2, norm_topk_prob=True, n_shared_experts=1,
        rope_parameters=dict(rope_type="yarn", rope_theta=100.0, factor=4.0, beta_fast=0.8, beta_slow=0.1, mscale=1.0,
                             mscale_all_dim=1.0, original_max_position_embeddings=16))),
    "deepseek_v3_plain": (DeepseekV3ForCausalLM, DeepseekV3Config, dict(
        DEEPSEEK_V3, q_lora_rank=None, rope_interleave=False, n_group=1, topk_group=1, norm_topk_prob=False, n_shared_experts=2,
        rope_theta=1e4)),
}

# An array of a layer, and the tensors that make it up, one behind the other, where the model has them.
LAYER = {
    "attention_norm.gain": ["input_layernorm.weight"],
    "attention.query_down": ["self_attn.q_a_proj.weight"],
    "attention.query_down_norm.gain": ["self_attn.q_a_layernorm.weight"],
    "attention.query_up": ["self_attn.q_b_proj.weight"],
    "attention.query": ["self_attn.q_proj.weight"],
    "attention.key_value_down": ["self_attn.kv_a_proj_with_mqa.weight"],
    "attention.key_value_norm.gain": ["self_attn.kv_a_layernorm.weight"],
    "attention.key_value_up": ["self_attn.kv_b_proj.weight"],
    "attention.key_rotary": ["self_attn.kv_a_proj_with_mqa.weight"],
    "attention.key_value": ["self_attn.k_proj.weight", "self_attn.v_proj.weight"],
    "attention.query_bias": ["self_attn.q_proj.bias"],
    "attention.key_value_bias": ["self_attn.k_proj.bias", "self_attn.v_proj.bias"],
    "attention.sinks": ["self_attn.sinks"],
    "attention.query_norm.gain": ["self_attn.q_norm.weight"],
    "attention.key_norm.gain": ["self_attn.k_norm.weight"],
    "attention.output": ["self_attn.o_proj.weight"],
    "attention.output_bias": ["self_attn.o_proj.bias"],
    "attention_output_norm.gain": [],
    "feed_forward_norm.gain": ["post_attention_layernorm.weight"],
    "feed_forward.gate_up": ["mlp.gate_proj.weight", "mlp.up_proj.weight"],
    "feed_forward.down": ["mlp.down_proj.weight"],
    "experts.router": ["mlp.gate.weight"],
    "experts.router_bias": ["mlp.router.bias"],
    "experts.bias": ["mlp.gate.e_score_correction_bias"],
    "experts.gate_up": ["mlp.experts.gate_up_proj"],
    "experts.gate_up_bias": ["mlp.experts.gate_up_proj_bias"],
    "experts.down": ["mlp.experts.down_proj"],
    "experts.down_bias": ["mlp.experts.down_proj_bias"],
    "experts.shared_gate_up": ["mlp.shared_expert.gate_proj.weight", "mlp.shared_expert.up_proj.weight"],
    "experts.shared_down": ["mlp.shared_expert.down_proj.weight"],
    "experts.shared_gate": ["mlp.shared_expert_gate.weight"],
    "feed_forward_output_norm.gain": [],
}
# With norms before and after.
SANDWICH = LAYER | {
    "attention_output_norm.gain": ["post_attention_layernorm.weight"],
    "feed_forward_norm.gain": ["pre_feedforward_layernorm.weight"],
    "feed_forward_output_norm.gain": ["post_feedforward_layernorm.weight"],
}
# With norms only after.
OUTPUT = SANDWICH | {"attention_norm.gain": [], "feed_forward_norm.gain": []}
# With other names.
GPT_OSS = LAYER | {"experts.router": ["mlp.router.weight"]}
DEEPSEEK = LAYER | {
    "experts.shared_gate_up": ["mlp.shared_experts.gate_proj.weight", "mlp.shared_experts.up_proj.weight"],
    "experts.shared_down": ["mlp.shared_experts.down_proj.weight"],
}
# By type of model; LAYER for the others.
TABLES = {"gemma2": SANDWICH, "gemma3_text": SANDWICH, "olmo2": OUTPUT, "gpt_oss": GPT_OSS, "deepseek_v3": DEEPSEEK}

# Views in our layout of tensors of GPT-OSS's experts, which have a column for each output; those of gate and up take turns.
GPT_OSS_VIEWS = {
    "experts.gate_up": lambda tensor: tensor.unflatten(-1, (-1, 2)).permute(0, 3, 2, 1),
    "experts.gate_up_bias": lambda tensor: tensor.unflatten(-1, (-1, 2)).transpose(1, 2),
    "experts.down": lambda tensor: tensor.transpose(1, 2),
}
# The last rows of DeepSeek's first product for keys make the keys that all heads share.
DEEPSEEK_VIEWS = {
    "attention.key_value_down": lambda tensor: tensor[:DEEPSEEK_V3["kv_lora_rank"]],
    "attention.key_rotary": lambda tensor: tensor[DEEPSEEK_V3["kv_lora_rank"]:],
}
VIEWS = {"gpt_oss": GPT_OSS_VIEWS, "deepseek_v3": DEEPSEEK_VIEWS}


def arrays(model):
    """(name, its tensors, what makes a view of them in our layout) in a fixed order, which numbers the arrays for `weight`."""
    tensors = dict(model.named_parameters()) | dict(model.named_buffers())
    family = model.config.model_type
    views = VIEWS.get(family, {})
    as_it_is = lambda tensor: tensor
    names = [("embedding.token", ["model.embed_tokens.weight"], as_it_is)]
    for layer in range(model.config.num_hidden_layers):
        names += [(f"layers.{layer}.{ours}", [f"model.layers.{layer}.{t}" for t in theirs], views.get(ours, as_it_is))
                  for ours, theirs in TABLES.get(family, LAYER).items()]
    names += [("final_norm.gain", ["model.norm.weight"], as_it_is), ("output.weight", ["lm_head.weight"], as_it_is)]
    return [(ours, [tensors[t] for t in theirs], view) for ours, theirs, view in names if theirs and theirs[0] in tensors]


def weight(number, name, count, gain):
    """Multiplicative hash of (array number, element) to (-1/2, 1/2), times 0.4; gains are around `gain`."""
    i = torch.arange(count, dtype=torch.int64)
    hashed = ((i + 1) * 2654435761 + (number + 1) * 40503 * 65537) % 2**32
    value = (hashed.double() / 2**32 - 0.5) * 0.4
    return (gain + value) if name.endswith("gain") else value


def noise(n):
    """Numbers in (-1/2, 1/2) that belong to the elements of an array."""
    i = torch.arange(n, dtype=torch.int64)
    return (((i + 7) * 2246822519) % 2**32).double() / 2**32 - 0.5


def tokens():
    """[BATCH, SEQUENCE + 1] token ids."""
    b = torch.arange(BATCH).reshape(-1, 1)
    s = torch.arange(SEQUENCE + 1).reshape(1, -1)
    return (7919 + b * 104729 + s * 1299709 + s * s * (b + 31)) % VOCABULARY


class Fp64Torch:
    """torch, for functions of transformers that name fp32."""
    float = float32 = torch.float64

    def __getattr__(self, name):
        return getattr(torch, name)


class ExactRotary(torch.nn.Module):
    """Cosines and sines as transformers' rotary embedding makes them, in fp64."""

    def __init__(self, config, sequence):
        super().__init__()
        self.kinds = None
        self.halves = 1 if config.model_type == "gpt_oss" else 2  # a number for each pair of elements, or for each element
        if "full_attention" in config.rope_parameters:  # one for each kind of layer
            self.kinds = {kind: self.frequencies_of(config, parameters) for kind, parameters in config.rope_parameters.items()}
            self.factor = 1
            return
        head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        kind = config.rope_parameters["rope_type"]
        if kind == "default":
            self.frequencies, self.factor = config.rope_parameters["rope_theta"] ** (-torch.arange(0, head, 2).double() / head), 1
        else:
            modeling_rope_utils.torch = Fp64Torch()
            self.frequencies, self.factor = modeling_rope_utils.ROPE_INIT_FUNCTIONS[kind](config, "cpu", seq_len=sequence)
            modeling_rope_utils.torch = torch

    @staticmethod
    def frequencies_of(config, parameters):
        assert parameters["rope_type"] in ("default", "linear")
        i = torch.arange(0, config.head_dim, 2).double()
        return parameters["rope_theta"] ** (-i / config.head_dim) / parameters.get("factor", 1.0)

    def forward(self, x, position_ids, layer_type=None):
        frequencies = self.kinds[layer_type] if self.kinds else self.frequencies
        angles = position_ids[:, :, None].double() * frequencies
        angles = torch.cat((angles,) * self.halves, dim=-1)
        return (angles.cos() * self.factor).to(x.dtype), (angles.sin() * self.factor).to(x.dtype)


class ExactNorm(torch.nn.Module):
    """RMSNorm in fp64, over a row or over a head."""

    def __init__(self, norm):
        super().__init__()
        self.weight = norm.weight
        self.gemma = not hasattr(norm, "variance_epsilon")  # gains around 0
        self.epsilon = norm.eps if self.gemma else norm.variance_epsilon

    def forward(self, x):
        return (self.weight + 1 if self.gemma else self.weight) * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.epsilon))


def best(scores, count):
    """The highest scores of each row and their places; the others must be lower by a margin."""
    scores, places = scores.sort(-1, descending=True)
    if count < scores.shape[-1]:
        margin = (scores[:, count - 1] - scores[:, count]).min().item()
        assert margin > SMALLEST_MARGIN, margin
    return scores[:, :count], places[:, :count]


class ExactRouter(torch.nn.Module):
    """The scores of a token's experts in fp64."""

    def __init__(self, router):
        super().__init__()
        self.weight, self.bias, self.top_k = router.weight, getattr(router, "bias", 0), router.top_k
        self.normalised = getattr(router, "norm_topk_prob", True)  # the routers of Mixtral and GPT-OSS have no such member

    def forward(self, x):
        logits = x.reshape(-1, x.shape[-1]) @ self.weight.T + self.bias
        kept, experts = best(torch.softmax(logits, -1), self.top_k)
        return logits, kept / kept.sum(-1, keepdim=True) if self.normalised else kept, experts


class ExactGroupRouter(torch.nn.Module):
    """DeepSeek-V3's scores of a token's experts in fp64: with a bias that only chooses, first groups, then experts of these."""

    def __init__(self, router):
        super().__init__()
        self.theirs = [router]  # in a list, so that its tensors keep their names
        self.weight = router.weight
        self.register_buffer("e_score_correction_bias", router.e_score_correction_bias)

    def forward(self, x):
        router, = self.theirs
        logits = x.reshape(-1, x.shape[-1]) @ self.weight.T
        scores = torch.sigmoid(logits)
        biased = (scores + self.e_score_correction_bias).unflatten(-1, (router.num_group, -1))
        groups = best(biased.topk(2, -1)[0].sum(-1), router.topk_group)[1]
        rejected = torch.ones(biased.shape[:2], dtype=torch.bool).scatter_(1, groups, False)
        highest, experts = best(biased.masked_fill(rejected[:, :, None], float("-inf")).flatten(1), router.top_k)
        assert highest.min().item() > SMALLEST_MARGIN  # so that zeros instead of -inf choose the same
        kept = scores.gather(1, experts)
        if router.norm_topk_prob:
            kept = kept / (kept.sum(-1, keepdim=True) + 1e-20)
        return logits, kept * router.routed_scaling_factor, experts


def attention(kind):
    """The implementation of attention for a class of models."""
    return "eager" if "Gemma" in kind.__name__ or "GptOss" in kind.__name__ else "sdpa"


def make_exact(model, sequence=SEQUENCE):
    """Replaces what computes in fp32 whatever the type of the model, which is then an fp64 one."""
    model = model.double().eval()
    model.model.rotary_emb = ExactRotary(model.config, sequence)
    if hasattr(model.model.embed_tokens, "embed_scale"):
        model.model.embed_tokens.embed_scale = torch.tensor(model.config.hidden_size, dtype=torch.float64).sqrt()
        model.set_attn_implementation("eager")
        sys.modules[type(model).__module__].torch = Fp64Torch()
    for module in list(model.modules()):
        for name, child in module.named_children():
            if type(child).__name__.endswith("RMSNorm"):
                setattr(module, name, ExactNorm(child))
            if type(child).__name__.endswith(("TopKRouter", "TopkRouter")):
                setattr(module, name, ExactGroupRouter(child) if hasattr(child, "num_group") else ExactRouter(child))
                model.set_experts_implementation("eager")
    return model


def make_model(name):
    kind, config, settings = MODELS[name]
    settings = {"num_hidden_layers": LAYERS, "num_key_value_heads": GROUPS, "intermediate_size": FEED_FORWARD, **settings}
    model = kind(config(vocab_size=VOCABULARY, hidden_size=HIDDEN, num_attention_heads=HEADS, max_position_embeddings=SEQUENCE,
                        attn_implementation=attention(kind), bos_token_id=0, eos_token_id=0, **settings)).double().eval()
    with torch.no_grad():
        for number, (array, parts, view) in enumerate(arrays(model)):
            sizes = [view(part).numel() for part in parts]
            value = weight(number, array, sum(sizes), 0 if "Gemma" in kind.__name__ else 1)
            for part, piece in zip(parts, value.split(sizes)):
                view(part).copy_(piece.reshape(view(part).shape))
    return model


def make(folder, name):
    ids = tokens()
    with torch.no_grad():
        logits = make_model(name).float()(ids[:, :-1]).logits[0, -3:, :16].reshape(-1)
    model = make_exact(make_model(name))
    out = model(ids[:, :-1]).logits
    loss = torch.nn.functional.cross_entropy(out.reshape(-1, VOCABULARY), ids[:, 1:].reshape(-1))
    loss.backward()
    lines = [f"loss {loss.item()!r}"]
    some = []
    for array, parts, view in arrays(model):
        g = torch.cat([view(part.grad if part.requires_grad else torch.zeros_like(part)).reshape(-1) for part in parts])
        lines.append(f"{array} {g.sum().item()!r} {(g * noise(len(g))).sum().item()!r} {(g * g).sum().item()!r}")
        some.append(g[::STRIDE])
    lines.append("logits " + " ".join(repr(x) for x in logits.tolist()))
    (folder / f"{name}.txt").write_text("\n".join(lines) + "\n")
    torch.cat(some).numpy().astype("<f8").tofile(folder / f"{name}.f64")


if __name__ == "__main__":
    print(transformers.__version__)
    for model_name in sys.argv[1:] or MODELS:
        make(pathlib.Path(__file__).parent, model_name)
