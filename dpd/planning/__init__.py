"""Whether disaggregation pays for a traffic, with what layout and at what cost. Models in, verdict out; no input or output."""
