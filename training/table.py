"""The plain table: every word piece through the teacher alone, then fewer dimensions."""

import numpy as np
import torch

SMOOTHING = 0.001


def piece_vectors(teacher, count, progress):
    """The teacher's vector of each token by itself, 384 wide."""
    parts = []
    for first in range(0, count, 512):
        batch = [[number] for number in range(first, min(first + 512, count))]
        parts.append(teacher.embed(batch).cpu().numpy())
        progress(first + len(batch), count)
    return np.concatenate(parts)


def reduce(vectors, dims):
    """Mean-centred, then the `dims` directions of most variance, with the map that does it."""
    mean = vectors.mean(axis=0)
    centred = (vectors - mean).astype(np.float64)
    _, directions = np.linalg.eigh(centred.T @ centred)
    chosen = directions[:, ::-1][:, :dims]
    # An eigenvector's sign is arbitrary: fix it, so that every machine gets the same table.
    chosen = chosen * np.sign(chosen[np.abs(chosen).argmax(axis=0), np.arange(dims)])
    return (centred @ chosen).astype(np.float32), mean, chosen.astype(np.float32)


def rarity(counts):
    """a / (a + p): near one for rare tokens, near zero for the commonest. Unseen tokens count as one."""
    share = np.maximum(counts, 1) / np.maximum(counts, 1).sum()
    return (SMOOTHING / (SMOOTHING + share)).astype(np.float32)


def token_counts(id_lists, size):
    counts = np.zeros(size, np.int64)
    for ids in id_lists:
        np.add.at(counts, ids, 1)
    return counts


def pool(table, batch, device="cpu"):
    """Sums of the rows of each id list; torch, for measuring and training alike."""
    offsets = torch.tensor(np.cumsum([0] + [len(ids) for ids in batch[:-1]]), device=device)
    flat = torch.tensor([i for ids in batch for i in ids], dtype=torch.long, device=device)
    return torch.nn.functional.embedding_bag(flat, table, offsets, mode="sum")
