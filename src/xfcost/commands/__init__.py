"""What commands share: options of typer, and rows of a file in place of a system."""
