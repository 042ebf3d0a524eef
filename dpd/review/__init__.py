"""What changes between two cloud assemblies, and what of it is dangerous. Reads folders, calls no AWS."""
