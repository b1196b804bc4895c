"""Pictures of plans and runs. Each kind has its own module, which is imported on first use.

`dot` and `svg` draw with Graphviz, `html` writes the report, `trace` writes Chrome traces, and `explorer` writes
overlays for Model Explorer. `names` cleans all names that come from a model.
"""
