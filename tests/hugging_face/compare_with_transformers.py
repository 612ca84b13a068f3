#!/usr/bin/env python3
"""Compares `trireme export` and `trireme import` with Hugging Face transformers, on models of odd sizes (6 heads of 24,
vocabulary 503, sequence 61) and a text:

    python3 tests/hugging_face/compare_with_transformers.py --bin build/host/bin README.md
                                        # needs torch, transformers, safetensors, h5py; not run by ctest

Export: a model that Trireme has trained on 2 tensor times 2 pipeline ranks is exported, as one file and in shards.
transformers must load it without missing, unexpected or mismatched keys and compute the loss that `trireme eval` prints.
Import: a model with random weights, written by transformers' save_pretrained as one file and in shards, is imported.
`trireme eval` must print the loss that transformers computes, and an export of the import must have the same bits.
LlavaForConditionalGeneration and Gemma3ForConditionalGeneration, which read images, are compared by the logits after import
and export.
"""
import argparse
import importlib.util
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import h5py
import torch
import transformers
from safetensors.torch import load_file
from transformers import (AutoModelForCausalLM, AutoModelForPreTraining, BertConfig, BertForMaskedLM, BertForPreTraining,
                          DeepseekV3Config, DeepseekV3ForCausalLM, Gemma2Config, Gemma2ForCausalLM, Gemma3Config,
                          Gemma3ForCausalLM, Gemma3ForConditionalGeneration, Gemma3TextConfig, GemmaConfig, GemmaForCausalLM,
                          GPT2Config, GPT2LMHeadModel, GptOssConfig, GptOssForCausalLM, LlamaConfig, LlamaForCausalLM,
                          MistralConfig, MistralForCausalLM, MixtralConfig, MixtralForCausalLM, OlmoeConfig, OlmoeForCausalLM,
                          Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM,
                          CLIPVisionConfig, LlavaConfig, LlavaForConditionalGeneration, SiglipVisionConfig, T5Config,
                          T5ForConditionalGeneration)

SEQUENCE, VOCABULARY = 61, 503
TOLERANCE = 3e-6  # of losses near 6: `eval` prints 6 digits, fp32 sums some 1e3 terms
T5_TOLERANCE = 1e-5  # scores of attention are not divided by the root of the head size

REST = f"""
[run]
steps = 4
log_every = 1
[batch]
global = 4
micro = 1
[optimizer]
learning_rate = 3e-3
"""
DATA = 'train = "tokens.h5"\n'

