"""What Dagster loads. The top of the house: nothing imports this module."""

from pipelines.house import definitions_of, fleet_of_environment

defs = definitions_of(fleet_of_environment())
