"""`python -m xgw`, the same as the `xgw` command."""

from __future__ import annotations

from xgw.cli import main

if __name__ == "__main__":
    main(prog_name="xgw")
