"""Every picture in the course."""
