"""Texts of many scripts: the strings of the golden files, random strings, and text of Debian's packages."""
import glob
import gettext
import gzip
import random

SENTENCES = [
    "The quick brown fox jumps over the lazy dog. It wasn't there; it's 1,234.5 km away -- isn't it?",
    "Der Fluss f\u00fchrt Hochwasser, 12 Br\u00fccken sind gesperrt. Stra\u00dfe, \u00c4rger, \u00d6l, \u00dcbel.",
    "Le caf\u00e9 est tr\u00e8s bon, d\u00e9j\u00e0 vu \u00e0 No\u00ebl; \u0153uvre fran\u00e7aise, c\u2019est \u00e7a !",
    "\u0411\u044b\u0441\u0442\u0440\u0430\u044f \u043b\u0438\u0441\u0430 \u043f\u0435\u0440\u0435\u043f\u0440\u044b\u0433\u0438\u0432\u0430\u0435\u0442 \u0447\u0435\u0440\u0435\u0437 \u043b\u0435\u043d\u0438\u0432\u0443\u044e \u0441\u043e\u0431\u0430\u043a\u0443. \u0401\u043b\u043a\u0430, \u0439\u043e\u0434.",
    "\u0397 \u03b3\u03c1\u03ae\u03b3\u03bf\u03c1\u03b7 \u03ba\u03b1\u03c6\u03ad \u03b1\u03bb\u03b5\u03c0\u03bf\u03cd \u03c0\u03b7\u03b4\u03ac\u03b5\u03b9 \u03c0\u03ac\u03bd\u03c9 \u03b1\u03c0\u03cc \u03c4\u03bf \u03c3\u03ba\u03cd\u03bb\u03bf\u03c2.",
    "\u0627\u0644\u062b\u0639\u0644\u0628 \u0627\u0644\u0628\u0646\u064a \u0627\u0644\u0633\u0631\u064a\u0639 \u064a\u0642\u0641\u0632 \u0641\u0648\u0642 \u0627\u0644\u0643\u0644\u0628 \u0627\u0644\u0643\u0633\u0648\u0644\u060c \u0661\u0662\u0663.",
    "\u05d4\u05e9\u05d5\u05e2\u05dc \u05d4\u05d7\u05d5\u05dd \u05d4\u05de\u05d4\u05d9\u05e8 \u05e7\u05d5\u05e4\u05e5 \u05de\u05e2\u05dc \u05d4\u05db\u05dc\u05d1 \u05d4\u05e2\u05e6\u05dc\u05df. \u05e9\u05b8\u05c1\u05dc\u05d5\u05b9\u05dd",
    "\u0924\u0947\u091c\u093c \u092d\u0942\u0930\u0940 \u0932\u094b\u092e\u0921\u093c\u0940 \u0906\u0932\u0938\u0940 \u0915\u0941\u0924\u094d\u0924\u0947 \u0915\u0947 \u090a\u092a\u0930 \u0915\u0942\u0926\u0924\u0940 \u0939\u0948\u0964 \u0967\u0968\u0969",
    "\u654f\u6377\u7684\u68d5\u8272\u72d0\u72f8\u8df3\u8fc7\u4e86\u61d2\u72d7\u3002\u4ed6\u4eec\u5728\u8fd9\u91cc\uff0c\u4e0d\u662f\u5417\uff1f\uff11\uff12\uff13",
    "\u7d20\u65e9\u3044\u8336\u8272\u306e\u72d0\u304c\u6020\u3051\u8005\u306e\u72ac\u3092\u98db\u3073\u8d8a\u3048\u308b\u3002\u30ab\u30bf\u30ab\u30ca\u3001\uff76\uff80\uff76\uff85\u3001\u304c\u3068\u304b\u3099\u3002",
    "\ube60\ub978 \uac08\uc0c9 \uc5ec\uc6b0\uac00 \uac8c\uc73c\ub978 \uac1c\ub97c \ub6f0\uc5b4\ub118\ub294\ub2e4. \u1112\u1161\u11ab\u1100\u1173\u11af",
    "\u0e2a\u0e38\u0e19\u0e31\u0e02\u0e08\u0e34\u0e49\u0e07\u0e08\u0e2d\u0e01\u0e2a\u0e35\u0e19\u0e49\u0e33\u0e15\u0e32\u0e25\u0e01\u0e23\u0e30\u0e42\u0e14\u0e14\u0e02\u0e49\u0e32\u0e21\u0e2a\u0e38\u0e19\u0e31\u0e02\u0e02\u0e35\u0e49\u0e40\u0e01\u0e35\u0e22\u0e08",
]

