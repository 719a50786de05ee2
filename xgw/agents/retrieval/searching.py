"""The tool that searches a folder, as a model calls it."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import orjson

from xgw.agents.functions import ToolFailed
from xgw.agents.retrieval.index import Index


class Searching:
    """How one tool searches: where, for how many passages, and how large its answer may be."""

    def __init__(self, folder: str, top_k: int, max_bytes: int) -> None:
        self._folder = folder
        self._top_k = top_k
        self._max_bytes = max_bytes
        self._index = Index(folder)

    def function(self) -> Callable[..., Any]:
        """The function that a model calls."""

        def search(query: str) -> str:
            return self.search(query)

        name = os.path.basename(os.path.normpath(self._folder))
        search.__doc__ = f"""Search the documents in {name} for passages that hold words of a query.

        Args:
            query: Words to look for, in the language of the documents. The more of them a passage
                holds, and the rarer they are, the better it fits.
        """
        return search

    def search(self, query: str) -> str:
        """JSON: `hits`, the best first, each with path, line, score and text. Raises ToolFailed."""
        try:
            found = self._index.search(query, self._top_k)
        except OSError as error:
            raise ToolFailed(f"the documents cannot be read: {error.strerror}") from None
        hits = [asdict(hit) for hit in found]
        while True:
            told = orjson.dumps({"hits": hits})
            if len(told) <= self._max_bytes or not hits:
                return told.decode()
            hits.pop()
