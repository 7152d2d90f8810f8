"""A chat with a tool that never overflows: the official package, and nothing but its base
URL is new.

    icecore proxy --upstream https://api.anthropic.com/v1 &
    export ANTHROPIC_API_KEY=… MODEL=claude-haiku-4-5
    python examples/anthropic_chat.py

It keeps its whole history and sends all of it each time, as such programs do. Type a line
and read the answer; an empty line or the end of the input ends it.
"""

import datetime
import os
import sys

from anthropic import Anthropic

client = Anthropic(
    base_url=os.environ.get("ANTHROPIC_BASE_URL", "http://127.0.0.1:7434/anthropic"),
    # A server on this machine wants none.
    api_key=os.environ.get("ANTHROPIC_API_KEY", "none"),
)
TOOLS = [
    {
        "name": "today",
        "description": "Today's date.",
        "input_schema": {"type": "object", "properties": {}},
    }
]
history = []


def answer():
    """One answer, printed as it comes."""
    with client.messages.stream(
        model=os.environ.get("MODEL", "claude-haiku-4-5"),
        system="You are a good companion. Answer briefly.",
        messages=history,
        tools=TOOLS,
        max_tokens=400,
    ) as stream:
        for piece in stream.text_stream:
            print(piece, end="", flush=True)
        message = stream.get_final_message()
    history.append({"role": "assistant", "content": message.content})
    return [block.id for block in message.content if block.type == "tool_use"]


for line in sys.stdin:
    if not line.strip():
        break
    history.append({"role": "user", "content": line.strip()})
    while calls := answer():
        today = datetime.date.today().isoformat()
        results = [{"type": "tool_result", "tool_use_id": call, "content": today} for call in calls]
        history.append({"role": "user", "content": results})
    print()
