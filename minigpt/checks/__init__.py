"""Exercise checkers, one module a chapter: each says kindly what is wrong, and prints a line when all is right."""
