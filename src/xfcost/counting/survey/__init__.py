"""The systems of the survey of efficient attention, each derived from its spec."""
