#!/usr/bin/env python3
"""Writes what Hugging Face transformers (made with 5.23.0) makes of conversations, and which tokens count:

    python3 make.py        # in this folder; needs transformers and jinja2, not the network
    python3 make.py qwen2.5=FOLDER llama3.1=FOLDER mistral=FOLDER     # texts.json, with the models' own templates

A FOLDER has the tokenizer files of Qwen2.5-7B-Instruct, Llama-3.1-8B-Instruct or Mistral-7B-Instruct-v0.3, or its
chat_template.jinja alone. In Mistral's, `loop.last` before system_message becomes `loop.first` (docs/token_files.md).

bpe.json, mistral.json, gemma.json   tokenizers of ../bpe and ../tokenizers with the special tokens of chat formats
conversations.jsonl                  conversations; those with a system message are not for gemma
completions.jsonl                    prompts and completions
tools.jsonl                          conversations with tools, calls and their results
texts.json                           for each format with tools and each of these two files a pair per line: text, and answers
golden.json                          for each format (and "completions") a pair per line: ids, and 1 for those that count

Ids are those of `apply_chat_template` with the templates below, as the models' repositories have them. What counts is found
from the offsets of the tokens: those with a character of an answer or of the token that ends it.
"""
import copy
import json
import pathlib
import sys

from transformers import PreTrainedTokenizerFast

CHATML = ("{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
          "{% endfor %}")
LLAMA3 = ("{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = '<|start_header_id|>' + "
          "message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}"
          "{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}")
# Version 3 with the system message before the first user's, where the models' own have it before the last one's.
MISTRAL = ("{% if messages[0]['role'] == 'system' %}{% set system = messages[0]['content'] + '\n\n' %}{% set loop_messages = "
           "messages[1:] %}{% else %}{% set system = '' %}{% set loop_messages = messages %}{% endif %}{{ bos_token }}"
           "{% for message in loop_messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
           "{{ raise_exception('roles must alternate') }}{% endif %}{% if message['role'] == 'user' %}{{ '[INST] ' + (system if "
           "loop.first else '') + message['content'] + '[/INST]' }}{% else %}{{ ' ' + message['content'] | trim + eos_token "
           "}}{% endif %}{% endfor %}")
GEMMA = ("{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
         "{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
         "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}"
         "{% if (message['role'] == 'assistant') %}{% set role = 'model' %}{% else %}{% set role = message['role'] %}{% endif %}"
         "{{ '<start_of_turn>' + role + '\n' + message['content'] | trim + '<end_of_turn>\n' }}{% endfor %}")

FORMATS = {  # template, tokenizer, bos, eos, end of a turn, roles that are trimmed
    "chatml": (CHATML, "bpe", "<|endoftext|>", "<|im_end|>", "<|im_end|>", ()),
    "llama3": (LLAMA3, "bpe", "<|begin_of_text|>", "<|eot_id|>", "<|eot_id|>", ("system", "user", "assistant")),
    "mistral": (MISTRAL, "mistral", "<s>", "</s>", "</s>", ("assistant",)),
    "gemma": (GEMMA, "gemma", "<bos>", "<eos>", "<end_of_turn>", ("user", "assistant")),
}
ADDED = {
    "bpe": ("../bpe/gpt2.json", ["<|im_start|>", "<|im_end|>", "<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>",
                                 "<|eot_id|>"]),
    "mistral": ("../tokenizers/mistral.json", ["[/INST]"]),
    "gemma": ("../tokenizers/gemma.json", ["<start_of_turn>", "<end_of_turn>"]),
}
CONVERSATIONS = [
    [("user", "How many bits has a byte?"), ("assistant", "Eight.")],
    [("user", "Name a colour."), ("assistant", "blue"), ("user", "Another one?"), ("assistant", "red, of course")],
    [("user", "  blanks around \n"), ("assistant", "\n and here \t")],
    [("user", "Où? 漢字 — ½"), ("assistant", "là, naïve café\n\nzwei Zeilen")],
    [("user", "only a question"), ("assistant", ""), ("user", "and again"), ("assistant", "an answer"),
     ("user", "the last word is mine")],
    [("user", "\u00a0no-break\u2003spaces\u00a0"), ("assistant", "\u3000wide space\u3000")],
    [("system", "You are brief."), ("user", "Hello there"), ("assistant", "Hi")],
    [("system", " Be kind.\n"), ("user", "One"), ("assistant", "Two"), ("user", "Three"), ("assistant", "Four")],
]
COMPLETIONS = [("2 + 2 =", " 4"), ("", "no prompt at all"), ("white space after ", "it"), ("a wo", "rd is cut"),
               ("Où est", " là — ½"), ("line\n", "\nline"), ("nothing follows", "")]


