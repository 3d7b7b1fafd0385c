"""What the checker knows about each exercise: one module an exercise, of the same name as its file in solutions/."""
