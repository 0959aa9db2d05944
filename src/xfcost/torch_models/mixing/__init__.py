"""Mixing kinds found in any torch module: which token owns each number, followed from operation to operation."""
