#!/usr/bin/env python3
"""Compares quire's tokenizers with Hugging Face `tokenizers` on many texts.

The converters of `transformers` create the reference tokenizers from GGUF files. If a converter drops the pre-tokenizer of the original
model, this tool sets the pre-tokenizer of the model's published tokenizer.json. It also saves each tokenizer as a tokenizer.json, which
quire reads too.

  tools/compare_tokenizers.py --tool build/release/quire_tokenize_tool --model MODEL.gguf --vocabs FOLDER [--count 10000] [--texts FOLDER]
"""
import argparse
import gzip
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import unicodedata

ROOT = pathlib.Path(__file__).resolve().parent.parent

# Article 1 of the Universal Declaration of Human Rights, and a few additional lines.
SCRIPTS = [
    "All human beings are born free and equal in dignity and rights. They're endowed with reason and conscience, aren't they? I'LL SAY SO.",
    "Tous les êtres humains naissent libres et égaux en dignité et en droits. L'été à Nîmes, c'était « déjà » l'œuvre.",
    "Alle Menschen sind frei und gleich an Würde und Rechten geboren. Straße, Größe, Füße, ÄÖÜ, Donaudampfschifffahrtsgesellschaft.",
    "Todos los seres humanos nacen libres e iguales en dignidad y derechos. ¿Qué? ¡Mañana!",
    "Все люди рождаются свободными и равными в своем достоинстве и правах. Ёжик, объём.",
    "Всі люди народжуються вільними і рівними у своїй гідності та правах. Їжак, ґанок.",
    "Όλοι οι άνθρωποι γεννιούνται ελεύθεροι και ίσοι στην αξιοπρέπεια και τα δικαιώματα.",
    "人人生而自由,在尊严和权利上一律平等。他们赋有理性和良心,并应以兄弟关系的精神相对待。",
    "人人生而自由,在尊嚴和權利上一律平等。「二〇二六年」,第３章。",
    "すべての人間は、生れながらにして自由であり、かつ、尊厳と権利とについて平等である。カタカナ、ひらがな、ﾊﾝｶｸ。",
    "모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다.",
    "يولد جميع الناس أحرارًا متساوين في الكرامة والحقوق. ٠١٢٣٤٥٦٧٨٩، نعم؟",
    "כל בני האדם נולדו בני חורין ושווים בערכם ובזכויותיהם. שָׁלוֹם",
    "सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता और समानता प्राप्त है। १२३",
    "সমস্ত মানুষ স্বাধীনভাবে সমান মর্যাদা এবং অধিকার নিয়ে জন্মগ্রহণ করে।",
    "மனிதப் பிறிவியினர் சகலரும் சுதந்திரமாகவே பிறக்கின்றனர்.",
    "ప్రతిపత్తిస్వత్వముల విషయమున మానవులెల్లరును జన్మతః స్వతంత్రులును సమానులును నగుదురు.",
    "มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกันในเกียรติศักดิ์และสิทธิ ๑๒๓",
    "Tất cả mọi người sinh ra đều được tự do và bình đẳng về nhân phẩm và quyền.",
    "Bütün insanlar hür, haysiyet ve haklar bakımından eşit doğarlar. İstanbul'da ığdır.",
    "Wszyscy ludzie rodzą się wolni i równi pod względem swej godności. Zażółć gęślą jaźń.",
    "Všichni lidé rodí se svobodní a sobě rovní. Příliš žluťoučký kůň.",
    "ყველა ადამიანი იბადება თავისუფალი და თანასწორი თავისი ღირსებითა და უფლებებით.",
    "Բոլոր մարդիկ ծնվում են ազատ ու հավասար իրենց արժանապատվությամբ։",
    "የሰው ልጅ ሁሉ ሲወለድ ነጻና በክብርና በመብትም እኩልነት ያለው ነው።",
    "លូនទាំងអស់ កើតមកមានសេរីភាព និងសមភាពក្នុងសេចក្ដីថ្លៃថ្នូរ",
    "လူတိုင်းသည် တူညီ လွတ်လပ်သော ဂုဏ်သိက္ခာဖြင့် လည်းကောင်း",
    "ᏂᎦᏓ ᎠᏂᏴᏫ ᏂᎨᎫᏓᎸᎾ ᎠᎴ ᎤᏂᏠᏱ ᎤᎾᏕᎿ.",
    "𐌰𐌻𐌻𐌰𐌹 𐌼𐌰𐌽𐌽𐌰 𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𝟘𝟙𝟚 ㎏ Ⅻ ½ ² ³ ⅷ ﬁ ﬃ ǆ ſo long",
]
EMOJI = "😀 😶‍🌫️ 👩‍👩‍👧‍👦 🏳️‍🌈 🇩🇪🇫🇷 👍🏽 ❤️ ☕️ 🚀🚀🚀 1️⃣ ©️ ™ 🧑🏿‍💻 🫠 ✅".split(" ")
SPACES = [" ", "  ", "   ", "\t", "\n", "\r\n", "\r", "\n\n", " \n ", "\u00a0", "\u3000", "\u2003", "\u200b", "\ufeff", "\u2028", "\u0085", "\x0b", "\x00",
          " " * 17, "\n" * 9, "\t\t\t", "▁", "▁▁"]
