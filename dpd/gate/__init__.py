"""What the health gate must prove of an environment, and when it must prove it again."""
