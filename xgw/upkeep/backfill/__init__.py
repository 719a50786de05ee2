"""Backfill: messages and request logs from before turns existed get theirs."""