SPECIAL = [
    " ", "  ", "   leading and trailing   ", "\n", "a\n\nb\n\n\nc", "tab\tand\r\nlines\r", "\u2581", "\u2581\u2581a\u2581b \u2581 c",
    "no\u00a0break\u2003em\u3000wide\u202fnarrow\u1680ogham", "zero\u200bwidth\u200c\u200d\ufeffbom\u00adsoft",
    "\x00\x01\x07\x1f\x7f\x80\x8f\x9f", "a\x00b", "<unk>", "a<unk>b <s> </s> <pad> <eos>", "[UNK] [SEP] [MASK]x  [MASK] y",
    "<0x41><0x0A> <0xZZ>", "e\u0301 e\u0302\u0323 \u1e69 s\u0323\u0307 s\u0307\u0323 \u212b A\u030a", "\ufb01\ufb03 \u2460\u2161 \u33a2 \u00bd \u2122 \u01c6",
    "\u0130I\u0131i \u1e9e\u00df \u03a3\u03c3\u03c2 \u01c5", "\U0001f600\U0001f44d\U0001f3fd\U0001f468\u200d\U0001f469\u200d\U0001f467 \u2764\ufe0f\U0001f1e9\U0001f1ea\U0001f1eb\U0001f1f7",
    "\U00020000\U0002a6d6\U000e0100\U000f0000\U0010ffff\ufdd0\ufffe\uffff\ufffd", "a\u0300\u0301\u0302\u0303\u0304\u0305\u0306\u0307b",
    "\u1100\u1161\u11a8\uac00\u11a8\uac01\u11a8", "``quoted'' and ''more``", "don't can't we've they're I'm he's do not",
    "x ' y ' z . a ? b ! c , d n't", "caf\u00e9 Caf\u00e9 CAFE\u0301 art party Art art.", "a <left> b <right> c <both> d<both>e  <both>  ",
    "<left><right>  <left>", "1234567890 \u0661\u0662 \u2167 \u00b2 3.14e-10", "...!!!???---___***+++===~~~$$$^^^```|||",
    "\u0940\u0c7c\u0c7d \u24b6 \u1e030 \u0378 \u0e00", "\r\n\r\n", "a\r\n\u0301b", "\u0915\u094d\u0937\u093f \u0ba8\u0bbf \u0e01\u0e33",
    "supercalifragilisticexpialidocious" * 4, "ab" * 60, "\u4e00" * 40, "a" * 101 + " " + "b" * 100, "<|endoftext|><|im_start|>",
]

RANGES = [(0x20, 0x7E), (0x20, 0x7E), (0xA0, 0x17F), (0x370, 0x3FF), (0x400, 0x4FF), (0x590, 0x6FF), (0x900, 0x97F),
          (0xE00, 0xE7F), (0x1100, 0x11FF), (0x3040, 0x30FF), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3)]
STRANGE = [(0x0, 0x1F), (0x7F, 0xA0), (0x300, 0x36F), (0x483, 0x489), (0x1AB0, 0x1AFF), (0x1DC0, 0x1DFF), (0x2000, 0x206F),
           (0x20D0, 0x20FF), (0x2100, 0x2BFF), (0x3000, 0x303F), (0x3200, 0x33FF), (0xF900, 0xFAFF), (0xFB00, 0xFDFF),
           (0xFE00, 0xFFFF), (0x1F1E6, 0x1F1FF), (0x1F300, 0x1F6FF), (0x20000, 0x2FA1F), (0xE0000, 0xE01EF),
           (0x0, 0xFFFF), (0x0, 0x10FFFF)]


def characters(random, ranges, count):
    out = []
    while len(out) < count:
        code = random.randint(*random.choice(ranges))
        if not 0xD800 <= code < 0xE000:
            out.append(chr(code))
    return out


def random_string(random):
    """Words of scripts, strange characters, runs, random bytes, or a mixture."""
    kind = random.randrange(6)
    count = random.randint(1, 60)
    if kind == 0:
        return random.randbytes(count).decode("utf-8", "replace")
    if kind == 1:
        words = ["".join(characters(random, [random.choice(RANGES)], random.randint(1, 9))) for _ in range(count // 5 + 1)]
        return random.choice([" ", "  ", "\n", ", "]).join(words)
    if kind == 2:
        return "".join(characters(random, STRANGE, count))
    if kind == 3:
        return "".join(c * random.randint(1, 5) for c in characters(random, RANGES + STRANGE, count // 4 + 1))
    if kind == 4:
        pool = SENTENCES + SPECIAL
        text = list(random.choice(pool)[:80])
        for _ in range(random.randint(1, 6)):
            text[random.randrange(len(text)):0] = characters(random, RANGES + STRANGE, random.randint(1, 2))
        return "".join(text)
    return "".join(characters(random, RANGES + STRANGE, count))


def random_strings(seed, count):
    random_ = random.Random(seed)
    return [random_string(random_) for _ in range(count)]


SCRIPTS = {"Latin": ["fr", "de", "vi", "pl", "tr"], "Cyrillic": ["ru", "uk", "bg"], "Greek": ["el"],
           "Arabic and Hebrew": ["ar", "fa", "he"], "Devanagari": ["hi", "mr", "ne"], "Han": ["zh_CN", "zh_TW"],
           "Japanese": ["ja"], "Hangul": ["ko"], "Thai and others": ["th", "ta", "ka", "km"]}


def messages(language):
    found = []
    for path in sorted(glob.glob(f"/usr/share/locale/{language}/LC_MESSAGES/*.mo")):
        try:
            with open(path, "rb") as file:
                found += gettext.GNUTranslations(file)._catalog.values()
        except (OSError, UnicodeDecodeError, ValueError, IndexError):  # catalogs that Python cannot read
            continue
    return [m for m in found if m]


def debian(megabytes):
    """Documents of about as many bytes, in equal parts of English and nine groups of scripts."""
    share = int(megabytes * 1e6 / (len(SCRIPTS) + 1))
    with gzip.open("/usr/share/dictd/gcide.dict.dz", "rb") as file:
        english = file.read(share).decode("utf-8", "replace")
    documents = [d for d in english.split("\n\n") if d]
    for languages in SCRIPTS.values():
        lines = [m for language in languages for m in messages(language)]
        random.Random(1).shuffle(lines)
        size = 0
        while lines and size < share:
            document = "\n".join(lines.pop() for _ in range(min(len(lines), 20)))
            documents.append(document)
            size += len(document.encode())
    return documents
