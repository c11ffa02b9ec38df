"""The course: assignments made from sources, released, collected, graded in isolation, and reported. Not part of `plm`."""
