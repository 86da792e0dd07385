"""Records the answers of vLLM, transformers and other references. The tests in tests/ compare quire with these recordings.

    PYTHONPATH=tools VENV/bin/python -m record                 # lists the recordings
    PYTHONPATH=tools VENV/bin/python -m record NAME [--out ...]

A module of this package makes a recording if it has a function `main`. The first line of its docstring describes the recording, and the
docstring names the packages that VENV needs. These constants of the module are the defaults of its options:
    OUT      the default of --out: a file or folder below tests/golden
    OPTIONS  {option: (default, help)}; a default of True or False makes a flag
`main` takes the path and the options. The other modules are shared: `files` writes files, and `tiny` makes models whose weights are drawn
from the names of their tensors.
"""