MODELS = {
    "gpt, tied, epsilon 1e-6": 'family = "gpt"\nnorm_epsilon = 1e-6',
    "gpt, untied, exact gelu": 'family = "gpt"\ntied_embeddings = false\ngelu = "exact"',
    "llama, tied": 'family = "llama"\nkey_value_heads = 3\nnorm_epsilon = 1e-6',
    "llama, untied, theta 5e5": 'family = "llama"\nkey_value_heads = 3\nrope_theta = 500000.0\ntied_embeddings = false',
    "llama, heads of 32": 'family = "llama"\nkey_value_heads = 3\nhead_size = 32',
    "llama, 2 groups of layers": 'family = "llama"\nkey_value_heads = 3\nshared_layers = 2',
    "qwen2, tied": 'family = "qwen2"\nkey_value_heads = 3',
    "qwen2, untied, a window": 'family = "qwen2"\nkey_value_heads = 3\nwindow = 17\ntied_embeddings = false',
    "qwen3, tied, heads of 32": 'family = "qwen3"\nkey_value_heads = 3\nhead_size = 32',
    "mistral, untied, a window": 'family = "mistral"\nkey_value_heads = 3\nwindow = 17\ntied_embeddings = false',
    "mistral, no window": 'family = "mistral"\nkey_value_heads = 3\nwindow = 0',
    "gemma, tied, heads of 32": 'family = "gemma"\nkey_value_heads = 3\nhead_size = 32',
    "gemma2, windows in 2 of 3 layers": 'family = "gemma2"\nkey_value_heads = 3\nwindow = 17\nattention_softcap = 2.0',
    "gemma3, untied": 'family = "gemma3"\nkey_value_heads = 3\nwindow = 17\nfull_attention_every = 2\ntied_embeddings = false',
    "mixtral, untied, a window": 'family = "mixtral"\nkey_value_heads = 3\nwindow = 17\ntied_embeddings = false\n'
                                 '[experts]\nnumber = 5\nfeed_forward = 24',
    "qwen3_moe, experts in every other layer": 'family = "qwen3_moe"\nkey_value_heads = 3\nhead_size = 32\n[experts]\n'
                                               'number = 5\nactive = 2\nfeed_forward = 24\nfirst_layer = 1\nevery = 2',
    "qwen3_moe, first layer dense, scores as they are": 'family = "qwen3_moe"\nkey_value_heads = 3\n[experts]\nnumber = 5\n'
                                                        'active = 3\nfeed_forward = 24\nfirst_layer = 1\nnormalised = false',
    "olmoe, untied": 'family = "olmoe"\nkey_value_heads = 3\ntied_embeddings = false\n[experts]\nnumber = 5\nactive = 2',
    "gpt_oss, a window": 'family = "gpt_oss"\nkey_value_heads = 3\nwindow = 17\nactivation_limit = 2.0\n'
                         'tied_embeddings = false\n[experts]\nnumber = 5\nactive = 2',
    "deepseek_v3, yarn": 'family = "deepseek_v3"\nhead_size = 28\nkey_value_rank = 19\nquery_rank = 25\nrotary_size = 10\n'
                         'value_size = 15\nrope_scaling = "yarn"\nrope_factor = 4.0\nrope_original_sequence = 16\nrope_mscale = 1.0\n'
                         'rope_mscale_all = 0.5\ntied_embeddings = false\n[experts]\nnumber = 6\nactive = 2\nfeed_forward = 24\n'
                         'shared_feed_forward = 48\ngroups = 3\nactive_groups = 2\nfirst_layer = 1',
    "deepseek_v3, queries in one product, tied": 'family = "deepseek_v3"\nhead_size = 32\nkey_value_rank = 19\nquery_rank = 0\n'
                         'rotary_size = 12\nvalue_size = 32\nrope_interleaved = false\n[experts]\nnumber = 6\nactive = 3\n'
                         'feed_forward = 24\ngroups = 1\nactive_groups = 1\nfirst_layer = 0\nnormalised = false',
}
BERTS = {
    "bert, tied": 'family = "bert"',
    "bert, untied, gelu tanh": 'family = "bert"\ntied_embeddings = false\ngelu = "tanh"',
    "bert, masked tokens alone": 'family = "bert"\nsentence_loss = "none"',
}
# A source of 61 tokens belongs to a target of 14.
ENCODER = f"\n[encoder]\nlayers = 3\nsequence = {SEQUENCE}"
T5S = {
    "t5, version 1.0": 'family = "t5"' + ENCODER,
    "t5, version 1.1, heads of 32": 'family = "t5"\nhead_size = 32\nactivation = "geglu"\ntied_embeddings = false' + ENCODER,
    "t5, gated silu": 'family = "t5"\nactivation = "swiglu"\ntied_embeddings = false\nrelative_buckets = 16\n'
                      'relative_distance = 20' + ENCODER,
}
SPANS_PATH = pathlib.Path(__file__).parent.parent / "golden" / "corrupted_spans" / "make.py"
SPANS_SPEC = importlib.util.spec_from_file_location("corrupted_spans", SPANS_PATH)
corrupted_spans = importlib.util.module_from_spec(SPANS_SPEC)
SPANS_SPEC.loader.exec_module(corrupted_spans)


class Failed(Exception):
    pass


