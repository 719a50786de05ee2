"""Older stores: what is in them, and how it becomes sessions, messages and request logs."""
