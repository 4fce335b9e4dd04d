"""Decoding of recordings: free-running and teacher-forced texts, sentence retrieval, attributions to channels."""
