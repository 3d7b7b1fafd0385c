"""flash_attention and what a model needs beside it."""
