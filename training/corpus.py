import lzma
def read(path):
    with lzma.open(path, "rt", encoding="utf-8") as lines:
        return [l.rstrip("\n") for l in lines]
