-- The grain of the marts by date: no two rows with the same key (NULLs are alike), and what names a row is known.
{{ rows_off_their_grain(dated_marts()) }}
