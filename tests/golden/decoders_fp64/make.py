#!/usr/bin/env python3
"""Makes this folder's reference numbers with Hugging Face transformers (CPU): Qwen2ForCausalLM, Qwen3ForCausalLM,
MistralForCausalLM, GemmaForCausalLM, Gemma2ForCausalLM, Gemma3ForCausalLM, Olmo2ForCausalLM, MixtralForCausalLM,
Qwen3MoeForCausalLM, OlmoeForCausalLM and Qwen2MoeForCausalLM with 6 heads of queries, 3 of keys and values, vocabulary 503 and sequence 61; heads of 32 for Qwen3 and Gemma, where hidden / heads is 24, and a window of 17 tokens for
Mistral, and for the first layer of Gemma 2 and 3. The soft caps of Gemma 2 are so small that they change many numbers. A token
uses 2 of 5 experts of width 24; the first layer of qwen3_moe_dense has none. Weights and tokens come from integer formulas that
the test repeats exactly, so that only results are stored.

    python3 make.py        # needs torch, transformers

NAME.txt: a line "loss" with the mean loss of a batch in fp64; then for every array of Trireme's model a line "NAME SUM
PROJECTION SQUARES" about its gradient g in fp64: sum of g, sum of g·r with r of the formula `noise`, sum of g²; then a line
"logits" with the first 16 fp32 logits behind the last 3 tokens of the first sequence.
NAME.f64: every 97th element of each array's gradient, in the order of the lines.

Whatever the model's type, transformers computes the angles of rotary positions, RMSNorm, Gemma's scale of the embeddings, the
scores of routers and the softmax of its "eager" attention in fp32. For the fp64 numbers they are replaced by the same formulas in fp64; attention is
PyTorch's scaled_dot_product_attention, and for Gemma the eager one with its softmax in fp64. The fp32 logits are of the model
as it is.
"""
import math
import pathlib
import sys

import torch
import transformers
from transformers import (Gemma2Config, Gemma2ForCausalLM, Gemma3ForCausalLM, Gemma3TextConfig, GemmaConfig, GemmaForCausalLM,
                          MistralConfig, MistralForCausalLM, MixtralConfig, MixtralForCausalLM, Olmo2Config, Olmo2ForCausalLM,
                          OlmoeConfig, OlmoeForCausalLM, Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM,
                          Qwen2MoeConfig, Qwen2MoeForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM, modeling_rope_utils)

LAYERS, HIDDEN, HEADS, GROUPS, FEED_FORWARD, SEQUENCE, VOCABULARY, BATCH, STRIDE = 2, 144, 6, 3, 100, 61, 503, 2, 97

EXPERTS = dict(tie_word_embeddings=False, num_experts=5, num_experts_per_tok=2)
QWEN3_MOE = dict(EXPERTS, rms_norm_eps=1e-6, rope_theta=1e6, head_dim=32, moe_intermediate_size=24, norm_topk_prob=True)
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
}

# An array of a layer, and the tensors that make it up, one behind the other, where the model has them.
LAYER = {
    "attention_norm.gain": ["input_layernorm.weight"],
    "attention.query": ["self_attn.q_proj.weight"],
    "attention.key_value": ["self_attn.k_proj.weight", "self_attn.v_proj.weight"],
    "attention.query_bias": ["self_attn.q_proj.bias"],
    "attention.key_value_bias": ["self_attn.k_proj.bias", "self_attn.v_proj.bias"],
    "attention.query_norm.gain": ["self_attn.q_norm.weight"],
    "attention.key_norm.gain": ["self_attn.k_norm.weight"],
    "attention.output": ["self_attn.o_proj.weight"],
    "attention_output_norm.gain": [],
    "feed_forward_norm.gain": ["post_attention_layernorm.weight"],
    "feed_forward.gate_up": ["mlp.gate_proj.weight", "mlp.up_proj.weight"],
    "feed_forward.down": ["mlp.down_proj.weight"],
    "experts.router": ["mlp.gate.weight"],
    "experts.gate_up": ["mlp.experts.gate_up_proj"],
    "experts.down": ["mlp.experts.down_proj"],
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


def arrays(model):
    """(name, its tensors) in a fixed order, which numbers the arrays for `weight`."""
    parameters = dict(model.named_parameters())
    names = [("embedding.token", ["model.embed_tokens.weight"])]
    has = lambda norm: any(norm in name for name in parameters)
    norms = SANDWICH if has("pre_feedforward_layernorm") else LAYER if has("input_layernorm") else OUTPUT
    for layer in range(LAYERS):
        names += [(f"layers.{layer}.{ours}", [f"model.layers.{layer}.{t}" for t in theirs])
                  for ours, theirs in norms.items()]
    names += [("final_norm.gain", ["model.norm.weight"]), ("output.weight", ["lm_head.weight"])]
    return [(ours, [parameters[t] for t in theirs]) for ours, theirs in names if theirs and theirs[0] in parameters]


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
        angles = torch.cat((angles, angles), dim=-1)
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


class ExactRouter(torch.nn.Module):
    """The scores of a token's experts in fp64."""

    def __init__(self, router):
        super().__init__()
        self.weight, self.top_k = router.weight, router.top_k
        self.normalised = getattr(router, "norm_topk_prob", True)  # Mixtral's router has no such member

    def forward(self, x):
        logits = x.reshape(-1, x.shape[-1]) @ self.weight.T
        scores, experts = torch.softmax(logits, -1).sort(-1, descending=True)
        margin = (scores[:, self.top_k - 1] - scores[:, self.top_k]).min().item()
        assert margin > SMALLEST_MARGIN, margin
        kept = scores[:, :self.top_k]
        return logits, kept / kept.sum(-1, keepdim=True) if self.normalised else kept, experts[:, :self.top_k]


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
            if type(child).__name__.endswith("TopKRouter"):
                setattr(module, name, ExactRouter(child))
                model.set_experts_implementation("eager")
    return model


def make_model(name):
    kind, config, settings = MODELS[name]
    model = kind(config(vocab_size=VOCABULARY, hidden_size=HIDDEN, num_hidden_layers=LAYERS,
                        num_attention_heads=HEADS, num_key_value_heads=GROUPS, max_position_embeddings=SEQUENCE,
                        attn_implementation="eager" if "Gemma" in kind.__name__ else "sdpa", bos_token_id=0, eos_token_id=0,
                        **{"intermediate_size": FEED_FORWARD, **settings})).double().eval()
    with torch.no_grad():
        for number, (array, parts) in enumerate(arrays(model)):
            value = weight(number, array, sum(part.numel() for part in parts), 0 if "Gemma" in kind.__name__ else 1)
            for part, piece in zip(parts, value.split([part.numel() for part in parts])):
                part.copy_(piece.reshape(part.shape))
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
    for array, parts in arrays(model):
        g = torch.cat([part.grad.reshape(-1) for part in parts])
        lines.append(f"{array} {g.sum().item()!r} {(g * noise(len(g))).sum().item()!r} {(g * g).sum().item()!r}")
        some.append(g[::STRIDE])
    lines.append("logits " + " ".join(repr(x) for x in logits.tolist()))
    (folder / f"{name}.txt").write_text("\n".join(lines) + "\n")
    torch.cat(some).numpy().astype("<f8").tofile(folder / f"{name}.f64")


if __name__ == "__main__":
    print(transformers.__version__)
    for model_name in MODELS:
        make(pathlib.Path(__file__).parent, model_name)
