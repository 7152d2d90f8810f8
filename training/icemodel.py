"""The model file of Icecore and the reference way to use it.

What this file does with integers is the specification that the Rust code is held
to (docs/format-model.md). It needs nothing but numpy.
"""

import hashlib
import json
import re
import struct
import unicodedata

import numpy as np

MAGIC = b"ICEMODEL"
VERSION = 1
MAX_WEIGHT = 32767
MAX_WORD_CHARS = 100


# The file


def write(path, header, vocab, rows, weights):
    """Writes a model and returns its identity, a SHA-256 in hex.

    `rows` is int8 of shape (vocab, dims), `weights` u16 of shape (vocab,).
    """
    words = "\n".join(vocab).encode("utf-8")
    header = {**header, "vocab": len(vocab), "dims": int(rows.shape[1]), "vocabBytes": len(words)}
    head = json.dumps(header, sort_keys=True, separators=(",", ":")).encode("utf-8")
    body = b"".join([
        MAGIC, struct.pack("<II", VERSION, len(head)), head, words,
        weights.astype("<u2").tobytes(), rows.astype(np.int8).tobytes(),
    ])
    digest = hashlib.sha256(body)
    with open(path, "wb") as out:
        out.write(body + digest.digest())
    return digest.hexdigest()


class Model:
    """A static embedding table, read from a file and checked."""

    def __init__(self, path):
        with open(path, "rb") as file:
            raw = file.read()
        if raw[:8] != MAGIC:
            raise ValueError(f"{path} is not a model file")
        version, size = struct.unpack_from("<II", raw, 8)
        if version != VERSION:
            raise ValueError(f"{path} has format {version}, this reads {VERSION}")
        if hashlib.sha256(raw[:-32]).digest() != raw[-32:]:
            raise ValueError(f"{path} is damaged: its checksum does not match")
        self.identity = raw[-32:].hex()
        self.header = json.loads(raw[16:16 + size])
        at = 16 + size
        self.vocab = raw[at:at + self.header["vocabBytes"]].decode("utf-8").split("\n")
        at += self.header["vocabBytes"]
        count, dims = self.header["vocab"], self.header["dims"]
        self.weights = np.frombuffer(raw, "<u2", count, at).astype(np.int64)
        self.rows = np.frombuffer(raw, np.int8, count * dims, at + 2 * count).reshape(count, dims)
        self.tokenizer = WordPiece(self.vocab)

    def tokens(self, text):
        """The ids that count: pieces of known words, the first `maxTokens` of them."""
        return self.tokenizer.ids(text, self.header["maxTokens"])

    def encode(self, text):
        """The text's int8 vector: integers from beginning to end."""
        ids = self.tokens(text)
        sums = (self.weights[ids, None] * self.rows[ids].astype(np.int64)).sum(axis=0)
        return to_int8(sums)


def to_int8(sums):
    """Scales so that the largest component is 127 in size, rounding halves away from zero."""
    largest = int(np.abs(sums).max(initial=0))
    if largest == 0:
        return np.zeros(len(sums), np.int8)
    sizes = (2 * 127 * np.abs(sums) + largest) // (2 * largest)
    return (np.sign(sums) * sizes).astype(np.int8)


# The tokenizer: BERT's pieces, with a simpler way to find words


class WordPiece:
    def __init__(self, vocab):
        self.index = {token: number for number, token in enumerate(vocab)}
        self.known = {}

    def ids(self, text, limit):
        found = []
        for word in words(text):
            pieces = self.known.get(word)
            if pieces is None:
                pieces = self.known[word] = self._pieces(word)
            found.extend(pieces)
            if len(found) >= limit:
                return found[:limit]
        return found

    def _pieces(self, word):
        """Longest match first; a word with any unknown part has no pieces at all."""
        if len(word) > MAX_WORD_CHARS:
            return []
        pieces, start = [], 0
        while start < len(word):
            for end in range(len(word), start, -1):
                number = self.index.get(("##" if start else "") + word[start:end])
                if number is not None:
                    break
            else:
                return []
            pieces.append(number)
            start = end
        return pieces


def words(text):
    """Runs of letters and digits, in lower case without accents; any other sign is a word of its own."""
    if text.isascii() and not ASCII_HIDDEN.search(text):
        return ASCII_WORD.findall(text.lower())
    return [word for run in _plain(text).split(" ") for word in _runs(run)]


def _plain(text):
    kept = []
    for char in text:
        if _is_space(char):
            kept.append(" ")
        elif _is_cjk(ord(char)):
            kept.append(f" {char} ")
        elif not _is_hidden(char):
            kept.append(char)
    bare = (c for c in unicodedata.normalize("NFD", "".join(kept)) if not unicodedata.category(c).startswith("M"))
    return "".join(c.lower() for c in bare)


def _runs(text):
    start = 0
    for at, char in enumerate(text):
        if not _is_alphanumeric(char):
            if start < at:
                yield text[start:at]
            yield char
            start = at + 1
    if start < len(text):
        yield text[start:]


def _is_space(char):
    # Unicode's White_Space; str.isspace would add U+001C to U+001F.
    return char in "\t\n\v\f\r\x85\u2028\u2029" or unicodedata.category(char) == "Zs"


def _is_hidden(char):
    code = ord(char)
    return unicodedata.category(char) == "Cc" or any(first <= code <= last for first, last in HIDDEN)


def _is_alphanumeric(char):
    # Unicode's Alphabetic or any number. Marks are gone by now, so what Alphabetic
    # has beyond letters is only the circled and squared ones.
    code = ord(char)
    return unicodedata.category(char)[0] in "LN" or any(first <= code <= last for first, last in CIRCLED)


def _is_cjk(code):
    return any(first <= code <= last for first, last in CJK)


ASCII_HIDDEN = re.compile(r"[\x00-\x08\x0e-\x1f\x7f]")
ASCII_WORD = re.compile(r"[a-z0-9]+|[!-/:-@\[-`{-~]")
HIDDEN = [(0xAD, 0xAD), (0x200B, 0x200F), (0x202A, 0x202E), (0x2060, 0x2064), (0xFEFF, 0xFEFF), (0xFFFD, 0xFFFD)]
CIRCLED = [(0x24B6, 0x24E9), (0x1F130, 0x1F149), (0x1F150, 0x1F169), (0x1F170, 0x1F189)]
CJK = [(0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x2A6DF), (0x2A700, 0x2CEAF),
       (0x2F800, 0x2FA1F)]


# From floats to the file's integers


def quantise(table):
    """Splits a float table into int8 directions and u16 lengths.

    Each row is stretched until its largest component is 127, and what it was
    stretched by becomes the token's weight; so a rare word's row loses no
    more to rounding than a common one's, and inference stays in integers.
    """
    peaks = np.abs(table).max(axis=1)
    safe = np.where(peaks > 0, peaks, 1.0)
    rows = np.rint(table / safe[:, None] * 127).astype(np.int8)
    weights = np.rint(peaks / peaks.max() * MAX_WEIGHT).astype(np.uint16)
    return rows, weights
