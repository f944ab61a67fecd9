-- The grain of the marts that are made from several dates, or from none.
{{ rows_off_their_grain(undated_marts()) }}
