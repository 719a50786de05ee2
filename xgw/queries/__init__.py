"""Every read of the store, one module a noun; rows are dicts of column name to Python value."""
