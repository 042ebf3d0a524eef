"""The HyperPod inference operator: disaggregation through ``pdSpec`` of an InferenceEndpointConfig."""
