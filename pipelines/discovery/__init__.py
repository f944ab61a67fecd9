"""What an unknown source holds, as a fleet file would need it, and first numbers of it.

Add here what a user would ask of a cluster before the fleet file exists. Keep out how a source is asked
(`collectors.probes`) and every figure: first numbers are booked by the models of `dbt_project`.
"""
