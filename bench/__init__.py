"""Measurements of xgw beside direct calls, in one run on one machine: `python -m bench`."""
