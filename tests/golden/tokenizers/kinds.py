"""Tokenizers in the forms of published models, trained by Hugging Face's `tokenizers` and `sentencepiece`.

build(texts, size, charsmap) returns them by name. The models of GPT-2 and Llama 3 are in tests/golden/bpe.
"""
import collections
import io
import json

import sentencepiece
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

MARK = "\u2581"
QWEN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
        r"|\s+(?!\S)|\s+")
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


def fields(message):
    """Numbers and contents of the length-delimited fields of a protocol buffer."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(message):
        key = varint()
        if key & 7 == 2:
            size = varint()
            yield key >> 3, message[at:at + size]
            at += size
        elif key & 7 == 0:
            varint()
        else:
            at += 8 if key & 7 == 1 else 4


def charsmap_of(**rule):
    """SentencePiece's precompiled rules: those of `rule_name`, or of a file `rule_tsv`."""
    model = io.BytesIO()
    words = "the quick brown fox jumps over the lazy dog and runs away from it all day long".split()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([" ".join(words[i:] + words[:i]) for i in range(len(words))] * 5),
        model_writer=model, vocab_size=40, hard_vocab_limit=False, minloglevel=2,
        **{"normalization_" + key: value for key, value in rule.items()})
    normalizer = dict(fields(model.getvalue()))[3]
    return dict(fields(normalizer))[2]


def precompiled(charsmap):
    return normalizers.Precompiled(charsmap)


def special(*names, **flags):
    return [AddedToken(name, special=True, normalized=False, **flags) for name in names]


def learn_bpe(texts, size, pre_tokenizer, normalizer=None, **options):
    tokenizer = Tokenizer(models.BPE(**options))
    tokenizer.pre_tokenizer = pre_tokenizer
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=size, show_progress=False, limit_alphabet=size // 3))
    model = json.loads(tokenizer.to_str())["model"]
    return model["vocab"], [tuple(merge) for merge in model["merges"]]


def with_first_tokens(vocab, first):
    names = first + [name for name, _ in sorted(vocab.items(), key=lambda item: item[1]) if name not in first]
    return {name: id for id, name in enumerate(names)}


def bpe(vocab, merges, first, added, **options):
    tokenizer = Tokenizer(models.BPE(vocab=with_first_tokens(vocab, first), merges=merges, **options))
    tokenizer.add_special_tokens(added)
    return tokenizer


def with_few_characters(texts, normalizer, count):
    """The texts, normalized, with their most frequent characters alone: a unigram model needs all."""
    texts = [normalizer.normalize_str(t) for t in texts]
    frequent = {c for c, _ in collections.Counter(c for t in texts for c in t).most_common(count)}
    return ["".join(c for c in t if c in frequent) for t in texts]


