"""Deflate with a dictionary: what most bodies and texts have in common takes no room in each.

What was packed can only be unpacked with the very same dictionary: these never change. A better one
would be another one, beside them.
"""

from __future__ import annotations

import zlib
from functools import cache

_RAW = -15
"""Deflate without zlib's header and checksum: rows have hashes."""

# The size up to which each is used: level, window, memory. zlib's usual quarter of a megabyte costs
# ten times what packing a short text does: the system has to bring the pages each time.
_EFFORTS = ((4096, (4, -12, 5)), (16384, (1, -14, 6)))
_USUAL_EFFORT = (1, -15, 8)

# What is likeliest stands last: it is the nearest to what is packed.
FORMS = (
    b'","service_tier":"default","system_fingerprint":"fp_","x_groq":{"id":"req_","usage":'
    b'{"queue_time":0.0,"prompt_tokens_details":{"cached_tokens":0,"audio_tokens":0},'
    b'"completion_tokens_details":{"reasoning_tokens":0,"audio_tokens":0,'
    b'"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}}'
    b'"max_tokens":"max_completion_tokens":"temperature":0.7,"top_p":1,"n":1,'
    b'"parallel_tool_calls":true,"tool_choice":"auto","response_format":{"type":"json_schema",'
    b'"json_schema":{"name":"strict":true,"schema":{"type":"object","properties":{"description":'
    b'"required":["additionalProperties":false}"],"tools":[{"type":"function","function":{"name":'
    b'"arguments":"{\\"}"}}],"stream":true,"stream_options":{"include_usage":true}}"]'
    b'["{\\"index\\": 0, \\"message\\": {\\"role\\": \\"tool\\", \\"tool_call_id\\": \\"call_", '
    b'\\"content\\": [{\\"type\\": \\"text\\", \\"text\\": {\\"type\\": \\"image_url\\", '
    b'\\"image_url\\": {\\"url\\": \\"data:image/png;base64,'
    b'["{\\"role\\": \\"user\\", \\"content\\": ",{"r":"'
    b'["{\\"role\\": \\"assistant\\", \\"content\\": ",{"r":"'
    b'["{\\"id\\": \\"chatcmpl-", \\"object\\": \\"chat.completion\\", \\"created\\": 17, '
    b'\\"model\\": \\"gpt-4o", \\"choices\\": [{\\"index\\": 0, \\"message\\": {\\"role\\": '
    b'\\"assistant\\", \\"content\\": ",{"r":"'
    b'"},", \\"refusal\\": null, \\"annotations\\": []}, \\"logprobs\\": null, '
    b'\\"finish_reason\\": \\"stop\\"}], \\"usage\\": {\\"prompt_tokens\\": , '
    b'\\"completion_tokens\\": , \\"total_tokens\\": }}"]'
    b'["{\\"id\\":\\"chatcmpl-","object\\":\\"chat.completion\\",\\"created\\":17,'
    b'\\"model\\":\\"gpt-4o["{\\"choices\\":[{\\"index\\":0,\\"message\\":{\\"role\\":'
    b'\\"assistant\\",\\"content\\":",{"r":"'
    b'"},",\\"refusal\\":null,\\"reasoning_content\\":null,\\"tool_calls\\":[{\\"id\\":\\"call_\\",'
    b'\\"type\\":\\"function\\",\\"function\\":{\\"name\\":\\"\\",\\"arguments\\":},'
    b'\\"finish_reason\\":\\"tool_calls\\",\\"logprobs\\":null}],\\"usage\\":{\\"prompt_tokens\\":,'
    b'\\"completion_tokens\\":,\\"total_tokens\\":,\\"prompt_tokens_details\\":'
    b'{\\"cached_tokens\\":}}}"]'
    b'["{\\"model\\":\\"","messages\\":[",{"l":"","s":","},",",{"n":["","s":","},'
    b'"],\\"stream\\":false,\\"temperature\\":1}"]'
    b'["{\\"role\\":\\"system\\",\\"content\\":",{"r":"["{\\"role\\":\\"user\\",\\"content\\":",'
    b'{"r":"["{\\"role\\":\\"assistant\\",\\"content\\":",{"t":"'
    b'"},",\\"refusal\\":null,\\"reasoning_content\\":null},\\"finish_reason\\":\\"stop\\",'
    b'\\"logprobs\\":null}],\\"usage\\":{\\"prompt_tokens\\":"},"}"]'
)
"""Templates of requests, their messages and answers, as clients and providers spell them."""

WORDS = (
    b" although because between different something sometimes through another without question "
    b"example following important information available possible probably understand different "
    b"number second several together whether against during before however already always another "
    b"around children country development experience government himself interest language little "
    b"million national nothing perhaps problem program public really result school service social "
    b"student system themselves though thought towards under university usually various within "
    b"world working Here is a summary of the following steps: First, Next, Finally, make sure that "
    b"you have the right version installed. For example, if you want to use this function, you "
    b"need to create a new file and add the code below. Please let me know if you have any "
    b"questions or would like me to help with anything else. I hope this helps! You can also use "
    b"the following command to run the tests. This is because there are many ways to do this. "
    b"def __init__(self, return None import from class self. function const return await async => "
    b'{ }); if (error) { console.log( print(f\\" for i in range(len( SELECT * FROM WHERE id = '
    b"ORDER BY \\n\\n## \\n- **\\n1. **```python\\n```\\n\\n* `\\n   - The user wants to know what "
    b"the model is doing when it was asked about the same time as they were in the first place, so "
    b"that we could see how much more of it had been used by then and where it should go from "
    b"here. I'm sorry, but I don't have access to that. It's not possible to do this without the "
    b"other one, which has been there for some time. What would you like to know about their work "
    b"and how does it compare with your own? the and to of a in that is was for it with as on be "
    b"at by this had not are but from or have an they which one you were her all she there would "
    b"their we him been has when who will more no if out so said what up its about into than them "
    b"can only other new some could these two may then do first any my now such like our over man "
    b"me even most made after also did many before must through"
)
"""Texts: words and turns of phrase that are in most of them."""


def pack(content: bytes, dictionary: bytes) -> bytes:
    """The content, packed with a dictionary."""
    packer = _primed(*_effort(len(content)), dictionary).copy()
    return packer.compress(content) + packer.flush()


def _effort(size: int) -> tuple[int, int, int]:
    for most, effort in _EFFORTS:
        if size <= most:
            return effort
    return _USUAL_EFFORT


@cache
def _primed(level: int, window: int, memory: int, dictionary: bytes) -> zlib._Compress:
    """To be copied: that takes half as long as reading the dictionary does."""
    return zlib.compressobj(level, zlib.DEFLATED, window, memory, zdict=dictionary)


def unpack(packed: bytes, dictionary: bytes) -> bytes:
    """What was packed with this dictionary; zlib.error for anything else."""
    return unpack_first(packed, dictionary)[0]


def unpack_first(packed: bytes, dictionary: bytes) -> tuple[bytes, bytes]:
    """What was packed with this dictionary, and the bytes that stand behind it."""
    unpacker = zlib.decompressobj(_RAW, zdict=dictionary)
    return unpacker.decompress(packed) + unpacker.flush(), unpacker.unused_data
