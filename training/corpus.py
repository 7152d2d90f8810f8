#!/usr/bin/env python3
"""Gathers the text the table is trained on, from packages anyone can fetch by name.

    corpus.py --packages DIR --friendsqa train-friendsqa.jsonl.gz --out DIR

DIR holds one unpacked folder a package (README.md says how to fill it). Two files
are written: text.txt.xz, a source and a passage a line, for the teacher to read; pairs.jsonl.xz,
texts that belong together, each with its kind and, for questions, its conversation.
"""

import argparse
import collections
import gzip
import html
import json
import lzma
import pathlib
import random
import re
import sys
import zlib

LEX_FILES = {5: "animal", 6: "thing", 13: "food", 15: "place", 18: "person", 20: "plant", 4: "activity"}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--packages", required=True, type=pathlib.Path, help="folder of unpacked packages")
    parser.add_argument("--friendsqa", required=True, help="train-friendsqa.jsonl.gz")
    parser.add_argument("--out", required=True, type=pathlib.Path, help="folder to write to")
    options = parser.parse_args()
    root = options.packages
    shows = load_shows(options.friendsqa)
    synsets = load_wordnet(root / "wordnet-base/usr/share/wordnet")
    sources = {
        "friendsqa": friends_text(shows),
        "wordnet": wordnet_text(synsets),
        "austen": austen(root / "r-cran-janeaustenr/usr/lib/R/site-library/janeaustenr/data/Rdata.rdb"),
        "moby-dick": books(root / "datasets-moby-dick/package/data"),
        "chatterbot": chatterbot(root / "chatterbot_corpus/chatterbot_corpus/data/english"),
        "python": restructured(root / "python3.11-doc/usr/share/doc/python3.11/html/_sources"),
        "postgresql": web(root / "postgresql-doc-15/usr/share/doc"),
        "nodejs": web(root / "nodejs-doc/usr/share/doc"),
        "rust": web(root / "rust-doc/usr/share/doc/rust-doc/html/book"),
    }
    seen, passages = set(), []
    sources = {name: list(texts) for name, texts in sources.items()}
    for name, texts in sources.items():
        fresh = [t for t in texts if t not in seen and not seen.add(t)]
        print(f"{name}: {len(fresh)} passages, {sum(map(len, fresh)) / 1e6:.1f} MB", file=sys.stderr)
        passages += [f"{name}\t{text}" for text in fresh]
    options.out.mkdir(parents=True, exist_ok=True)
    with lzma.open(options.out / "text.txt.xz", "wt", encoding="utf-8") as out:
        out.write("".join(text + "\n" for text in passages))
    pairs = [*friends_pairs(shows), *wordnet_pairs(synsets), *kind_of_pairs(synsets), *neighbour_pairs(sources)]
    print(dict(collections.Counter(pair["kind"] for pair in pairs)), file=sys.stderr)
    with lzma.open(options.out / "pairs.jsonl.xz", "wt", encoding="utf-8") as out:
        out.write("".join(json.dumps(pair, ensure_ascii=False) + "\n" for pair in pairs))


def read(path):
    with lzma.open(path, "rt", encoding="utf-8") as lines:
        return [line.rstrip("\n") for line in lines]


def squeeze(text):
    return " ".join(text.split())


def fits(text):
    return 3 <= len(text.split()) <= 150


# FriendsQA


def load_shows(path):
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def friends_text(shows):
    texts = [q["question"] for show in shows for q in show["questions"]]
    for show in shows:
        for session in show["sessions"]:
            said = [turn["content"] for turn in session["turns"]]
            texts += said
            texts += [" ".join(said[at:at + 3]) for at in range(0, len(said), 2)]
    return [t for t in map(squeeze, texts) if fits(t)]


def friends_pairs(shows):
    """Each question with an utterance that answers it; other utterances of the show are hard negatives."""
    for show in shows:
        said = {turn["id"]: squeeze(turn["content"]) for s in show["sessions"] for turn in s["turns"]}
        for question in show["questions"]:
            for answer in question["evidence"]:
                yield {"kind": "answer", "a": squeeze(question["question"]), "b": said[answer],
                       "group": show["memoryRef"]}


# WordNet


def load_wordnet(folder):
    synsets = {}
    for part in ("noun", "verb", "adj", "adv"):
        for line in (folder / f"data.{part}").read_text(encoding="utf-8").splitlines():
            if not line.startswith(" "):
                read_synset(line, part, synsets)
    for part in ("noun", "verb", "adj", "adv"):
        for line in (folder / f"index.{part}").read_text(encoding="utf-8").splitlines():
            if not line.startswith(" "):
                read_senses(line, part, synsets)
    return synsets


def read_synset(line, part, synsets):
    left, _, note = line.partition(" | ")
    fields = left.split()
    count = int(fields[3], 16)
    words = [re.sub(r"\(.*\)$", "", fields[4 + 2 * i]).replace("_", " ") for i in range(count)]
    pointers = fields[5 + 2 * count:]
    above = [pointers[at + 1] for at in range(0, len(pointers) - 3) if pointers[at] == "@" and pointers[at + 2] == "n"]
    pieces = [squeeze(p).strip('"; ') for p in re.split(r';\s*(?=")', note)]
    synsets[part, fields[0]] = {"words": words, "file": int(fields[1]), "above": above, "part": part,
                                "gloss": pieces[0], "examples": pieces[1:], "first": False}


