"""The batch engine: sessions that share a model's steps, joining and leaving as they come and end."""
