"""Whether disaggregation pays for a traffic, with what layout and at what cost. Reads its own input files; prints and writes nothing."""
