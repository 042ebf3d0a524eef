"""What is watched of endpoints, and what is made of it: queries, panels, dashboards, rules, alarms with their runbook."""
