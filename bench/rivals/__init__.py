"""The engines that bench/serve.py compares with quire. One file per engine creates its Contestants; all other code treats all engines
alike.
"""
