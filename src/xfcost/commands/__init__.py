"""What commands share: options of typer, and rows of a file instead of a system."""
