"""The ledger of any `nn.Module`, without a spec: every ATen operation that runs, where it runs."""
