"""Documents: text, tables and figures in every format; what a report says of the input and of the accounts."""
