"""The sources of grid intensity in a fleet file: files, and APIs by kind.

Add a kind of API here together with its collector in `collectors.protocols.grid_apis`. Keep out yearly factors, which
are the same for every fleet (dbt_project/seeds/grid_factors.csv), and how rows land: `grid_landing`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from collectors.limits import GRID_LIMITS, Limits
from pipelines.fleet.catalog import by_metric
from pipelines.fleet.source_limits import RowLimits
from pipelines.fleet.values import Count, FleetPath, Name, Part, Positive, SourceName, Url, Variable

if TYPE_CHECKING:
    from collectors.protocols.grid_apis import GridCollector

INTENSITIES = ("direct_gco2e_per_kwh", "lifecycle_gco2e_per_kwh", "marginal_gco2e_per_kwh")


class GridFile(Part):
    """Intensity of one zone from CSV (also .gz) or Parquet; `path` may be a glob.

    Either an export of Electricity Maps' portal (`format: electricity_maps`), whose columns are known, or any file
    whose `time` (UTC where it carries no offset) and `values` (intensity to column) are named here.
    """

    path: FleetPath
    zone: Name
    format: Literal["electricity_maps"] | None = None
    period_minutes: Literal[5, 15, 30, 60] = 60
    time: Name | None = None
    values: dict[str, str] = Field(default_factory=dict)
    estimated: Name | None = None
    source: Name | None = None
    limits: RowLimits = RowLimits()

    @field_validator("values")
    @classmethod
    def _by_metric(cls, values: dict[str, str], info: ValidationInfo) -> dict[str, str]:
        return by_metric(values, INTENSITIES, info)

    @model_validator(mode="after")
    def _one_shape(self) -> GridFile:
        if self.format is not None and (self.time or self.values or self.estimated):
            raise ValueError("expected either format, or time and values with estimated")
        if self.format is None and not (self.time and self.values):
            raise ValueError("expected format: electricity_maps, or time and values")
        return self


class GridLimits(Part):
    """What an API's answers may cost: bytes after decompression, and seconds per answer and per window of ten days."""

    answer_bytes: Count = GRID_LIMITS.answer_bytes
    answer_seconds: Positive = GRID_LIMITS.answer_seconds
    window_seconds: Positive = GRID_LIMITS.window_seconds


class GridSource(Part):
    """The keys of every API: `zone` is the site's zone in this file, `url` may name a mirror."""

    name: SourceName
    zone: Name
    limits: GridLimits = GridLimits()

    def _limits(self) -> Limits:
        return Limits(**self.limits.model_dump())


class ElectricityMaps(GridSource):
    """Electricity Maps' API v3; `zone` is its own zone key. `history` reaches back 24 hours on any plan."""

    kind: Literal["electricity_maps"]
    token_env: Variable
    url: Url = "https://api.electricitymaps.com"
    endpoint: Literal["past-range", "history"] = "past-range"

    def collector(self) -> GridCollector:
        """The collector that reads this API."""
        from collectors.protocols.grid_apis import ElectricityMapsCollector  # noqa: PLC0415

        own = self.model_dump(include={"zone", "token_env", "endpoint"})
        return ElectricityMapsCollector(self.name, self.url, limits=self._limits(), **own)


class UkCarbonIntensity(GridSource):
    """NESO's Carbon Intensity API for Great Britain; a region has forecasts only."""

    kind: Literal["uk_carbon_intensity"]
    url: Url = "https://api.carbonintensity.org.uk"
    region_id: Annotated[int, Field(strict=True, ge=1, le=18)] | None = None

    def collector(self) -> GridCollector:
        """The collector that reads this API."""
        from collectors.protocols.grid_apis import UkCarbonIntensityCollector  # noqa: PLC0415

        return UkCarbonIntensityCollector(self.name, self.url, region_id=self.region_id, limits=self._limits())


class WattTime(GridSource):
    """WattTime's API v3; `region` is its balancing area. co2_moer is marginal, co2_aoer average."""

    kind: Literal["watttime"]
    region: Name
    username_env: Variable
    password_env: Variable
    url: Url = "https://api.watttime.org"
    signal_type: Literal["co2_moer", "co2_aoer"] = "co2_moer"

    def collector(self) -> GridCollector:
        """The collector that reads this API."""
        from collectors.protocols.grid_apis import WattTimeCollector  # noqa: PLC0415

        own = self.model_dump(include={"region", "signal_type", "username_env", "password_env"})
        return WattTimeCollector(self.name, self.url, limits=self._limits(), **own)


AnyGridSource = Annotated[ElectricityMaps | UkCarbonIntensity | WattTime, Field(discriminator="kind")]


class GridIntensity(Part):
    """Sources of grid intensity by the hour or finer; hours that they lack take the yearly factor, and are flagged."""

    sources: tuple[AnyGridSource, ...] = ()
    files: tuple[GridFile, ...] = ()
