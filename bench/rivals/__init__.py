"""The engines that bench/serve.py measures beside quire. One file per engine makes its Contestants; what follows treats all alike."""
