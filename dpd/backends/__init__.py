"""What runs the roles: one workload model in front, one module per backend behind. Never imports cdk8s."""
