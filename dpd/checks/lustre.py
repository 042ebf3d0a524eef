"""Rules about lustre."""
