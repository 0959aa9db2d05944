"""How far information travels: after each block, how many input tokens can influence a token."""
