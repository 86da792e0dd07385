"""Generates random scripts: a configuration and the events of a run. The seed determines everything."""

import random

from . import generate_grammars
from .generate_config import configuration
from .profiles import PROFILES


def _longest(spec: dict) -> int:
    return spec["n"] + len(spec.get("tail", ())) + spec["max_tokens"]


class Generator:
    def __init__(self, seed: int, profile: str, newest: bool = False):
        self.seed = seed
        self.rng = random.Random(seed)
        self.profile = PROFILES[profile]
        self.newest = newest
        self.config = configuration(self.rng, self.profile, newest)
        self.docs = self.rng.choice(self.profile.docs)
        self.prompts = self.rng.choice(self.profile.prompts)
        self.events = []
        self.ids = []  # all added requests
        self.grammars = {}  # request id -> step of its grammar, while the grammar is not ready
        self.sessions = {}  # request id -> specification of the resumable request
        self.lengths = {}  # request id -> maximum number of tokens that the session can have received
        self.arrival = 0.0

    def script(self) -> dict:
        rng = self.rng
        burst, share = self.profile.burst
        burst = rng.random() < burst
        num_requests = rng.choice(self.profile.num_requests)
        rate = rng.choice(self.profile.rate)
        chaos = rng.choice((0.0, 0.02, 0.05, 0.1))
        if burst:
            for _ in range(int(num_requests * share)):
                self._add()
        for _ in range(rng.randint(*self.profile.num_rounds)):
            if len(self.ids) < num_requests and rng.random() < rate:
                self._add()
            self._between(chaos)
            self._step(chaos)
        self._drain()
        # Number of calls between two comparisons of the state; 0: only at the end.
        look_every = rng.choice((1, 1, 2, 3, 5, 8, 13, 30, 100, 0))
        return {"seed": self.seed, "look_every": look_every, "config": self.config, "events": self.events}

    def _drain(self) -> None:
        for request_id in list(self.grammars):
            self._grammar_ready(request_id)
        self.events.append(["pause", 0])
        for _ in range(10):
            self.events.append(["step", self.rng.getrandbits(30), {"wait": 1}])
        if self.rng.random() < 0.3:
            self.events.append(["abort", None])
            self.events += [["step", self.rng.getrandbits(30), {"wait": 1, "idle": 1}] for _ in range(4)]
        self.events.append(["shutdown"])

    def _step(self, chaos: float) -> None:
        rng, options = self.rng, {}
        if rng.random() < 0.3:
            options["wait"] = 1
        if rng.random() < 0.2:
            options["idle"] = 1
        if self.ids and rng.random() < chaos:
            options["abort"] = [self._some_ids()]
        self.events.append(["step", rng.getrandbits(30), options])

    def _some_ids(self):
        rng = self.rng
        pick = rng.random()
        if pick < 0.5:
            return rng.choice(self.ids)
        if pick < 0.95:
            return rng.sample(self.ids, min(len(self.ids), rng.randint(1, 5))) + rng.choice(([], [], ["unknown"], self.ids[:1]))
        return None

    def _between(self, chaos: float) -> None:
        """Adds events that may happen between two steps."""
        rng = self.rng
        if self.profile.continuum and rng.random() < 0.4:
            self.events.append(["wait", rng.choice((0.25, 0.5, 1.0, 2.0, 3.0))])
        for request_id in list(self.grammars):
            if rng.random() < 0.4:
                self._grammar_ready(request_id)
        if self.sessions and rng.random() < 0.3:
            self._continue_session()
        if rng.random() >= chaos:
            return
        pick = rng.randrange(8)
        if pick < 2 and self.ids:
            status = rng.choice(("FINISHED_ABORTED", "FINISHED_ABORTED", "FINISHED_STOPPED", "FINISHED_ERROR", "FINISHED_IGNORED"))
            self.events.append(["abort", self._some_ids(), status])
        elif pick == 2:
            self.events.append(["reset_prefix", False, rng.random() < 0.4])
        elif pick == 3:
            self.events.append(["reset_prefix", True, rng.random() < 0.3])
        elif pick == 4:
            self.events.append(rng.choice((["reset_encoder"], ["reset_connector"], ["stats"])))
        elif pick == 5:
            self.events.append(["stats"])
        else:
            self.events.append(["pause", rng.randrange(3)])
            if rng.random() < 0.7:
                self.events += [["step", rng.getrandbits(30), {"idle": rng.randrange(2)}] for _ in range(rng.randint(1, 3))]
                self.events.append(["pause", 0])

    def _grammar_ready(self, request_id: str) -> None:
        self.events.append(["grammar", request_id, self.grammars.pop(request_id)])

    # Requests.
    def _add(self) -> None:
        rng, config = self.rng, self.config
        spec = {"id": f"r{len(self.ids)}", "doc": self._doc(), "arrival": self._arrival()}
        self._prompt(spec, config["max_model_len"] - 1)
        self._ends(spec)
        if config["policy"] == "priority":
            spec["priority"] = rng.randint(-1, 3)
        if config["max_loras"] and rng.random() < 0.6:
            spec["lora"] = rng.randint(1, 3)
        self._kind(spec)
        if self.profile.guided:
            self._guide(spec)
        if rng.random() < 0.1:
            spec["salt"] = rng.choice(("a", "b", ""))
        if rng.random() < 0.1:
            spec["skip_read"] = rng.random() < 0.7
        if rng.random() < 0.3:
            spec["client"] = rng.randrange(3)
        for name, share in (("logprobs", 0.15), ("trace", 0.05), ("kv_params", 0.05)):
            if rng.random() < share:
                spec[name] = 1
        if self.profile.continuum and not spec.get("resumable"):
            self._turn(spec)
        self.ids.append(spec["id"])
        self.events.append(["add", spec])

    def _guide(self, spec: dict) -> None:
        """Gives most requests a real grammar, end conditions with tokens of the real vocabulary, and a prompt that may contain reasoning."""
        rng = self.rng
        spec.pop("grammar", None)
        self.grammars.pop(spec["id"], None)
        if rng.random() < 0.9:
            spec["eos"] = generate_grammars.END
        if "stop" in spec:
            spec["stop"] = [rng.randrange(17, 100)]  # single characters
        if spec.get("pooling") or rng.random() < 0.2:
            return
        spec["grammar"] = generate_grammars.grammar(rng)
        self.grammars[spec["id"]] = 0
        thoughts = generate_grammars.thoughts(rng) if self.config["guided"]["reasoner"] else []
        if thoughts and spec["n"] > len(thoughts):
            spec["n"] -= len(thoughts) - len(spec.pop("tail", ()))
            spec["tail"] = thoughts

    def _turn(self, spec: dict) -> None:
        rng = self.rng
        if rng.random() < 0.8:
            spec["job"] = f"job{rng.randrange(6)}"
            if rng.random() < 0.15:
                spec["last"] = 1

    def _doc(self) -> int:
        docs = self.config.get("docs")
        return self.rng.randrange(docs) if docs else self.rng.choice((0, self.rng.randrange(self.docs)))

    def _arrival(self) -> float:
        if self.rng.random() < 0.8:
            self.arrival += self.rng.choice((0.0, 0.25, 1.0))
        return self.arrival

    def _prompt(self, spec: dict, limit: int) -> None:
        rng = self.rng
        spec["n"] = rng.randint(1, max(1, int(limit * rng.choice(self.prompts))))
        if rng.random() < 0.4:
            spec["tail"] = [rng.randrange(self.config["vocab"]) for _ in range(rng.randint(1, 4))][: limit - spec["n"]]

    def _ends(self, spec: dict) -> None:
        rng, vocab = self.rng, self.config["vocab"]
        spec["max_tokens"] = rng.choice(self.profile.max_tokens)
        if rng.random() < 0.3:
            spec["min_tokens"] = rng.randint(1, spec["max_tokens"])
        if rng.random() < 0.3:
            spec["eos"] = rng.randrange(vocab)
        if rng.random() < 0.2:
            spec["stop"] = [rng.randrange(vocab) for _ in range(rng.randint(1, 2))]
        if rng.random() < 0.15:
            # maximum and minimum pattern length, count
            spec["repetition"] = rng.choice(([3, 1, 2], [2, 2, 3], [4, 0, 2], [1, 1, 4]))

    def _kind(self, spec: dict) -> None:
        rng, config = self.rng, self.config
        if config["encoder_decoder"]:
            spec["images"] = [[0, rng.randint(1, config["mm_max_tokens"]), f"audio{rng.randrange(4)}", None]]
            return
        if config["multimodal"] and config["mm_max_tokens"] and rng.random() < 0.6:
            spec["images"] = self._images(spec["n"] + len(spec.get("tail", ())))
        pick = rng.random()
        if pick < 0.06:
            spec["pooling"] = 1
            if rng.random() < 0.1 and not spec.get("images"):
                spec.update(n=config["max_model_len"], tail=[])
        elif pick < 0.1 and not spec.get("images"):
            spec["embeds"] = 1
        elif pick < 0.24:
            spec["grammar"] = 1
            self.grammars[spec["id"]] = rng.choice((0, 3, 7, 50, 1000, 1000) if self.newest else (2, 3, 7, 1000))
        if pick >= 0.1 and rng.random() < (0.04 if config["async"] else 0.12):
            spec["resumable"] = 1
            self.sessions[spec["id"]] = spec
            self.lengths[spec["id"]] = _longest(spec)

    def _images(self, length: int) -> list:
        rng, images, offset = self.rng, [], 0
        # vLLM iterates over more than eight inputs in the order of a set.
        for _ in range(rng.choice((4, 4, 4, 14)) if self.newest else rng.randint(1, 4)):
            offset += rng.randint(0, 4)
            size = rng.randint(1, self.config["mm_max_tokens"])
            if offset + size > length:
                break
            mask = None
            if rng.random() < 0.2:
                mask = [rng.randrange(2) for _ in range(size)]
                mask[rng.randrange(size)] = 1
            images.append([offset, size, f"image{rng.randrange(5)}" + ("m" if mask else "") + str(size), mask])
            offset += size
        return images

    def _continue_session(self) -> None:
        """Adds the next input of a streaming session, or its end."""
        rng = self.rng
        request_id = rng.choice(list(self.sessions))
        first = self.sessions[request_id]
        spec = {"id": request_id, "doc": first["doc"], "arrival": self._arrival(), "priority": first.get("priority", 0)}
        self._prompt(spec, self.profile.next_input)
        self._ends(spec)
        self.lengths[request_id] += spec["n"] + len(spec.get("tail", ())) + first["max_tokens"]
        # If a session exceeds max_model_len, vLLM schedules negative counts.
        if rng.random() < 0.2 or self.lengths[request_id] >= self.config["max_model_len"]:
            del self.sessions[request_id]
            self.events.append(["add", {"id": request_id, "doc": spec["doc"], "n": 1, "max_tokens": 1, "arrival": spec["arrival"]}])
            return
        spec["resumable"] = 1
        if first.get("images") and rng.random() < 0.7:
            spec["images"] = self._images(spec["n"] + len(spec.get("tail", ())))
        self.events.append(["add", spec])


def script(seed: int, profile: str = "default") -> dict:
    """Generates a script for the installed version of vLLM."""
    from . import versions

    return Generator(seed, profile, versions.IS_NEWER).script()
