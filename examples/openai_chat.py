"""A chat that never overflows: the official package, and nothing but its base URL is new.

    icecore proxy --upstream https://api.openai.com/v1 &
    export OPENAI_API_KEY=… MODEL=gpt-5-mini
    python examples/openai_chat.py

It keeps its whole history and sends all of it each time, as such programs do. Type a line
and read the answer; an empty line or the end of the input ends it.
"""

import os
import sys

from openai import OpenAI

client = OpenAI(
    base_url=os.environ.get("OPENAI_BASE_URL", "http://127.0.0.1:7434/openai/v1"),
    # A server on this machine wants none.
    api_key=os.environ.get("OPENAI_API_KEY", "none"),
)
history = [{"role": "system", "content": "You are a good companion. Answer briefly."}]

for line in sys.stdin:
    if not line.strip():
        break
    history.append({"role": "user", "content": line.strip()})
    answer = ""
    stream = client.chat.completions.create(
        model=os.environ.get("MODEL", "gpt-5-mini"), messages=history, stream=True
    )
    for chunk in stream:
        for choice in chunk.choices:
            answer += choice.delta.content or ""
            print(choice.delta.content or "", end="", flush=True)
    print()
    history.append({"role": "assistant", "content": answer})