def read_senses(line, part, synsets):
    """Marks a synset that is the first and a counted sense of a word: the ones people mean."""
    fields = line.split()
    pointer_kinds = int(fields[3])
    tagged = int(fields[5 + pointer_kinds])
    first = synsets.get((part, fields[6 + pointer_kinds]))
    if first and (tagged > 0 or first["words"][0].lower() == fields[0].replace("_", " ")):
        first["first"] = True
        first["common"] = first.get("common", False) or tagged > 0


def wordnet_text(synsets):
    for synset in synsets.values():
        yield squeeze(synset["gloss"])
        yield from (squeeze(e) for e in synset["examples"])
        yield squeeze(", ".join(synset["words"]) + ": " + synset["gloss"])


def wordnet_pairs(synsets):
    for synset in synsets.values():
        if synset["first"]:
            names = ", ".join(synset["words"][:4])
            yield {"kind": "gloss", "a": names, "b": synset["gloss"]}
            for example in synset["examples"][:2]:
                yield {"kind": "example", "a": f"{names}: {synset['gloss']}", "b": example}


ASKED = ["What {above} does {who} have?", "Which {above} did {who} mention?", "What kind of {above} does {who} like?",
         "What {above} did {who} get?", "Which {above} is {who}'s favorite?", "What {above} was it?",
         "What sort of {above} is {who} interested in?", "Has {who} ever had a {above}?", "{above}?",
         "Tell me about the {above} that {who} talked about."]
SAID = ["I've been thinking about the {it} a lot lately.", "We just got a {it}, it's so cool!", "My {it} is doing great, thanks.",
        "Yesterday I finally saw the {it}.", "I love {it}!", "There's nothing like a good {it}, right?",
        "Honestly, the {it} was the best part of the weekend.", "I'm looking into {it} for the project.",
        "My sister told me about the {it} last week.", "Could you help me with {it}?", "{it}",
        "We talked about {it} and then went home.", "Thanks! The {it} took me a while."]
WHO = ["Anna", "Tom", "the user", "Maria", "she", "he", "Sam", "Priya", "I", "Alex", "they", "Ben"]


def kind_of_pairs(synsets):
    """A question that names the kind, an answer that names the thing: pet and dog, instrument and cello."""
    draw = random.Random(1)
    for (part, _), synset in synsets.items():
        if part != "noun" or not synset.get("common") or synset["file"] not in LEX_FILES:
            continue
        for above in ancestors(synset, synsets, 2):
            for _ in range(3):
                asked, said = draw.choice(ASKED), draw.choice(SAID)
                yield {"kind": "kind-of", "b": said.format(it=draw.choice(synset["words"])),
                       "a": asked.format(above=draw.choice(above["words"]), who=draw.choice(WHO))}


def ancestors(synset, synsets, levels):
    found, here = [], [synset]
    for _ in range(levels):
        here = [synsets["noun", key] for s in here for key in s["above"] if ("noun", key) in synsets]
        found += [s for s in here if s.get("common")]
    return found


# Books and documentation


def austen(path):
    """R's lazy-load database: zlib blocks after their length, lines after a type word and theirs."""
    raw, at = path.read_bytes(), 0
    while at < len(raw):
        block = zlib.decompressobj()
        plain = block.decompress(raw[at + 4:])
        at = len(raw) - len(block.unused_data)
        lines = re.findall(rb"\x00\x04\x00\x09\x00\x00\x00.([^\x00]*)", plain, re.S)
        yield from paragraphs([line.decode("utf-8", "replace") for line in lines])


def books(folder):
    for path in sorted(folder.rglob("*.txt")):
        yield from paragraphs(path.read_text(encoding="utf-8", errors="replace").splitlines())


def paragraphs(lines):
    for block in "\n".join(lines).split("\n\n"):
        sentences = re.split(r"(?<=[.!?][\"”]) +|(?<=[.!?]) +(?=[A-Z\"“])", squeeze(block))
        for at in range(0, len(sentences), 2):
            text = " ".join(sentences[at:at + 2])
            if fits(text):
                yield text


def chatterbot(folder):
    for path in sorted(folder.glob("*.yml")):
        for line in path.read_text(encoding="utf-8").splitlines():
            text = re.match(r"\s*-(?: -)?\s+(.*)", line)
            if text and fits(text[1]):
                yield squeeze(text[1].strip("'\""))


def restructured(folder):
    for path in sorted(folder.rglob("*.rst.txt")):
        for block in re.split(r"\n\s*\n", path.read_text(encoding="utf-8")):
            text = squeeze(re.sub(r":[\w:+-]+:`[~!]?([^`<]*)(?:<[^`]*>)?`", r"\1", block).replace("``", ""))
            if fits(text) and not re.match(r"[.>:|=+*#-]", text) and text[-1] in ".:?!":
                yield text


def web(folder):
    for path in sorted(folder.rglob("*.html*")):
        raw = path.read_bytes()
        page = (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode("utf-8", "replace")
        for block in re.findall(r"<p[^>]*>(.*?)</p>", page, re.S):
            text = squeeze(html.unescape(re.sub(r"<[^>]*>", "", block)))
            if fits(text):
                yield text


def neighbour_pairs(sources):
    """Passages that follow one another, from the sources where order means something."""
    for name in ("friendsqa", "austen", "moby-dick", "python", "postgresql", "nodejs", "rust"):
        texts = sources[name]
        draw = random.Random(2)
        places = draw.sample(range(len(texts) - 1), min(15000, len(texts) - 1))
        for at in sorted(places):
            yield {"kind": "next", "a": texts[at], "b": texts[at + 1]}


if __name__ == "__main__":
    main()
