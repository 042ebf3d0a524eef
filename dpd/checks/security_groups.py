"""Rules about security_groups."""
