"""Documentation, and the program that writes docs/help.md."""