def learn_unigram(texts, size, normalizer, pre_tokenizer, first, unknown, byte_fallback=False):
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    texts = with_few_characters(texts, normalizer, size // 2)
    tokenizer.train_from_iterator(texts, trainers.UnigramTrainer(
        vocab_size=size, show_progress=False, unk_token="<unk>", special_tokens=["<unk>"]))
    vocab = json.loads(tokenizer.to_str())["model"]["vocab"]
    rest = [(name, score) for name, score in vocab if name not in first and name != "<unk>"]
    pieces = [(name, 0.0) for name in first] + rest
    tokenizer = Tokenizer(models.Unigram(pieces, first.index(unknown), byte_fallback))
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    return tokenizer


def learn_word_piece(texts, size, lowercase):
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer.train_from_iterator(texts, trainers.WordPieceTrainer(
        vocab_size=size, show_progress=False, special_tokens=names, limit_alphabet=size // 3))
    tokenizer.decoder = decoders.WordPiece()
    return tokenizer


def build(texts, size, charsmap):
    """`texts`: a list of documents; `size`: ids of each tokenizer without its 256 byte tokens."""
    out = {}
    marked = pre_tokenizers.Metaspace()
    vocab, merges = learn_bpe(texts, size, marked)
    fallback = [decoders.Replace(MARK, " "), decoders.ByteFallback(), decoders.Fuse()]

    llama2 = bpe(vocab, merges, ["<unk>", "<s>", "</s>"] + BYTES, special("<unk>", "<s>", "</s>"),
                 unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    llama2.normalizer = normalizers.Sequence([normalizers.Prepend(MARK), normalizers.Replace(" ", MARK)])
    llama2.decoder = decoders.Sequence(fallback + [decoders.Strip(" ", 1, 0)])
    out["llama2"] = llama2

    mistral = bpe(vocab, merges, ["<unk>", "<s>", "</s>", "[INST]"] + BYTES,
                  special("<unk>", "<s>", "</s>", "[INST]"),
                  unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    mistral.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    mistral.decoder = decoders.Sequence(fallback + [decoders.Strip(" ", 1, 0)])
    out["mistral"] = mistral

    gemma = bpe(vocab, merges, ["<pad>", "<eos>", "<bos>", "<unk>"] + BYTES,
                special("<pad>", "<eos>", "<bos>", "<unk>"),
                unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    gemma.normalizer = normalizers.Replace(" ", MARK)
    gemma.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    gemma.add_tokens([AddedToken(name, normalized=False) for name in ("\n\n", "\n\n\n", MARK * 2, "<table>")])
    gemma.decoder = decoders.Sequence(fallback)
    out["gemma"] = gemma

    words = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    t5 = learn_unigram(texts, size, precompiled(charsmap), words, ["<pad>", "</s>", "<unk>"], "<unk>")
    t5.add_special_tokens(special("<pad>", "</s>", "<unk>", "<extra_id_0>"))
    t5.decoder = decoders.Metaspace()
    out["t5"] = t5

    albert_form = normalizers.Sequence([
        normalizers.Replace("``", '"'), normalizers.Replace("''", '"'), normalizers.NFKD(),
        normalizers.StripAccents(), normalizers.Lowercase(), precompiled(charsmap),
        normalizers.Replace(Regex(" {2,}"), " ")])
    albert = learn_unigram(texts, size, albert_form, words, ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"], "<unk>")
    albert.add_special_tokens(special("<pad>", "<unk>", "[CLS]", "[SEP]") + special("[MASK]", lstrip=True))
    albert.decoder = decoders.Metaspace()
    out["albert"] = albert

    xlmr_form = normalizers.Sequence([precompiled(charsmap), normalizers.Replace(Regex(" {2,}"), " ")])
    xlmr = learn_unigram(texts, size, xlmr_form, marked, ["<s>", "<pad>", "</s>", "<unk>"], "<unk>")
    xlmr.add_special_tokens(special("<s>", "<pad>", "</s>", "<unk>") + special("<mask>", lstrip=True))
    xlmr.decoder = decoders.Metaspace()
    out["xlmr"] = xlmr

    whole_form = normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC(), normalizers.Strip()])
    whole = learn_unigram(texts, size, whole_form, marked, ["<unk>", "<s>", "</s>"] + BYTES, "<unk>", True)
    whole.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    whole.add_special_tokens(special("<unk>", "<s>", "</s>"))
    whole.decoder = decoders.Sequence(fallback + [decoders.Strip(" ", 1, 0)])
    out["unigram_bytes"] = whole

    out["bert_uncased"] = learn_word_piece(texts, size, True)
    out["bert_cased"] = learn_word_piece(texts, size, False)

    qwen_form = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(QWEN), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    qwen = Tokenizer(models.BPE())
    qwen.normalizer = normalizers.NFC()
    qwen.pre_tokenizer = qwen_form
    qwen.decoder = decoders.ByteLevel()
    qwen.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=size + 256, show_progress=False, special_tokens=["<|endoftext|>", "<|im_start|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    out["qwen"] = qwen

    mixed_form = normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents(), normalizers.Lowercase()])
    mixed_words = pre_tokenizers.Sequence([
        pre_tokenizers.Whitespace(), pre_tokenizers.Punctuation("contiguous"), pre_tokenizers.Digits(True)])
    mixed_vocab, mixed_merges = learn_bpe(texts, size, mixed_words, mixed_form)
    mixed = bpe(mixed_vocab, mixed_merges, ["[UNK]", "<eos>"], special("[UNK]", "<eos>"),
                unk_token="[UNK]", ignore_merges=True)
    mixed.normalizer = mixed_form
    mixed.pre_tokenizer = mixed_words
    mixed.add_tokens([AddedToken("Caf\u00e9", normalized=True), AddedToken("art", single_word=True),
                      AddedToken("<left>", lstrip=True, normalized=False),
                      AddedToken("<right>", rstrip=True, normalized=False),
                      AddedToken("<both>", lstrip=True, rstrip=True, single_word=True, normalized=False)])
    out["mixed"] = mixed
    for tokenizer in out.values():
        tokenizer.encode_special_tokens = True
    return out


