#!/usr/bin/env python3
"""How much evidence does a model find, alone and beside BM25?

    measure.py --model FILE.icemodel DATA.jsonl.gz...

Every question with evidence is asked of its own conversation; LoCoMo's adversarial
ones are left out. R@k is the mean share of evidence turns among the first k.

  dense     cosine of the int8 vectors
  +near     dense, where the turns before and after lend a third of their score
  bm25      stemmed BM25 over speaker and text
  fused     bm25 and dense, each min-max normalised and added, with neighbours
  maxsim    for each token of the question the nearest token of the turn, weighted by rarity
  fused+ms  fused, with maxsim as a third score
"""

import argparse
import collections
import gzip
import json
import math
import re
import sys

import numpy as np
import snowballstemmer

import icemodel

LEFT_OUT = {"adversarial"}
KS = (5, 10)
STOPWORDS = frozenset(
    "a about an and are as at be been being by can could did do does for from had has have he her his how i if in "
    "into is it its me my no not of on or our out she should so than that the their then there these they this "
    "those to up was we were what when where which who why will with would you your".split())


def load(path):
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


class Bm25:
    """Enough of BM25 to compare with."""

    stem = staticmethod(snowballstemmer.stemmer("english").stemWord)

    def __init__(self, texts, k1=1.2, b=0.75):
        self.postings = collections.defaultdict(list)
        counts = [collections.Counter(self.words(text)) for text in texts]
        lengths = np.array([sum(c.values()) for c in counts], float)
        self.norms = k1 * (1 - b + b * lengths / max(1.0, lengths.mean()))
        for number, count in enumerate(counts):
            for word, times in count.items():
                self.postings[word].append((number, times))

    def words(self, text):
        return [self.stem(w) for w in re.findall(r"[^\W_]+", text.lower()) if w not in STOPWORDS]

    def scores(self, query):
        total = np.zeros(len(self.norms))
        for word in set(self.words(query)):
            hits = self.postings.get(word, [])
            weight = math.log(1 + (len(total) - len(hits) + 0.5) / (len(hits) + 0.5))
            for number, times in hits:
                total[number] += weight * times * 2.2 / (times + self.norms[number])
        return total


class Conversation:
    def __init__(self, data):
        self.turns = [turn for session in data["sessions"] for turn in session["turns"]]
        self.session = [n for n, s in enumerate(data["sessions"]) for _ in s["turns"]]
        self.place = {turn["id"]: number for number, turn in enumerate(self.turns)}
        self.bm25 = Bm25([f"{t.get('name') or t['role']}: {t['content']}" for t in self.turns])
        self.texts = [turn["content"] for turn in self.turns]
        self.questions = [q for q in data["questions"] if q["evidence"] and q["category"] not in LEFT_OUT]
        self.lexical = [self.bm25.scores(q["question"]) for q in self.questions]
        same = np.array(self.session[1:]) == np.array(self.session[:-1])
        self.joined = same.astype(float)

    def with_neighbours(self, scores, share=1 / 3):
        lent = scores.copy()
        lent[1:] += share * scores[:-1] * self.joined
        lent[:-1] += share * scores[1:] * self.joined
        return lent


def min_max(scores):
    low, high = scores.min(), scores.max()
    return (scores - low) / (high - low) if high > low else np.zeros_like(scores)


def unit(vectors):
    vectors = np.asarray(vectors, np.float32)
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)


def recalls(scores, gold):
    order = np.argsort(-scores, kind="stable")
    return [len(gold & set(order[:k].tolist())) / len(gold) for k in KS]


def max_sim(model, conversation):
    """A function from a question to its late-interaction score with every turn."""
    rows = unit(model.rows)
    turns = [np.array(sorted(set(model.tokens(text))), int) for text in conversation.texts]
    starts = np.cumsum([0] + [max(1, len(t)) for t in turns])[:-1]
    flat = np.concatenate([t if len(t) else np.zeros(1, int) for t in turns])
    used, inverse = np.unique(flat, return_inverse=True)
    spread = np.bincount(inverse, minlength=len(used))

    def scores(question):
        ids = np.array(sorted(set(model.tokens(question))), int)
        if not len(ids):
            return np.zeros(len(turns))
        seen = dict(zip(used.tolist(), spread.tolist()))
        idf = np.array([math.log(1 + len(turns) / (1 + seen.get(i, 0))) for i in ids.tolist()])
        idf *= model.weights[ids] * np.linalg.norm(model.rows[ids].astype(float), axis=1)
        best = np.maximum.reduceat((rows[ids] @ rows[used].T)[:, inverse], starts, axis=1)
        return idf @ np.maximum(best, 0.0)

    return scores


def measure(conversations, encode, late=None):
    """Mean recalls by name. `encode` gives vectors for texts; `late`, if any, makes maxsim."""
    found = collections.defaultdict(list)
    for conversation in conversations:
        turns = unit(encode(conversation.texts))
        asked = unit(encode([q["question"] for q in conversation.questions]))
        extra = late(conversation) if late else None
        for question, vector, bm25 in zip(conversation.questions, asked, conversation.lexical):
            gold = {conversation.place[i] for i in question["evidence"]}
            dense = turns @ vector
            both = min_max(bm25) + min_max(dense)
            near = conversation.with_neighbours
            rankings = {"dense": dense, "+near": near(dense), "bm25": bm25, "fused": near(both)}
            if extra:
                similar = extra(question["question"])
                rankings["maxsim"] = similar
                rankings["fused+ms"] = near(both + min_max(similar))
            for name, scores in rankings.items():
                found[name].append(recalls(scores, gold))
    return {name: np.mean(values, axis=0) for name, values in found.items()}


def show(title, figures):
    cells = "  ".join(f"{name} {v[0]:.3f}/{v[1]:.3f}" for name, v in figures.items())
    print(f"{title:24} R@5/R@10  {cells}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, action="append", help="a model file; may be given again")
    parser.add_argument("--no-maxsim", action="store_true", help="leave late interaction out")
    parser.add_argument("data", nargs="+", help="conversations with questions, .jsonl.gz")
    options = parser.parse_args()
    for path in options.data:
        conversations = [Conversation(data) for data in load(path)]
        print(f"{path}: {sum(len(c.questions) for c in conversations)} questions", file=sys.stderr)
        for name in options.model:
            model = icemodel.Model(name)
            encode = lambda texts: [model.encode(text) for text in texts]
            late = None if options.no_maxsim else (lambda conversation: max_sim(model, conversation))
            show(name.rsplit("/", 1)[-1], measure(conversations, encode, late))


if __name__ == "__main__":
    main()
