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
if without := [tag for tag, mechanism in MECHANISMS.items() if mechanism not in _FOUND]:
    # it has no contract, and stops every test
    raise LookupError(f"{', '.join(without)}: expected a MechanismCase in a file of tests/cases, found none")
CASES: dict[type[Mixer], MechanismCase] = {mechanism: _FOUND[mechanism] for mechanism in MECHANISMS.values()}
