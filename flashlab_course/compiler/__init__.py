"""What the compiler makes of a kernel: watched runs, ahead-of-time compilation, layouts, the lint."""