PUNCTUATION = ["'s", "'S", "'ll", "'LL", "'ſ", "...", "!!!", "—", "``", "''''", '"""', "->", "!=", "==", "//", "/*", "*/", "{}", "[]", "();", "<>", "$", "€", "%20", "&amp;", "\\n", "#", "@",
               "_", "__init__", "a_b", "http://", "://", "~", "^", "|", "°", "§", "…", "„", "“", "«", "、", "。", "！", "？", "："]
SPECIAL = ["<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|begin_of_text|>", "<|im_start", "im_end|>", "<|", "|>", "<0x0A>", "<<s>>"]


def read_folder(folder):
    for path in sorted(pathlib.Path(folder).rglob("*")):
        if path.is_file():
            data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
            yield data.decode("utf-8", errors="replace")


def corpora(folder):
    own = sorted(p for pattern in ("src/**/*.cpp", "include/**/*.h", "docs/*.md", "*.md", "tools/**/*.py") for p in ROOT.glob(pattern))
    texts = [p.read_text(encoding="utf-8", errors="replace") for p in own if p.is_file()]
    return texts + (list(read_folder(folder)) if folder else [])


def random_words(rng, count):
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
    return "".join("".join(rng.choices(letters, k=rng.randint(1, 9))) + rng.choice(SPACES[:8] + PUNCTUATION) for _ in range(count))


def random_characters(rng, count):
    """Returns characters that are in Python's tables (Unicode 14 on Debian 12), because libraries may handle later characters differently."""
    out = []
    while len(out) < count:
        block = rng.choice([(0x20, 0x7F), (0xA0, 0x250), (0x300, 0x530), (0x530, 0x1000), (0x1000, 0x2000), (0x2000, 0x3100), (0x3100, 0xD7A4), (0xF900, 0x10000),
                            (0x10000, 0x1F000), (0x1F000, 0x1FB00), (0x20000, 0x2A6D7)])
        character = chr(rng.randrange(*block))
        if unicodedata.category(character) not in ("Cn", "Cs", "Co"):
            out.append(character)
    return "".join(out)


def slice_of(rng, text, longest):
    begin = rng.randrange(max(1, len(text) - 1))
    return text[begin:begin + rng.randint(1, longest)]


def mixture(rng):
    parts = [*EMOJI, *SPACES, *PUNCTUATION, *SPECIAL]
    words = [word for line in SCRIPTS for word in line.split()]
    return "".join(rng.choice(parts) if rng.random() < 0.5 else rng.choice(words) for _ in range(rng.randint(1, 30)))


def build_texts(count, seed=20240601, folder=None):
    """Returns the texts. They depend only on the seed, the folder and the files of this repository."""
    rng = random.Random(seed)
    sources = [text for text in corpora(folder) if len(text) > 20]
    makers = [
        lambda: slice_of(rng, rng.choice(sources), 800),
        lambda: slice_of(rng, rng.choice(SCRIPTS), 120),
        lambda: mixture(rng),
        lambda: random_words(rng, rng.randint(1, 40)),
        lambda: random_characters(rng, rng.randint(1, 60)),
        lambda: unicodedata.normalize(rng.choice(["NFD", "NFKD", "NFC"]), slice_of(rng, rng.choice(SCRIPTS), 80)),
        lambda: "".join(rng.choice(SPACES) + slice_of(rng, rng.choice(SCRIPTS), 12) for _ in range(rng.randint(1, 8))) + rng.choice(SPACES),
    ]
    texts = ["", " ", "\n", "a", *SCRIPTS, *SPACES, *SPECIAL]
    while len(texts) < count:
        texts.append(makers[len(texts) % len(makers)]())
    return texts[:count]


def read_gguf(path):
    """Returns the tokenizer's keys in the form that the converters of transformers require, and the pre-tokenizer's name."""
    import gguf

    fields = gguf.GGUFReader(path).fields
    names = {"tokens": "tokens", "scores": "scores", "token_type": "token_type", "merges": "merges", "bos_token_id": "bos_token_id", "eos_token_id": "eos_token_id",
             "unknown_token_id": "unk_token_id"}
    tokenizer = {target: fields[f"tokenizer.ggml.{key}"].contents() for key, target in names.items() if f"tokenizer.ggml.{key}" in fields}
    kind = fields["tokenizer.ggml.model"].contents()
    tokenizer["tokenizer_type"] = kind
    pre = fields["tokenizer.ggml.pre"].contents() if "tokenizer.ggml.pre" in fields else ""
    return kind, pre, tokenizer