class Bench:
    def __init__(self, options, folder):
        self.folder = pathlib.Path(folder)
        self.environment = dict(os.environ, PATH=os.path.abspath(options.bin) + ":" + os.environ["PATH"])
        self.mpiexec = options.mpiexec
        self.run("trireme", "tokenize", "-o", "tokens.h5", *map(os.path.abspath, options.text))
        with h5py.File(self.folder / "tokens.h5") as file:
            self.tokens = torch.from_numpy(file["tokens"][:].astype("int64"))

    def run(self, *command):
        done = subprocess.run(command, cwd=self.folder, env=self.environment, capture_output=True, text=True)
        if done.returncode != 0:
            raise Failed(f"{' '.join(command)}: {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    def evaluated(self, deck, directory):
        said = self.run("trireme", "eval", deck, "--data", "tokens.h5", f"run.directory={directory}")
        return float(re.search(r"^loss ([0-9.]+)", said, re.M).group(1))

    def span_loss(self, model):
        """The mean loss over corrupted windows, whose sentinels are the last ids."""
        raw, noise, spans, _ = corrupted_spans.span_lengths(SEQUENCE, 0.15, 3)
        losses = []
        for i in range((len(self.tokens) - 1) // raw):
            text = self.tokens[i * raw:(i + 1) * raw].tolist()
            mask = corrupted_spans.noise_mask(raw, noise, spans, corrupted_spans.integers(0, 1, i))
            ids = [torch.tensor([corrupted_spans.with_sentinels(text, m, VOCABULARY - 1, model.config.eos_token_id)])
                   for m in (mask, [not noisy for noisy in mask])]
            with torch.no_grad():
                losses.append(model(input_ids=ids[0], labels=ids[1]).loss.item())
        return sum(losses) / len(losses)

    def loss(self, model):
        """The mean loss over windows of S + 1 tokens; window i begins at token i S."""
        if model.config.model_type == "t5":
            return self.span_loss(model)
        windows = (len(self.tokens) - 1) // SEQUENCE
        total = 0.0
        with torch.no_grad():
            for first in range(0, windows, 16):
                rows = [self.tokens[i * SEQUENCE:(i + 1) * SEQUENCE + 1] for i in range(first, min(first + 16, windows))]
                batch = torch.stack(rows)
                logits = model(batch[:, :-1]).logits.float()
                total += torch.nn.functional.cross_entropy(logits.transpose(1, 2), batch[:, 1:], reduction="sum").item()
        return total / windows / SEQUENCE

    def tensors(self, folder):
        found = {}
        for path in (self.folder / folder).glob("*.safetensors"):
            found.update(load_file(path))
        return found


def expect(condition, what):
    if not condition:
        raise Failed(what)


def expect_same(name, ours, theirs):
    print(f"{name}: trireme {ours:.6f}, transformers {theirs:.8f}", flush=True)
    expect(abs(ours - theirs) <= (T5_TOLERANCE if "t5" in name else TOLERANCE), f"{name}: {ours - theirs:.2g} apart")


def load(kind, folder):
    model, info = kind.from_pretrained(folder, output_loading_info=True)
    for key in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        expect(not info[key], f"{folder}: {key} {info[key]}")
    return model.eval()


def go_out(bench, number, name, keys, kind, has_loss):
    deck, directory = f"out{number}.toml", f"out{number}"
    sequence = 14 if name in T5S else SEQUENCE
    (bench.folder / deck).write_text(f"[model]\nlayers = 4\nhidden = 144\nheads = 6\nfeed_forward = 100\nsequence = {sequence}\n"
                                     f"vocabulary = {VOCABULARY}\n{keys}\n{REST}[data]\n{DATA}")
    bench.run(bench.mpiexec, "-n", "4", "trireme", "train", deck, f"run.directory={directory}", "parallel.tensor=2",
              "parallel.pipeline=2")
    for folder, more in ((f"one{number}", []), (f"shards{number}", ["--shard-size", "300KB"])):
        bench.run("trireme", "export", f"{directory}/checkpoints", folder, *more)
        model = load(kind, bench.folder / folder)
        if has_loss:
            expect_same(f"out, {name}, {folder}", bench.evaluated(deck, directory), bench.loss(model))
        else:
            print(f"out, {name}, {folder}: {type(model).__name__} loads", flush=True)


def come_in(bench, number, name, model, has_loss):
    torch.manual_seed(number)
    with torch.no_grad():
        for parameter, p in model.named_parameters():
            gain = "norm" in parameter.lower() or ".ln_" in parameter
            p.copy_(torch.randn(p.shape) * 0.1 + (1 if gain and parameter.endswith("weight") else 0))
        for buffer, b in model.named_buffers():
            if buffer.endswith("e_score_correction_bias"):
                b.copy_(torch.rand(b.shape) * 0.3)
    model = model.eval()
    for folder, size in ((f"theirs{number}", "1TB"), (f"theirs{number}s", "200KB")):
        model.save_pretrained(bench.folder / folder, max_shard_size=size)
        deck = f"{folder}.toml"
        section = bench.run("trireme", "import", folder)
        # The section [data] of a T5 is the last one.
        rest = f"sentinel_token = {VOCABULARY - 1}\n{DATA}{REST}" if "[data]" in section else f"{REST}[data]\n{DATA}"
        (bench.folder / deck).write_text(section + rest)
        bench.run("trireme", "import", folder, deck, f"run.directory=in_{folder}")
        if has_loss:
            expect_same(f"in, {name}, {folder}", bench.evaluated(deck, f"in_{folder}"), bench.loss(model))
        bench.run("trireme", "export", f"in_{folder}/checkpoints", f"again_{folder}")
        ours, theirs = bench.tensors(f"again_{folder}"), bench.tensors(folder)
        if "cls.predictions.decoder.bias" in theirs:  # then the model does not use this parameter
            del theirs["cls.predictions.bias"]
        expect(all(torch.equal(theirs[key], ours[key]) for key in theirs), f"{folder}: different bits after import and export")
        again = load(type(model), bench.folder / f"again_{folder}")
        tokens = torch.randint(0, VOCABULARY, (2, SEQUENCE))
        with torch.no_grad():
            more = dict(labels=tokens) if model.config.is_encoder_decoder else {}
            logits, others = (m(tokens, **more).logits if more else m(tokens)[0] for m in (model, again))
            expect(torch.equal(logits, others), f"{folder}: different logits after import and export")
        print(f"in, {name}, {folder}: {len(theirs)} tensors and the logits, the same bits after import and export",
              flush=True)


def causal_models():
    gpt = dict(n_layer=3, n_embd=144, n_head=6, n_inner=100, n_positions=SEQUENCE, vocab_size=VOCABULARY)
    yield "gpt, tied, epsilon 1e-6", GPT2LMHeadModel(GPT2Config(layer_norm_epsilon=1e-6, **gpt))
    yield "gpt, untied, exact gelu", GPT2LMHeadModel(GPT2Config(tie_word_embeddings=False, activation_function="gelu", **gpt))
    llama = dict(num_hidden_layers=3, hidden_size=144, num_attention_heads=6, num_key_value_heads=3, intermediate_size=100,
                 max_position_embeddings=SEQUENCE, vocab_size=VOCABULARY)
    yield "llama, tied", LlamaForCausalLM(LlamaConfig(tie_word_embeddings=True, **llama))
    yield "llama, untied, theta 5e5", LlamaForCausalLM(LlamaConfig(rope_theta=500000.0, rms_norm_eps=1e-5, **llama))
    yield "llama, heads of 32", LlamaForCausalLM(LlamaConfig(head_dim=32, **llama))
    yield "qwen2, tied", Qwen2ForCausalLM(Qwen2Config(tie_word_embeddings=True, **llama))
    yield "qwen2, a window", Qwen2ForCausalLM(Qwen2Config(use_sliding_window=True, sliding_window=17, max_window_layers=0,
                                                          rope_theta=1e6, **llama))
    yield "qwen3, untied, heads of 128", Qwen3ForCausalLM(Qwen3Config(**llama))
    yield "qwen3, tied, heads of 32", Qwen3ForCausalLM(Qwen3Config(tie_word_embeddings=True, head_dim=32, **llama))
    yield "mistral, a window", MistralForCausalLM(MistralConfig(sliding_window=17, **llama))
    yield "mistral, no window", MistralForCausalLM(MistralConfig(sliding_window=None, head_dim=20, **llama))
    yield "gemma, heads of 256", GemmaForCausalLM(GemmaConfig(**llama))
    yield "gemma2, a window", Gemma2ForCausalLM(Gemma2Config(sliding_window=17, head_dim=32, **llama))
    yield "gemma3, a window", Gemma3ForCausalLM(Gemma3TextConfig(sliding_window=17, head_dim=32, **llama))
    experts = dict(num_experts=5, num_experts_per_tok=2, **llama)
    yield "mixtral", MixtralForCausalLM(MixtralConfig(**experts))
    yield "mixtral, tied, a window", MixtralForCausalLM(MixtralConfig(sliding_window=17, tie_word_embeddings=True, **experts))
    qwen3 = dict(moe_intermediate_size=24, head_dim=32, **experts)
    yield "qwen3_moe, experts in layer 1", Qwen3MoeForCausalLM(Qwen3MoeConfig(decoder_sparse_step=2, norm_topk_prob=True, **qwen3))
    yield "qwen3_moe, first layer dense", Qwen3MoeForCausalLM(Qwen3MoeConfig(mlp_only_layers=[0], **qwen3))
    yield "qwen3_moe, a window", Qwen3MoeForCausalLM(Qwen3MoeConfig(use_sliding_window=True, sliding_window=17, **qwen3))
    yield "olmoe", OlmoeForCausalLM(OlmoeConfig(**experts))
    yield "gpt_oss, yarn", GptOssForCausalLM(GptOssConfig(sliding_window=17, head_dim=32, swiglu_limit=2.0, **experts))
    latent = dict(llama, num_key_value_heads=6, kv_lora_rank=19, q_lora_rank=25, qk_rope_head_dim=10, qk_nope_head_dim=18,
                  v_head_dim=15, n_routed_experts=6, num_experts_per_tok=2, n_group=3, topk_group=2, moe_intermediate_size=24,
                  n_shared_experts=2, first_k_dense_replace=1)
    yarn = dict(rope_type="yarn", rope_theta=1e4, factor=4.0, original_max_position_embeddings=16, mscale=1.0, mscale_all_dim=0.5)
    yield "deepseek_v3, yarn", DeepseekV3ForCausalLM(DeepseekV3Config(rope_parameters=yarn, **latent))
    yield "deepseek_v3, queries in one product, tied", DeepseekV3ForCausalLM(DeepseekV3Config(
        **dict(latent, q_lora_rank=None, rope_interleave=False, tie_word_embeddings=True, n_group=1, topk_group=1,
               first_k_dense_replace=0, norm_topk_prob=False)))
    yield "olmoe, normalised", OlmoeForCausalLM(OlmoeConfig(norm_topk_prob=True, **experts))


def berts():
    bert = dict(num_hidden_layers=3, hidden_size=144, num_attention_heads=6, intermediate_size=100,
                max_position_embeddings=SEQUENCE, vocab_size=VOCABULARY)
    yield "bert, tied", BertForPreTraining(BertConfig(**bert))
    yield "bert, untied", BertForPreTraining(BertConfig(tie_word_embeddings=False, hidden_act="gelu_new", **bert))
    yield "bert, masked tokens alone", BertForMaskedLM(BertConfig(**bert))


def t5s():
    t5 = dict(num_layers=3, num_decoder_layers=4, d_model=144, num_heads=6, d_kv=32, d_ff=100, n_positions=SEQUENCE,
              vocab_size=VOCABULARY, decoder_start_token_id=0)
    yield "t5, version 1.0", T5ForConditionalGeneration(T5Config(**t5))
    model = T5ForConditionalGeneration(T5Config(feed_forward_proj="gated-gelu", tie_word_embeddings=False, **t5))
    yield "t5, version 1.1, tied", model
    model = T5ForConditionalGeneration(T5Config(feed_forward_proj="gated-gelu", tie_word_embeddings=False, **t5))
    model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone())  # transformers 5 ties them
    yield "t5, version 1.1", model


def llavas():
    vision = dict(hidden_size=30, intermediate_size=50, num_attention_heads=5, image_size=12, patch_size=4)
    text = dict(num_hidden_layers=3, hidden_size=144, num_attention_heads=6, num_key_value_heads=3, intermediate_size=100,
                max_position_embeddings=SEQUENCE, vocab_size=VOCABULARY)
    texts = (LlamaConfig(**text), Qwen2Config(tie_word_embeddings=True, **text), Qwen3Config(head_dim=32, **text),
             MistralConfig(sliding_window=17, **text))
    for config in texts:
        for layer, images in ((-2, CLIPVisionConfig(num_hidden_layers=4, **vision)),
                              (-1, SiglipVisionConfig(num_hidden_layers=2, **vision))):
            yield f"llava, {images.model_type}, {config.model_type}", LlavaForConditionalGeneration(LlavaConfig(
                vision_config=images, text_config=config, image_token_index=7, vision_feature_layer=layer,
                vision_feature_select_strategy="default" if layer == -2 else "full"))


def gemma3s():
    vision = dict(hidden_size=30, intermediate_size=50, num_attention_heads=5, num_hidden_layers=2, image_size=12, patch_size=2)
    text = dict(num_hidden_layers=7, hidden_size=144, num_attention_heads=6, num_key_value_heads=3, intermediate_size=100, head_dim=32,
                max_position_embeddings=SEQUENCE, vocab_size=VOCABULARY)
    for window in (5, 17):
        yield f"gemma3 with images, a window of {window}", Gemma3ForConditionalGeneration(Gemma3Config(
            vision_config=SiglipVisionConfig(**vision), text_config=Gemma3TextConfig(sliding_window=window, **text),
            image_token_index=7, mm_tokens_per_image=9))


def images_come_in(bench, number, name, model):
    """Logits of a text with an image, before and after import and export."""
    torch.manual_seed(number)
    with torch.no_grad():
        for parameter, p in model.named_parameters():
            around_one = "norm" in parameter and parameter.endswith("weight") and not name.startswith("gemma3")
            p.copy_(torch.randn(p.shape) * 0.1 + (1 if around_one else 0))
    folder = f"theirs{number}"
    model.eval().save_pretrained(bench.folder / folder)
    (bench.folder / f"{folder}.toml").write_text(f"{bench.run('trireme', 'import', folder)}{REST}[data]\n{DATA}")
    bench.run("trireme", "import", folder, f"{folder}.toml", f"run.directory=in_{folder}")
    bench.run("trireme", "export", f"in_{folder}/checkpoints", f"again_{folder}")
    again = load(type(model), bench.folder / f"again_{folder}")
    tokens = torch.randint(8, VOCABULARY, (2, SEQUENCE))
    tokens[:, 5:14] = 7
    inputs = dict(input_ids=tokens, pixel_values=torch.randn(2, 3, 12, 12))
    if name.startswith("gemma3"):
        inputs["token_type_ids"] = (tokens == 7).long()
    with torch.no_grad():
        logits, others = (m(**inputs).logits for m in (model, again))
    expect(torch.equal(logits, others), f"{name}: logits differ by up to {(logits - others).abs().max()}")
    print(f"in, {name}: the same logits after import and export", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True)
    parser.add_argument("--mpiexec", default="mpiexec")
    parser.add_argument("--only", default="", help="word in the names of the models to compare")
    parser.add_argument("text", nargs="+")
    options = parser.parse_args()
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(options, folder)
        for number, (name, keys) in enumerate((MODELS | BERTS | T5S).items()):
            bert = name in BERTS
            kind = BertForMaskedLM if "alone" in name else AutoModelForPreTraining if bert else AutoModelForCausalLM
            if options.only in name:
                go_out(bench, number, name, keys, T5ForConditionalGeneration if name in T5S else kind, not bert)
        for first, models, has_loss in (0, causal_models, True), (100, berts, False), (200, t5s, True):
            for number, (name, model) in enumerate(models()):
                if options.only in name:
                    come_in(bench, first + number, name, model, has_loss)
        for number, (name, model) in enumerate([*llavas(), *gemma3s()]):
            if options.only in name:
                images_come_in(bench, 300 + number, name, model)


if __name__ == "__main__":
    try:
        main()
    except Failed as error:
        sys.exit(f"failed: {error}")
