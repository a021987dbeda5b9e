"""The model hub: what a repository holds, and downloads that resume."""
