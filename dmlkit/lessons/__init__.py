"""What the lessons draw and check: code that teaches nothing, out of their way."""
