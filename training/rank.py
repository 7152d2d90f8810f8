#!/usr/bin/env python3
"""Fits what each signal of the ranking is worth.

    cargo run --release -p evals -- dump --data DATA.jsonl.gz... --out signals.jsonl
    rank.py signals.jsonl [--l2 0.001] [--share beam-dev=2] [--train-only train-friendsqa] [--fix lexical=0]

The evaluation writes, for every question, the signals of its candidates as the
engine computes them. The fit is listwise: each evidence turn against the question's
other candidates, a softmax over the weighted sums, with L2 on the weights.

No figure is measured on a conversation that was fitted on: conversations are dealt
into folds, and each fold is ranked with weights from the others. A file's questions
have the same say together, whatever their number, times its --share. Printed are the
figures with the weights that the engine has now and with the fitted ones, what
leaving out each signal costs, and the weights of all data, ready for weights.rs.
LoCoMo's adversarial questions are neither fitted nor measured.
"""

import argparse
import json

import numpy as np
from scipy.optimize import minimize

LEFT_OUT = {"adversarial"}
MEASURES = ("R@1", "R@5", "R@10", "R@20", "any@5", "all@5")


class Question:
    def __init__(self, line):
        self.dataset, self.category = line["dataset"], line["category"]
        self.conversation = f"{line['dataset']}/{line['conversation']}"
        self.signals = np.array(line["signals"], np.float64).reshape(-1, len(line["names"]))
        self.gold = np.array(line["gold"], bool)
        self.evidence = line["evidence"]

    def scores(self, weights):
        """How the candidates do in the order that the weights give them."""
        found = self.gold[np.argsort(-(self.signals @ weights), kind="stable")]
        within = {k: int(found[:k].sum()) for k in (1, 5, 10, 20)}
        shares = [within[k] / self.evidence for k in (1, 5, 10, 20)]
        return np.array([*shares, within[5] > 0, within[5] >= self.evidence], float)


def load(paths):
    questions, names, weights = [], None, None
    for path in paths:
        with open(path, encoding="utf-8") as lines:
            for line in map(json.loads, lines):
                names, weights = line["names"], np.array(line["weights"])
                if line["category"] not in LEFT_OUT and line["signals"]:
                    questions.append(Question(line))
    return questions, names, weights


class Pack:
    """Questions as arrays, so that a step of the fit is a few products.

    Negatives are a question's first candidates that are no evidence: the rest hardly
    count in a softmax.
    """

    NEGATIVES = 80

    def __init__(self, questions):
        width = questions[0].signals.shape[1]
        self.negatives = np.zeros((len(questions), self.NEGATIVES, width))
        self.is_there = np.zeros((len(questions), self.NEGATIVES), bool)
        positives, self.of, self.share = [], [], []
        for number, question in enumerate(questions):
            others = question.signals[~question.gold][:self.NEGATIVES]
            self.negatives[number, :len(others)] = others
            self.is_there[number, :len(others)] = True
            for signals in question.signals[question.gold]:
                positives.append(signals)
                self.of.append(number)
                self.share.append(1 / question.evidence)
        self.positives, self.of, self.share = np.array(positives), np.array(self.of), np.array(self.share)

    def fit(self, chosen, says, free, fixed, l2):
        """Weights for the signals in `free`; the others keep their place in `fixed`.

        `chosen` says which questions count, `says` how much each.
        """
        rows = np.where(chosen)[0]
        place = np.full(len(chosen), -1)
        place[rows] = np.arange(len(rows))
        keep = chosen[self.of]
        negatives, is_there = self.negatives[rows][:, :, free], self.is_there[rows]
        base_negatives, base_positives = self.negatives[rows] @ fixed, self.positives[keep] @ fixed
        positives, of = self.positives[keep][:, free], place[self.of[keep]]
        say = self.share[keep] * says[self.of[keep]]
        say = say / say.sum()
        flat = negatives.reshape(-1, len(free))

        def loss(weights):
            sums = np.where(is_there, negatives @ weights + base_negatives, -np.inf)
            own = positives @ weights + base_positives
            top = np.maximum(np.max(sums, axis=1, initial=-1e9)[of], own)
            others = np.exp(sums[of] - top[:, None])
            itself = np.exp(own - top)
            total = others.sum(1) + itself
            value = (say * (np.log(total) + top - own)).sum()
            pull = np.zeros_like(sums)
            np.add.at(pull, of, others * (say / total)[:, None])
            slope = flat.T @ pull.ravel() + positives.T @ (say * (itself / total - 1))
            return value + l2 * weights @ weights / 2, slope + l2 * weights

        found = minimize(loss, np.zeros(len(free)), jac=True, method="L-BFGS-B", options={"maxiter": 200})
        weights = fixed.copy()
        weights[free] = found.x
        return weights


