"""Full-text search over a folder: which files count, how they are cut, how they are found again."""

from __future__ import annotations

from xgw.agents.retrieval.searching import Searching

__all__ = ["Searching"]
