"""What chapters 02 and 09 say about a GPU, a section for each question."""
