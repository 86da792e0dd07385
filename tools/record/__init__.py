"""Records the answers of vLLM, transformers and other references. The tests in tests/ compare quire with these recordings.

    PYTHONPATH=tools VENV/bin/python -m record                 # lists the recordings
    PYTHONPATH=tools VENV/bin/python -m record NAME [--out ...]

A module of this package is one recording if it has `main`. Its docstring names the packages that VENV needs, and the first line of the
docstring describes the recording. Constants are the defaults of its options:
    OUT      the default of --out: a file or folder below tests/golden
    OPTIONS  {option: (default, help)}; a default of True or False makes a flag
`main` takes the path and the options. Two modules are shared: `files` writes files, `tiny` has models whose weights are drawn from the
tensors' names.
"""
