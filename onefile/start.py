"""Where the one program begins: the `xgw` command."""

from __future__ import annotations

from xgw.cli import main

main(prog_name="xgw")
