"""Runs recorded scenarios on quire.vllm.Scheduler without vLLM and compares the results with vLLM's recorded answers.

test_oracle_recorded.py runs this in a separate process, because it replaces the modules of vLLM and torch.
usage: replay_recorded.py SCENARIOS [SEED [VERSION]]
"""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "..", "tools"), HERE]


def main(path: str, only: int | None, version: str) -> int:
    import oracle_vllm

    oracle_vllm.install(version)
    from oracle import parties, record

    parties.install_once()
    played = steps = bad = 0
    for line in record.read(path):
        seed = line["script"]["seed"]
        if only is not None and seed != only:
            continue
        try:
            steps += record.replay(line)
        except Exception as error:  # a Difference, or an exception of quire that vLLM did not raise
            bad += 1
            print(f"seed {seed}: {type(error).__name__}: {error}")
        played += 1
    print(f"{played} scenarios, {steps} steps, {bad} differ")
    return 1 if bad or not played else 0


if __name__ == "__main__":
    _, path, seed, version, *_ = [*sys.argv, "", ""] if len(sys.argv) < 4 else sys.argv
    sys.exit(main(path, int(seed) if seed else None, version or "0.19.0"))
