"""The dashboards for Superset, and for Grafana on PostgreSQL and on Prometheus, made from the table of charts.

Add here how a chart is written for a tool. Keep out what the dashboards show: that is in `bi/charts`.
"""
