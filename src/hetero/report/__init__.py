"""Pictures of plans and runs; each in a module of its own, imported when it is used.

`dot` and `svg` draw with Graphviz, `html` writes the report, `trace` writes Chrome
traces, `explorer` overlays for Model Explorer. Names that come from a model go through `names`.
"""
