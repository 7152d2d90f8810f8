#!/usr/bin/env python3
"""Shows detect-secrets the same texts.

    detect_secrets_peer.py CASES.jsonl

Every line of the file is {"text": …}. All its plugins and its default filters are on.
It is asked in two ways: as for a string given to it (`scan_line`, which also looks at
words without quotes; those below its own limits of entropy do not count, as in its
command line), and line by line as it reads a file. It names a line and rarely what is
secret on it, so anything it says about any line of a text counts as found. The answer is one JSON object on stdout: for each way, which texts it
found something in, and the seconds that took.
"""

import importlib.metadata
import json
import sys
import time

from detect_secrets.core import scan
from detect_secrets.core.plugins.util import get_mapping_from_secret_type_to_class
from detect_secrets.settings import default_settings, get_settings

LIMITED = {kind: made() for kind, made in get_mapping_from_secret_type_to_class().items()
           if hasattr(made, "calculate_shannon_entropy")}


def is_meant(secret):
    plugin = LIMITED.get(secret.type)
    return plugin is None or plugin.calculate_shannon_entropy(secret.secret_value) > plugin.entropy_limit


def as_string(text):
    return any(is_meant(secret) for line in text.splitlines() for secret in scan.scan_line(line))


def as_file(text):
    lines = list(enumerate(text.splitlines(), start=1))
    return any(True for _ in scan._process_line_based_plugins(lines, filename="corpus.txt"))


def ask(way, texts):
    begun = time.perf_counter()
    found = [at for at, text in enumerate(texts) if way(text)]
    return {"found": found, "seconds": time.perf_counter() - begun}


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        texts = [json.loads(line)["text"] for line in file]
    with default_settings():
        # There is no file whose name could be looked at.
        get_settings().disable_filters("detect_secrets.filters.common.is_invalid_file")
        answer = {"version": importlib.metadata.version("detect-secrets"),
                  "string": ask(as_string, texts), "file": ask(as_file, texts)}
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
