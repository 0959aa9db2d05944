"""Orders of a component's rows, the power of N that one says, and steps that wait for each other."""

import re

from xfcost.formulas.component import Component, Place
from xfcost.formulas.letters import orders
from xfcost.program.residual import component_rows


def orders_at(component: Component, place: Place) -> dict[str, str]:
    """Row -> order; of a sub-layer, with what joins the stream where it changes its shape."""
    component, place = component.in_letters(place)
    return orders(component_rows(component, place, "none"))


def exponent(order: str) -> float:
    """How often N stands in an order: `O(h·N²)` -> 2, `O(N√N·d)` -> 1.5, `O(M·d²)` -> 0; log N is left aside."""
    terms = re.sub(r"^O\(|\)( .*)?$|·log N", "", order).split(" + ")
    return max(sum(_power(factor) for factor in term.partition("/")[0].split("·")) for term in terms)


def _power(factor: str) -> float:
    found = re.fullmatch(r"(N([²³⁴]?))?(([√∛∜])N)?", factor)
    if not found or not factor:
        return 0
    whole = {"": 1, "²": 2, "³": 3, "⁴": 4}[found[2]] if found[1] else 0
    return whole + ({"√": 1 / 2, "∛": 1 / 3, "∜": 1 / 4}[found[4]] if found[3] else 0)


def sequential_steps(component: Component, place: Place) -> int:
    """How many steps can only run one after the other: those of the row that has most."""
    return max(row.sequential for row in component_rows(component, place))
