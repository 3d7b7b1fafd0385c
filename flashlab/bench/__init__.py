"""Measurements on a GPU, recorded with everything needed to do them again."""
