#!/usr/bin/env python3
"""Makes this folder's model and tasks, and what lm-evaluation-harness (made with 0.4.13) says of them in fp64:

    python3 make.py        # needs lm_eval, torch, transformers; not the network

model/             a LlamaForCausalLM with random weights as `save_pretrained` writes it; its tokenizer is ../bpe/gpt2.json
choices.jsonl      multiple choice; continuations.jsonl; texts.jsonl: the tasks, in the form of `trireme eval --tasks`
scores.json        the harness's measures, and the log-likelihood and `is_greedy` of every request in the order of the files

transformers computes angles, RMSNorm and attention's softmax in fp32 whatever the model's type; for these numbers they are
replaced by the same formulas in fp64 (../llama_hugging_face/make.py).
"""
import json
import os
import pathlib
import sys

os.environ["HF_HUB_OFFLINE"] = os.environ["HF_DATASETS_OFFLINE"] = "1"
import torch
from lm_eval import simple_evaluate
from lm_eval.api.task import ConfigurableTask
from lm_eval.models.huggingface import HFLM
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

SEQUENCE = 48
HERE = pathlib.Path(__file__).resolve().parent


class ExactRotary(torch.nn.Module):
    def __init__(self, head, theta):
        super().__init__()
        self.head, self.theta = head, theta

    def forward(self, x, position_ids):
        i = torch.arange(0, self.head, 2, dtype=torch.float64)
        angles = position_ids[:, :, None].double() * self.theta ** (-i / self.head)
        angles = torch.cat((angles, angles), dim=-1)
        return angles.cos().to(x.dtype), angles.sin().to(x.dtype)


class ExactNorm(torch.nn.Module):
    def __init__(self, norm, epsilon):
        super().__init__()
        self.weight, self.epsilon = norm.weight, epsilon

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.epsilon))


def make_model():
    torch.manual_seed(5)
    model = LlamaForCausalLM(LlamaConfig(
        vocab_size=700, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=SEQUENCE, rms_norm_eps=1e-5, tie_word_embeddings=True,
        bos_token_id=0, eos_token_id=0, attn_implementation="sdpa"))
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(1 + 0.3 * torch.randn_like(p) if "norm" in name else 0.5 * torch.randn_like(p))
    model.save_pretrained(HERE / "model")
    model = model.double().eval()
    model.model.rotary_emb = ExactRotary(4, 10000.0)
    model.model.norm = ExactNorm(model.model.norm, 1e-5)
    for layer in model.model.layers:
        layer.input_layernorm = ExactNorm(layer.input_layernorm, 1e-5)
        layer.post_attention_layernorm = ExactNorm(layer.post_attention_layernorm, 1e-5)
    return model


def greedy(model, tokenizer, context, delimiter, count):
    """The text that the model itself continues with, if its tokens are those of the text."""
    ids = tokenizer(context)["input_ids"]
    whole = list(ids)
    for _ in range(count):
        whole.append(int(model(torch.tensor([whole])).logits[0, -1].argmax()))
    text = tokenizer.decode(whole[len(ids):])
    again = tokenizer(context + text)["input_ids"]
    return text if "\ufffd" not in text and again == whole else None


