"""Traced programs, as tests look at them."""

import jax


def equations(jaxpr):
    """Of a traced program and of all that it calls, but not inside of a kernel."""
    for equation in jaxpr.eqns:
        yield equation
        if equation.primitive.name == "pallas_call":
            continue
        for inner in jax.tree.leaves(equation.params, is_leaf=lambda leaf: hasattr(leaf, "eqns")):
            if hasattr(inner := getattr(inner, "jaxpr", inner), "eqns"):
                yield from equations(inner)
