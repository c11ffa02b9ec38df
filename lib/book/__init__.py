"""The tools that make this book: notebooks from their sources, and the guards that keep them true."""
