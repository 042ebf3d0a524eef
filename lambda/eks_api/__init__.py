"""A cluster's Kubernetes API, asked with the standard library and botocore. Functions that need it ship this folder beside their own."""
