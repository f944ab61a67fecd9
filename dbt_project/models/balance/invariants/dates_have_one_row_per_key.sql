-- The grain of the marts by date: no two rows with the same key (two NULLs count as equal), and the columns that name a
-- row are not NULL.
{{ rows_off_their_grain(dated_marts()) }}
