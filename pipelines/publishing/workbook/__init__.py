"""The workbook of a publication: a sheet per question.

Add here what a person opens in a spreadsheet. Keep out what other files need to be harmless in one
(`spreadsheet_cells`).
"""
