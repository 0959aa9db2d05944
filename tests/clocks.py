"""Clocks and machines that tests hand in: time passes where a call says so, and others are as busy as is said."""

from xfcost.torch_models.timing.devices import SystemCounters
from xfcost.torch_models.timing.turns import Meters


class Machine:
    """A clock that only calls move, and a system on which others keep `others` of `cores` busy."""

    def __init__(self, others=0.0, cores=2):
        self.now = 0.0
        self.others, self.cores = others, cores
        self.calls = []

    def __call__(self):
        return self.now

    def read(self):
        return SystemCounters(busy=self.now * (1 + self.others), own=self.now, cores=self.cores)

    @property
    def meters(self):
        return Meters(self, self.read)

    def taking(self, name, *seconds):
        """A call that takes these seconds, one after the other and again from the start."""
        turns = iter(())

        def call():
            nonlocal turns
            spent = next(turns, None)
            if spent is None:
                turns = iter(seconds)
                spent = next(turns)
            self.calls.append(name)
            self.now += spent

        return call