def tasks(model, tokenizer):
    choices = [
        ("The capital of France is", ["Paris", "Rome", "the city of Berlin"], 0),
        ("A cat sat on", ["the mat", "a mat of straw and reed", "nothing"], 2),
        ("Question: how many?\nAnswer:", ["one", "two", "three", "four"], 3),
        ("trailing blanks stay whole  ", ["yes", "no"], 1),
        ("", ["an answer without a question", "café", "naïve Ünicode — ½"], 1),
        ("Où est la bibliothèque ?", ["à gauche", "a droite", "là"], 0),
        ("漢字 and words", ["東京", "tokyo", "x"], 1),
        ("long " * 60 + "context", ["kept", "cut from the left"], 0),
        ("numbers 1 2 3", ["4", "5 6 7", "eight"], 0),
        ("tabs\tand lines\n", ["first", "second"], 1),
        ("It ends with a no-break space\u00a0", ["here", "there"], 0),
    ]
    continuations = [("Once upon a time", "there was a king"), ("", "no context at all"), ("white space after ", "it"),
                     ("word " * 70, "at the end"), ("é", "ü ö ä"), ("The quick brown", "fox jumps")]
    lines = [{"context": c, "continuation": t} for c, t in continuations]
    for context in ("a", "the", "in", "and the", "one of", "I", "was", "of the", "to", "word"):
        text = greedy(model, tokenizer, context, "", 2)
        if text:
            lines.append({"context": context, "continuation": text, "target_delimiter": ""})
    texts = ["A short text.", "Two  blanks\nand lines \n\n of text ", "ünïcödé — 漢字かな " * 6,
             "The text of this line is longer than the sequence of the model, so that windows are needed. " * 5]
    return {"choices": [{"context": c, "choices": a, "gold": g} for c, a, g in choices], "continuations": lines,
            "texts": [{"text": t} for t in texts]}


def config(name, lines):
    path = str(HERE / f"{name}.jsonl")
    common = {"task": name, "dataset_path": "json", "dataset_kwargs": {"data_files": {"test": path}}, "test_split": "test",
              "num_fewshot": 0}
    mean = lambda *names: [{"metric": m, "aggregation": "mean", "higher_is_better": True} for m in names]
    if name == "choices":
        return common | {"output_type": "multiple_choice", "doc_to_text": lambda d: d["context"],
                         "doc_to_choice": lambda d: d["choices"], "doc_to_target": lambda d: d["gold"],
                         "metric_list": mean("acc", "acc_norm", "acc_bytes")}
    if name == "texts":
        return common | {"output_type": "loglikelihood_rolling", "doc_to_text": "", "doc_to_target": lambda d: d["text"],
                         "metric_list": [{"metric": m} for m in ("word_perplexity", "byte_perplexity", "bits_per_byte")]}
    return common | {"output_type": "loglikelihood", "doc_to_text": lambda d: d["context"], "target_delimiter": "",
                     "doc_to_target": lambda d: (d.get("target_delimiter") if d.get("target_delimiter") is not None else " ")
                     + d["continuation"],
                     "metric_list": mean("acc") + [{"metric": "perplexity", "aggregation": "perplexity",
                                                    "higher_is_better": False}]}


def main():
    (HERE / "model").mkdir(exist_ok=True)
    model = make_model()
    for path in (HERE / "model").glob("generation_config.json"):
        path.unlink()
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(HERE.parent / "bpe/gpt2.json"), eos_token="<|endoftext|>")
    files = tasks(model, tokenizer)
    lm = HFLM(pretrained=model, tokenizer=tokenizer, max_length=SEQUENCE, batch_size=3, device="cpu")
    out = {}
    for name, lines in files.items():
        with open(HERE / f"{name}.jsonl", "w", encoding="utf-8") as file:
            file.writelines(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
        task = ConfigurableTask(config=config(name, lines))
        found = simple_evaluate(model=lm, tasks=[task], bootstrap_iters=100, log_samples=True, verbosity="ERROR")
        measures = {k.split(",")[0]: v for k, v in found["results"][name].items() if isinstance(v, float)
                    and k != "perplexity_stderr,none"}  # that is a bootstrap
        samples = sorted(found["samples"][name], key=lambda s: s["doc_id"])
        out[name] = {"measures": measures,
                     "log_likelihoods": [[r[0] if isinstance(r, (list, tuple)) else r for r in s["filtered_resps"]]
                                         for s in samples],
                     "greedy": [[bool(r[1]) for r in s["filtered_resps"] if isinstance(r, (list, tuple))] for s in samples]}
        print(name, measures, file=sys.stderr)
    (HERE / "scores.json").write_text(json.dumps(out, indent=1) + "\n")


main()