def spans(text, messages, end, trims):
    """The answers with the tokens that end them, found from the left."""
    end_of_user = "[/INST]" if end == "</s>" else end
    at, found = 0, []
    for role, content in messages:
        content = content.strip() if role in trims else content
        if role == "assistant":
            begin = at = text.index(content + end, at)
            if end == "</s>":
                begin -= 1  # the blank before the answer
            at += len(content + end)
            found.append((begin, at))
        elif role == "system" and end == "</s>":
            at = text.index(content, at) + len(content)
        else:
            at = text.index(content + end_of_user, at) + len(content + end_of_user)
    return found


def main():
    files, golden = {}, {}
    for name, (path, tokens) in ADDED.items():
        tokenizer = json.load(open(path, encoding="utf-8"))
        next_id = 1 + max([max(tokenizer["model"]["vocab"].values())] + [t["id"] for t in tokenizer["added_tokens"]])
        like = next(t for t in tokenizer["added_tokens"] if t["special"])
        for i, token in enumerate(tokens):
            tokenizer["added_tokens"].append(copy.deepcopy(like) | {"id": next_id + i, "content": token})
        files[name] = f"{name}.json"
        json.dump(tokenizer, open(files[name], "w", encoding="utf-8"), ensure_ascii=False, separators=(",", ":"))
    for name, (template, file, bos, eos, end, trims) in FORMATS.items():
        tokenizer = PreTrainedTokenizerFast(tokenizer_file=files[file], bos_token=bos, eos_token=eos, chat_template=template)
        golden[name] = []
        for messages in CONVERSATIONS:
            if name == "gemma" and messages[0][0] == "system":
                continue
            dicts = [{"role": r, "content": c} for r, c in messages]
            text = tokenizer.apply_chat_template(dicts, tokenize=False)
            ids = tokenizer.apply_chat_template(dicts, tokenize=True, return_dict=False)
            both = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
            assert ids == both["input_ids"]
            counted = [int(any(a < end_ and b > begin for begin, end_ in spans(text, messages, end, trims)))
                       for a, b in both["offset_mapping"]]
            golden[name].append([ids, counted])
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=files["bpe"])
    golden["completions"] = []
    for prompt, completion in COMPLETIONS:
        both = tokenizer(prompt + completion, add_special_tokens=False, return_offsets_mapping=True)
        counted = [int(b > len(prompt)) for a, b in both["offset_mapping"]]
        golden["completions"].append([both["input_ids"], counted])
    json.dump(golden, open("golden.json", "w"), separators=(",", ":"))
    with open("conversations.jsonl", "w", encoding="utf-8") as out:
        for messages in CONVERSATIONS:
            out.write(json.dumps({"messages": [{"role": r, "content": c} for r, c in messages]}, ensure_ascii=False) + "\n")
    with open("completions.jsonl", "w", encoding="utf-8") as out:
        for prompt, completion in COMPLETIONS:
            out.write(json.dumps({"prompt": prompt, "completion": completion}, ensure_ascii=False) + "\n")


def texts(folders):
    """Texts of the models' own templates. An answer ends with the token that ends a turn, and begins where the prompt before it
    ends; Mistral's prompt is another text than the conversation's beginning, so there it begins after a closing tag."""
    found = {}
    bos_eos = {"qwen2.5": ("", "<|im_end|>"), "llama3.1": ("<|begin_of_text|>", "<|eot_id|>"), "mistral": ("<s>", "</s>")}
    for name, folder in folders.items():
        config = pathlib.Path(folder, "tokenizer_config.json")
        template = (json.loads(config.read_text())["chat_template"] if config.exists()
                    else pathlib.Path(folder, "chat_template.jinja").read_text())
        if name == "mistral":
            template = template.replace("loop.last and system_message", "loop.first and system_message")
        bos, eos = bos_eos[name]
        tokenizer = PreTrainedTokenizerFast(tokenizer_file="bpe.json", bos_token=bos or "<|endoftext|>", eos_token=eos,
                                            chat_template=template)
        found[name] = {}
        for file in ["tools"] if name == "mistral" else ["conversations", "tools"]:
            found[name][file] = []
            for line in map(json.loads, open(f"{file}.jsonl", encoding="utf-8")):
                def write(messages, prompt=False):
                    return tokenizer.apply_chat_template(messages, tools=line.get("tools"), tokenize=False,
                                                         add_generation_prompt=prompt)
                text, answers, at = write(line["messages"]), [], 0
                for i, message in enumerate(line["messages"]):
                    if message["role"] != "assistant":
                        continue
                    if name == "mistral":
                        begin = min(text.index(tag, at) + len(tag) for tag in ("[/INST]", "[/TOOL_RESULTS]") if tag in text[at:])
                    else:
                        begin = len(write(line["messages"][:i], True))
                    at = text.index(eos, begin) + len(eos)
                    answers.append(text[begin:at])
                found[name][file].append([text, answers])
    json.dump(found, open("texts.json", "w", encoding="utf-8"), ensure_ascii=False, indent=1)


if len(sys.argv) > 1:
    texts(dict(argument.split("=") for argument in sys.argv[1:]))
else:
    main()
