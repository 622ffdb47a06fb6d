"""The only place that formats."""
