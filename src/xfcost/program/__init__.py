"""What a mechanism's program may say, and what it costs: symbolic tensors, the tape, leaves."""
