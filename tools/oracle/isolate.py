"""Calls a function in a separate process, because a native core stops the process when an invariant fails, and the oracle must survive
this."""

import os
import pickle
import tempfile


def isolated(function, *arguments):
    """Returns (result, None), or (None, stderr of the process that died)."""
    reader, writer = os.pipe()
    with tempfile.TemporaryFile() as errors:
        pid = os.fork()
        if pid == 0:
            os.close(reader)
            os.dup2(errors.fileno(), 2)
            with os.fdopen(writer, "wb") as pipe:
                pickle.dump(function(*arguments), pipe)
            os._exit(0)
        os.close(writer)
        with os.fdopen(reader, "rb") as pipe:
            answer = pipe.read()
        status = os.waitpid(pid, 0)[1]
        if status == 0 and answer:
            return pickle.loads(answer), None
        errors.seek(0)
        text = errors.read().decode(errors="replace").strip()
    lines = text.splitlines()
    kept = lines if len(lines) <= 24 else [*lines[:12], "...", *lines[-12:]]
    return None, "\n".join([f"the process died (wait status {status})", *kept])
