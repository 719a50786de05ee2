"""Redaction: secrets and what tells who somebody is, taken out of everything that leaves."""

from __future__ import annotations

from xgw.portable.redaction.edits import Edit
from xgw.portable.redaction.placeholders import Place
from xgw.portable.redaction.redactor import Redactor

__all__ = ["Edit", "Place", "Redactor"]
