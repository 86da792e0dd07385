"""Records the answers of vLLM V1's encoder cache managers (v0.19.0) to random calls.

Needs vllm 0.19.0 (recorded with CPython 3.11: `cached` and `all` walk a set of integers).
Each line is a call, then "=" and its return value, then "|" and the state after it: free slots, freeable slots, freeable identifiers
(oldest first). Calls name request and input; `request` gives the inputs as identifier:offset:mask. `set` lines have numbers in the order in
which they were added to a set, and in the order in which CPython walks it. `live` lines have added numbers and, after a minus, discarded
numbers.
"""
import random

import torch
from vllm.multimodal.inputs import PlaceholderRange
from vllm.v1.core.encoder_cache_manager import EncoderCacheManager, EncoderDecoderCacheManager

from . import files


class Feature:
    def __init__(self, identifier, offset, mask):
        self.identifier, self.mask = identifier, mask
        embeds = torch.tensor([bit == "1" for bit in mask]) if "0" in mask else None
        self.mm_position = PlaceholderRange(offset=offset, length=len(mask), is_embed=embeds)


class Request:
    def __init__(self, name, features):
        self.request_id, self.mm_features = name, features

    def get_num_encoder_embeds(self, index):
        return self.mm_features[index].mm_position.get_num_embeds()


class Recorder:
    def __init__(self, seed, manager, name, capacity, num_items):
        self.draw, self.lines, self.capacity = random.Random(seed), [f"new {name} {capacity}"], capacity
        self.manager, self.num_made, self.requests, self.num_items = manager(capacity), 0, [], num_items
        # The content decides the size, so each identifier has one size.
        self.masks = {}

    def note(self, call, result=""):
        manager = self.manager
        state = [manager.num_free_slots, getattr(manager, "num_freeable_slots", self.capacity), *getattr(manager, "freeable", [])]
        self.lines.append(f"{call} = {result} | " + " ".join(map(str, state)))

    def mask(self, identifier):
        if identifier not in self.masks:
            length = self.draw.randrange(1, 9)
            plain = self.draw.random() < 0.5
            self.masks[identifier] = "1" * length if plain else "".join(self.draw.choice("01") for _ in range(length)) + "1"
        return self.masks[identifier]

    def add_request(self):
        features, offset = [], 0
        for _ in range(self.draw.randrange(1, self.num_items)):
            identifier = f"i{self.draw.randrange(6 * self.num_items)}"
            offset += self.draw.randrange(3)
            features.append(Feature(identifier, offset, self.mask(identifier)))
            offset += len(features[-1].mask)
        request = Request(self.num_made, features)
        self.num_made += 1
        self.requests.append(request)
        inputs = " ".join(f"{feature.identifier}:{feature.mm_position.offset}:{feature.mask}" for feature in features)
        self.lines.append(f"request {request.request_id} {inputs}")

    def encode(self, request):
        """Makes the calls that a scheduler makes for one request in a step."""
        budget, planned, chosen = self.draw.randrange(4, 30), 0, []
        for index, feature in enumerate(request.mm_features):
            identifiers = [request.mm_features[other].identifier for other in chosen]
            if self.draw.random() < 0.2 or feature.identifier in identifiers:
                continue
            name = f"{request.request_id} {index}"
            known = self.manager.check_and_update_cache(request, index)
            self.note(f"check {name}", int(known))
            if known:
                continue
            can = self.manager.can_allocate(request, index, budget, planned)
            self.note(f"can {name} {budget} {planned}", int(can))
            if not can:
                break
            budget -= request.get_num_encoder_embeds(index)
            planned += request.get_num_encoder_embeds(index)
            chosen.append(index)
        for index in chosen:
            self.manager.allocate(request, index)
            self.note(f"allocate {request.request_id} {index}")

    def run(self, num_calls):
        while len(self.lines) < num_calls:
            if len(self.requests) < 3:
                self.add_request()
            request, kind = self.draw.choice(self.requests), self.draw.random()
            if kind < 0.5:
                self.encode(request)
            elif kind < 0.65:
                self.note(f"cached {request.request_id}", ",".join(map(str, self.manager.get_cached_input_ids(request))))
            elif kind < 0.78:
                index = self.draw.randrange(len(request.mm_features))
                self.manager.free_encoder_input(request, index)
                self.note(f"release {request.request_id} {index}")
            elif kind < 0.88:
                self.note("freed", ",".join(self.manager.get_freed_mm_hashes()))
            elif kind < 0.995:
                self.manager.free(request)
                self.note(f"all {request.request_id}")
                self.requests.remove(request)
            else:
                self.manager.reset()
                self.note("reset")
                self.requests.clear()
        return self.lines


def set_orders(count):
    draw = random.Random(5)
    for _ in range(count):
        most = draw.choice([9, 12, 20, 40, 200, 5000])
        numbers = sorted(draw.sample(range(most), draw.randrange(1, min(most, 30))))
        walked = {number for number in numbers}
        yield f"set {','.join(map(str, numbers))} = {','.join(map(str, walked))}"


def set_lives(count):
    draw = random.Random(6)
    for _ in range(count):
        most = draw.choice([6, 12, 40, 200, 5000])
        share, walked, calls = draw.choice([0.2, 0.4, 0.5]), set(), []
        for _ in range(draw.randrange(5, 90)):
            if draw.random() < share and walked:
                calls.append(f"-{draw.choice(sorted(walked))}")
                walked.discard(int(calls[-1][1:]))
            else:
                calls.append(str(draw.randrange(most)))
                walked.add(int(calls[-1]))
        yield f"live {','.join(calls)} = {','.join(map(str, walked))}"


OUT = "encoder_cache.txt.xz"


def main(out):
    lines = Recorder(1, EncoderCacheManager, "shared", 60, 6).run(500)
    lines += Recorder(2, EncoderCacheManager, "shared", 30, 40).run(600)
    lines += Recorder(3, EncoderCacheManager, "shared", 25, 4).run(500)
    lines += Recorder(4, EncoderDecoderCacheManager, "encoder_decoder", 40, 3).run(150)
    lines += set_orders(200)
    lines += set_lives(120)
    files.write_lines(out, lines)
