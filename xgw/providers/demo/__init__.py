"""The built-in demo: a scripted upstream that speaks OpenAI's wire, with no model behind it.

It listens on a real loopback socket inside this process, so everything that passes through xgw for
a real provider passes for it too: streams at the speed of a person reading along, tool calls where
tools are offered and the prompt calls for one, structured answers, usage with cache hits. It
accepts any model name and answers under that name; every answer says that it is scripted.

Endpoints: POST /v1/chat/completions, POST /v1/embeddings, GET /v1/models.

A word in the last user message asks for a fault, so that one can be looked at in the debugger:

    demo:429        an error response; likewise 400, 401, 403, 404, 408, 409, 422, 500, 502, 503,
                    504, 529 (429, 503 and 529 with Retry-After: 1)
    demo:flaky      503 the first time, an answer the second time
    demo:context    400 context_length_exceeded
    demo:hang       says nothing at all           demo:stall    falls silent in mid-answer
    demo:slow       takes ten times as long       demo:cut      breaks off in mid-answer
    demo:error      an error event in mid-stream  demo:garbage  a line that is not JSON
    demo:length     finish reason length          demo:filter   finish reason content_filter
    demo:empty      an answer without text        demo:refuse   a refusal
    demo:reason     reasoning before the answer   demo:long     several hundred tokens
"""

from __future__ import annotations

from xgw.providers.demo.server import DemoServer

__all__ = ["DemoServer"]
