"""Stands in for what componentize-py generates from the contract: the part that the SDK uses, with a host in memory behind it.

mypy reads the types of `_component.py` and `_wasi_http.py` from here too. `test_generated.py` compares names, fields and
parameters with what componentize-py really generates.
"""
