"""Traced programs, as tests look at them."""

import jax


def called(equation):
    """The programs that an equation calls."""
    leaves = jax.tree.leaves(equation.params, is_leaf=lambda leaf: hasattr(leaf, "eqns"))
    return [inner for leaf in leaves if hasattr(inner := getattr(leaf, "jaxpr", leaf), "eqns")]


def equations(jaxpr):
    """Of a traced program and of all that it calls, but not inside of a kernel."""
    for equation in jaxpr.eqns:
        yield equation
        if equation.primitive.name != "pallas_call":
            for inner in called(equation):
                yield from equations(inner)
