"""What Dagster loads. Nothing imports this module."""

from pipelines.code_location import definitions_of, fleet_of_environment

defs = definitions_of(fleet_of_environment())