def merges_of_scores(tokens, scores):
    """Derives merges for SentencePiece vocabularies like transformers, but with a set instead of a list, which is minutes faster."""
    score = dict(zip(tokens, scores))
    merges = []
    for token in tokens:
        pairs = [(token[:i], token[i:], score[token]) for i in range(1, len(token)) if token[:i] in score and token[i:] in score]
        merges.extend(sorted(pairs, key=lambda pair: (score[pair[0]], score[pair[1]]), reverse=True))
    merges.sort(key=lambda merge: merge[2], reverse=True)
    return [f"{left} {right}" for left, right, _ in merges]


LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def reference(path):
    """Returns a tokenizers.Tokenizer for a GGUF file."""
    from tokenizers import AddedToken, Regex, models, pre_tokenizers
    from transformers.integrations.ggml import convert_gguf_tokenizer

    kind, pre, keys = read_gguf(path)
    control = [AddedToken(token, normalized=False, special=True) for token, kind_of in zip(keys["tokens"], keys["token_type"]) if kind_of == 3]
    user = [AddedToken(token, normalized=False, special=False) for token, kind_of in zip(keys["tokens"], keys["token_type"]) if kind_of == 4]
    if kind == "llama":
        keys["merges"] = merges_of_scores(keys["tokens"], keys["scores"])
        tokenizer, _ = convert_gguf_tokenizer("llama", keys)
        tokenizer.add_special_tokens([AddedToken(keys["tokens"][keys["unk_token_id"]], normalized=False, special=True)])
    else:
        keys.pop("scores", None)
        tokenizer, _ = convert_gguf_tokenizer("qwen2" if pre == "qwen2" else "gpt2", keys)
        byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        if pre == "llama-bpe":
            tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(LLAMA3), "isolated"), byte_level])
            vocab = {token: i for i, token in enumerate(keys["tokens"])}
            tokenizer.model = models.BPE(vocab, [tuple(m.split(" ")) for m in read_gguf(path)[2]["merges"]], ignore_merges=True)
        elif pre == "smollm":
            tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
                [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
        elif pre != "qwen2":
            tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
        # The converters add special tokens that are not in every vocabulary; the published post-processors only add BOS.
    tokenizer.add_special_tokens(control)
    tokenizer.add_tokens(user)
    return tokenizer


def run_tool(tool, model, lines, *flags):
    data = "".join(json.dumps(line) + "\n" for line in lines)
    done = subprocess.run([tool, str(model), *flags], input=data, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{tool} {model}: {done.stderr.strip()}")
    return [json.loads(line) for line in done.stdout.split("\n") if line]


def save_folder(tokenizer, folder):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def compare(tool, path, texts, saved):
    """Returns three lists of mismatches (text, ours, theirs): ids from the GGUF file, ids from the tokenizer.json, and decoded text."""
    tokenizer = reference(path)
    expected = [encoding.ids for encoding in tokenizer.encode_batch(texts, add_special_tokens=False)]
    folder = save_folder(tokenizer, saved)
    results = []
    for model in (path, folder):
        ours = run_tool(tool, model, texts, "--parse-special")
        results.append([(text, mine, theirs) for text, mine, theirs in zip(texts, ours, expected, strict=True) if mine != theirs])
    decoded = run_tool(tool, path, expected, "--decode")
    theirs = tokenizer.decode_batch(expected, skip_special_tokens=True)
    results.append([(text, mine, their) for text, mine, their in zip(texts, decoded, theirs, strict=True) if mine != their])
    return results


def kinds(model, vocabs):
    """Returns {name: GGUF file}."""
    vocabs = pathlib.Path(vocabs)
    found = {"default model": pathlib.Path(model)} if model else {}
    found.update({name: vocabs / f"ggml-vocab-{name}.gguf" for name in ("gpt-2", "llama-bpe", "qwen2", "llama-spm")})
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tool", required=True)
    parser.add_argument("--model")
    parser.add_argument("--vocabs", required=True)
    parser.add_argument("--count", type=int, default=10000)
    parser.add_argument("--texts", help="folder of additional real texts")
    parser.add_argument("--show", type=int, default=5, help="number of mismatches to print per kind (default: 5)")
    arguments = parser.parse_args()
    texts = build_texts(arguments.count, folder=arguments.texts)
    failed = False
    for name, path in kinds(arguments.model, arguments.vocabs).items():
        with tempfile.TemporaryDirectory() as folder:
            results = compare(arguments.tool, path, texts, folder)
        counts = dict(zip(("GGUF", "tokenizer.json", "decode"), map(len, results)))
        print(f"{name}: {len(texts)} texts, mismatches {counts}", flush=True)
        for label, result in zip(counts, results):
            for text, mine, theirs in result[:arguments.show]:
                print(f"  {label}: {text[:200]!r}\n    quire       {mine if isinstance(mine, str) else mine[:60]!r}\n    tokenizers  {theirs if isinstance(theirs, str) else theirs[:60]!r}")
        failed |= any(counts.values())
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
