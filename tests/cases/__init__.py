"""A case per mechanism, in files of what is alike; the written list decides which there must be."""

from cases import attention, chosen, local, sequences, static
from cases.base import BY_TYPE, MechanismCase, any_of
from xfcost.formulas.component import Mixer
from xfcost.mechanisms import MECHANISMS

_FOUND = {
    (kind := type(case.examples[0])): case._replace(components=any_of(kind)) if case.components is BY_TYPE else case
    for file in (attention, chosen, local, sequences, static)
    for case in vars(file).values()
    if isinstance(case, MechanismCase)
}
# A mechanism of the written list without a case stops every test: it has no contract.
CASES: dict[type[Mixer], MechanismCase] = {mechanism: _FOUND[mechanism] for mechanism in MECHANISMS.values()}
