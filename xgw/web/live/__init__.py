"""Live pages: committed events → which partial shows them → one socket a page."""
