"""One step as its page shows it: a module for what each tab shows, `view` puts them together."""
