"""Programs that make data of this project from published software. Nothing here runs at synthesis."""
