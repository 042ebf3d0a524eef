"""Pages and pictures for people: self-contained HTML, and the same as PNG."""
