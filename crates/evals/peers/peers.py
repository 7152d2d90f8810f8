#!/usr/bin/env python3
"""Asks another memory the same questions.

    peers.py PEER WORK.json

The file holds conversations: ids, texts and vectors of turns, and texts and vectors
of questions. Every peer gets the same vectors, for its own come from a model hub; its
ranking is its own. The answer is one JSON object on stdout: for each conversation and
question the ids of the turns found, best first, and what it took.
"""

import json
import os
import sys
import tempfile
import time

os.environ.setdefault("MEM0_TELEMETRY", "False")
os.environ.setdefault("ANONYMIZED_TELEMETRY", "False")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
HITS = 20


class Chroma:
    """A collection for each conversation, by cosine."""

    def __init__(self):
        import chromadb
        self.client = chromadb.EphemeralClient()

    def fill(self, number, conversation):
        self.turns = self.client.create_collection(f"conversation-{number}", metadata={"hnsw:space": "cosine"})
        ids = [turn["id"] for turn in conversation["turns"]]
        self.turns.add(ids=ids, documents=[t["text"] for t in conversation["turns"]],
                       embeddings=[t["vector"] for t in conversation["turns"]])

    def search(self, question):
        return self.turns.query(query_embeddings=[question["vector"]], n_results=HITS)["ids"][0]


class Txtai:
    """Hybrid: its BM25 and its vector index."""

    def __init__(self):
        import txtai
        self.module = txtai

    def fill(self, number, conversation):
        import numpy
        self.vectors = {t["text"]: t["vector"] for t in conversation["turns"] + conversation["questions"]}
        transform = lambda texts: numpy.array([self.vectors[text] for text in texts], dtype=numpy.float32)
        self.embeddings = self.module.Embeddings(method="external", transform=transform, hybrid=True)
        self.embeddings.index([(turn["id"], turn["text"], None) for turn in conversation["turns"]])

    def search(self, question):
        return [found for found, _ in self.embeddings.search(question["text"], HITS)]


class Mem0:
    """Turns as they are (no model extracts facts), in its local vector store."""

    def __init__(self):
        os.environ.setdefault("OPENAI_API_KEY", "none")
        from mem0 import Memory
        self.module = Memory

    def fill(self, number, conversation):
        folder = tempfile.mkdtemp()
        dims = len(conversation["turns"][0]["vector"])
        store = {"path": folder, "collection_name": "turns", "embedding_model_dims": dims, "on_disk": False}
        self.memory = self.module.from_config({
            "vector_store": {"provider": "qdrant", "config": store},
            "history_db_path": os.path.join(folder, "history.db"),
        })
        self.memory.embedding_model = Lookup(conversation)
        for turn in conversation["turns"]:
            self.memory.add(turn["text"], user_id="eval", infer=False, metadata={"turn": turn["id"]})

    def search(self, question):
        try:
            found = self.memory.search(question["text"], filters={"user_id": "eval"}, top_k=HITS)
        except (TypeError, ValueError):
            found = self.memory.search(question["text"], user_id="eval", limit=HITS)
        return [hit["metadata"]["turn"] for hit in found["results"]]


class Lookup:
    """An embedder that knows every text beforehand."""

    def __init__(self, conversation):
        self.vectors = {t["text"]: t["vector"] for t in conversation["turns"] + conversation["questions"]}
        self.zero = [0.0] * len(conversation["turns"][0]["vector"])

    def embed(self, text, memory_action=None):
        return self.vectors.get(text, self.zero)

    def embed_batch(self, texts, memory_action=None):
        return [self.embed(text) for text in texts]


PEERS = {"chroma": Chroma, "txtai": Txtai, "mem0": Mem0}


def main():
    peer = PEERS[sys.argv[1]]()
    with open(sys.argv[2], encoding="utf-8") as file:
        conversations = json.load(file)
    found, filling, asking, turns = [], 0.0, [], 0
    for number, conversation in enumerate(conversations):
        begun = time.perf_counter()
        peer.fill(number, conversation)
        filling += time.perf_counter() - begun
        turns += len(conversation["turns"])
        answers = []
        for question in conversation["questions"]:
            begun = time.perf_counter()
            answers.append(peer.search(question))
            asking.append(time.perf_counter() - begun)
        found.append(answers)
    asking.sort()
    print(json.dumps({"found": found, "turnsPerSecond": turns / filling,
                      "searchMs": 1000 * asking[len(asking) // 2] if asking else None}))


if __name__ == "__main__":
    main()
