"""The rehearsal: what the charts emit for an endpoint, run for real on a CPU, and judged by the health gate."""
