"""The engines that bench/serve.py compares with quire. One file per engine makes its Contestants; the rest treats all engines alike."""
