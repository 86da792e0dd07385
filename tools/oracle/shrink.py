"""Shortens a failing script as long as it still fails in the same way."""

import copy

# Simpler values of a configuration, tried one key at a time. A value is kept if the script still fails.
PLAIN = {
    "kv_events": False, "log_stats": False, "kv_metrics": 0, "include_finished_set": False, "v2_runner": False, "routed_experts": False,
    "ec_connector": False, "connector": None, "max_loras": 0, "long_prefill_token_threshold": 0, "reserve_full_isl": False, "policy": "fcfs",
    "hash": "sha256", "int_hashes": False, "max_num_scheduled_tokens": None, "disable_chunked_mm_input": False, "reasoning": 0,
    "spec": "none", "num_spec_tokens": 0, "chunked_prefill": True, "prefix_caching": False, "async": False, "pp": 1, "queue_depth": 1,
}
KEPT = ("id", "doc", "n", "arrival")


class Shrinker:
    """Shortens a script. `fails(script)` plays a script and returns the kind of the failure, or None."""

    def __init__(self, script: dict, fails, budget: int = 2000):
        self.fails = fails
        self.best = copy.deepcopy(script)
        self.budget = budget
        self.kind = fails(script)

    def run(self) -> dict:
        before = None
        while before != len(repr(self.best)) and self.budget > 0:
            before = len(repr(self.best))
            self._events()
            self._config()
            self._requests()
            self._steps()
        return self.best

    def _try(self, candidate: dict) -> bool:
        if self.budget <= 0:
            return False
        self.budget -= 1
        if self.fails(candidate) != self.kind:
            return False
        self.best = candidate
        return True

    def _events(self) -> None:
        """Removes runs of events, long runs first."""
        size = len(self.best["events"])
        while size >= 1:
            start = len(self.best["events"]) - size
            while start >= 0:
                events = self.best["events"]
                self._try({**self.best, "events": events[:start] + events[start + size :]})
                start -= size
            size //= 2

    def _config(self) -> None:
        for key, value in PLAIN.items():
            if self.best["config"][key] != value:
                self._try({**self.best, "config": {**self.best["config"], key: value}})
        for key, value in self.best["config"]["answers"].items():
            if value not in (0, True, 1):
                self._try({**self.best, "config": {**self.best["config"], "answers": {**self.best["config"]["answers"], key: 0}}})

        for key, value in {"reasoner": "", "compiles_aside": False, "in_reasoning": False, "stray": 0}.items():
            guided = self.best["config"].get("guided")
            if guided and guided[key] != value:
                self._try({**self.best, "config": {**self.best["config"], "guided": {**guided, key: value}}})

    def _replace(self, index: int, event: list) -> bool:
        events = list(self.best["events"])
        events[index] = event
        return self._try({**self.best, "events": events})

    def _requests(self) -> None:
        for index, event in enumerate(self.best["events"]):
            if event[0] != "add":
                continue
            for key in [key for key in event[1] if key not in KEPT]:
                spec = {k: v for k, v in self.best["events"][index][1].items() if k != key}
                self._replace(index, ["add", spec])
            for n in (1, event[1]["n"] // 2, event[1]["n"] - 1):
                if 0 < n < self.best["events"][index][1]["n"]:
                    self._replace(index, ["add", {**self.best["events"][index][1], "n": n}])

    def _steps(self) -> None:
        for index, event in enumerate(self.best["events"]):
            if event[0] != "step":
                continue
            if event[1] != 0:
                self._replace(index, ["step", 0, *event[2:]])
            current = self.best["events"][index]
            if len(current) > 2 and current[2]:
                for key in list(current[2]):
                    options = {k: v for k, v in self.best["events"][index][2].items() if k != key}
                    self._replace(index, [*self.best["events"][index][:2], options])
