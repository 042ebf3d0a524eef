"""Kubernetes manifests, made with cdk8s. Never imports AWS."""
