"""Pure arithmetic on models, memory, links, addresses and cost. No input or output."""
