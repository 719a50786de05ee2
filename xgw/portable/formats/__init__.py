"""The formats that people and other programs read: each is written from an export's shelf."""
