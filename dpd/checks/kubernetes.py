"""Rules about kubernetes."""
