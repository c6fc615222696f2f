"""Texts that a byte-level tokeniser may get wrong; data/golden.json has their ids by GPT-2's full vocabulary."""

from __future__ import annotations

TEXTS = (
    "",
    "Hello, world",
    "Hello, world. I'm sorry, but I'm",
    "First Citizen:\nBefore we proceed any further, hear me speak.\n\nAll:\nSpeak, speak.\n",
    "It's we've they'll I'd you're can't I'm; IT'S WE'VE 's 't're'' '",
    "  two   three    \n\n\t\ttabs \t mixed \r\n\r\n  end  ",
    "\n",
    "a\u00a0b\u2003c\u3000d\u1680e\u2028f\u2029g\x85h\x0bi\x0cj",
    "\x1c\x1d\x1e\x1f no space for Unicode: \x1c x\x1fy",
    "\x00\x01\x07\x08\x1b[31m\x7f\x80\x9f\u200b\u200d\ufeff\ufffd\uffff",
    "3.14159 1,000,000 0x7f 2026-11-21 ½ ² ³ Ⅷ ٣٤ 四十二 ①",
    "emoji 😀😃 👍🏽 👨‍👩‍👧‍👦 🏳️‍🌈 🇨🇭 ❤️ ☕️",
    "中文字符，日本語のテキスト、한국어 텍스트。",
    "Ελληνικά русский עברית العربية हिन्दी ไทย ქართული",
    "café cafe\u0301 naïve Å Å ﬁ ß ẞ İ ı Ǆ",
    "ÃĠĊÿŁ letters that spell bytes in the files",
    "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𐍈 𠀀𪛖 \U000e0041 \U0010ffff",
    "def f(x):\n    return [i**2 for i in range(10) if x != {'a': 1}]  # ?!\n",
    'https://example.org/?q=a%20b&c=d#e <b>html</b> \\n \\\\ `~@#$%^&*()_+-=[]{}|;:",./<>?',
    "SolidGoldMagikarp aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa =-=-=-=-=-=-=-=- ................................",
    "one document<|endoftext|>another <|endoftext|><|endoftext|> <|endoftext|",
    "supercalifragilisticexpialidocious antidisestablishmentarianism",
)
