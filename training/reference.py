#!/usr/bin/env python3
"""Writes what the reference implementation answers, for other implementations to be held to.

    reference.py --model FILE.icemodel --out testdata/model/reference.json
"""

import argparse
import hashlib
import json

import icemodel

TEXTS = [
    "", "   \t\n ", "Hello, world!", "I went to the dentist yesterday and it wasn't so bad.",
    "When did Anna adopt her second dog?", "Café déjà vu: naïve façade, Ångström, São Paulo",
    "cafe\u0301 and caf\u00e9 are equal", "東京で寿司を食べました。", "我们明天去北京 with friends",
    "thanks😀 so much!!! 🎉🎉 you're the best👩\u200d💻", "don\u00adt hy\u200bphen\u2060ate \ufeffme",
    "Привет, как дела?", "नमस्ते दुनिया", "[CLS] spelled out [SEP] [UNK]", "x" * 101 + " " + "y" * 100,
    "fn main() { println!(\"{:?}\", vec![1, 2, 3]); } // C++ <T> a_b $5.00 50%",
    "\u0130stanbul STRASSE stra\u00dfe \u03a3\u03a3 \u24b6bc \ufb01ne \u00bd \u2167", "bell\x07 null\x00 line\u2028break nb\u00a0space",
    "the the the the", "A long tale of a patient memory that never forgets a single word. " * 100,
]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--out", required=True)
    options = parser.parse_args()
    model = icemodel.Model(options.model)
    cases = []
    for text in TEXTS:
        vector = model.encode(text)
        cases.append({"text": text, "ids": model.tokens(text), "head": vector[:16].tolist(),
                      "sha256": hashlib.sha256(vector.tobytes()).hexdigest()})
    with open(options.out, "w", encoding="utf-8") as out:
        out.write(json.dumps({"model": model.header["name"], "identity": model.identity, "cases": cases},
                             ensure_ascii=True, separators=(",", ":")).replace('{"text"', '\n{"text"') + "\n")


if __name__ == "__main__":
    main()
