"""The questions of the workbook: for each a sheet, a query on the published tables, and columns with their units.

Add here a group of questions. Keep out single ones: those of a month are in `month_questions`, others in
`detail_questions`.
"""

from __future__ import annotations

from pipelines.publishing.workbook.detail_questions import DETAILS
from pipelines.publishing.workbook.month_questions import MONTHS

QUESTIONS = (*MONTHS, *DETAILS)