class Laboratory:
    def __init__(self, questions, args, width):
        self.questions, self.l2, self.folds = questions, args.l2, args.folds
        self.pack = Pack(questions)
        self.dataset = np.array([q.dataset for q in questions])
        self.is_measured = ~np.isin(self.dataset, args.train_only)
        self.fold = np.where(self.is_measured, deal(questions, args.folds), -1)
        self.says = np.zeros(len(questions))
        for name in set(self.dataset):
            own = self.dataset == name
            self.says[own] = args.share.get(name, 1.0) / own.sum()
        self.width = width

    def fit(self, chosen, without, fixed):
        held = set(without) | set(fixed)
        free = [n for n in range(self.width) if n not in held]
        base = np.zeros(self.width)
        for number, weight in fixed.items():
            base[number] = weight
        return self.pack.fit(chosen, self.says, free, base, self.l2)

    def cross_validated(self, without=(), fixed=None):
        """Each measured question's scores, by weights that never saw its conversation."""
        fixed = {n: w for n, w in (fixed or {}).items() if n not in without}
        scores = np.zeros((len(self.questions), len(MEASURES)))
        for fold in range(self.folds):
            weights = self.fit(self.fold != fold, without, fixed)
            for number in np.where(self.fold == fold)[0]:
                scores[number] = self.questions[number].scores(weights)
        return scores

    def with_weights(self, weights):
        return np.array([question.scores(weights) for question in self.questions])

    def show(self, title, scores, base=None):
        for name in dict.fromkeys(self.dataset[self.is_measured]):
            own = self.dataset == name
            means = scores[own].mean(0)
            cells = "".join(f"{v:8.3f}" for v in means) if base is None \
                else "".join(f"{v:+8.3f}" for v in means - base[own].mean(0))
            print(f"{title:28s}{name:18s}{own.sum():5d}{cells}")

    def categories(self, scores):
        for name in dict.fromkeys(self.dataset[self.is_measured]):
            kinds = np.array([q.category for q in self.questions])
            for kind in sorted(set(kinds[self.dataset == name])):
                own = (self.dataset == name) & (kinds == kind)
                print(f"{'  ' + kind:28s}{name:18s}{own.sum():5d}" + "".join(f"{v:8.3f}" for v in scores[own].mean(0)))


def deal(questions, folds):
    """Conversations of each file in turn, so that folds are of one size."""
    seen = {}
    for question in questions:
        own = seen.setdefault(question.dataset, {})
        own.setdefault(question.conversation, len(own))
    return [seen[q.dataset][q.conversation] % folds for q in questions]


def pairs(text):
    name, value = text.split("=")
    return name, float(value)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("signals", nargs="+")
    parser.add_argument("--l2", type=float, default=1e-3)
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--share", type=pairs, action="append", default=[], metavar="FILE=SHARE")
    parser.add_argument("--train-only", action="append", default=[], metavar="FILE")
    parser.add_argument("--fix", type=pairs, action="append", default=[], metavar="SIGNAL=WEIGHT")
    parser.add_argument("--no-ablation", action="store_true")
    args = parser.parse_args()
    args.share = dict(args.share)
    questions, names, now = load(args.signals)
    fixed = {names.index(name): weight for name, weight in args.fix}
    laboratory = Laboratory(questions, args, len(names))

    print(f"{'':46s}{'n':>5s}" + "".join(f"{m:>8s}" for m in MEASURES))
    laboratory.show("weights as they are", laboratory.with_weights(now))
    fitted = laboratory.cross_validated(fixed=fixed)
    laboratory.show("fitted, cross-validated", fitted)
    laboratory.categories(fitted)
    if not args.no_ablation:
        for number, name in enumerate(names):
            if fixed.get(number) != 0:
                laboratory.show(f"without {name}", laboratory.cross_validated((number,), fixed), fitted)

    weights = laboratory.fit(np.ones(len(questions), bool), (), fixed)
    laboratory.show("fitted on all, seen", laboratory.with_weights(weights))
    print()
    for name, weight in zip(names, weights):
        print(f"            Signal::{name.capitalize()} => {weight:.1f},")


if __name__ == "__main__":
    main()
