"""The instrument: from decoded texts of any model to scores and one verdict.

It needs no model, no recordings and no JAX. In: files or objects of predictions (`predictions`), or the workdir of a
run (`workdir`). Out: scores with signatures (`metrics`), the audit with its report (`auditing`), the page in a browser
(`app`).
"""
