ORDERS: dict[tuple[str, str], str] = {}
