"""Frames in, figures out; nothing is computed here."""
