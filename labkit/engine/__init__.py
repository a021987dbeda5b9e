"""Methods, sampling and sessions."""
