"""Records the answers of vLLM V1's MultiConnector (v0.19.0) to random calls, and the calls that it makes to its members.

Needs vllm 0.19.0. core_connect_test replays the record.
Each line is a call, then "=" and its result. ANSWER, KEEPS and DONE are the answers of the members, in the members' order. An ANSWER is a
number of tokens and `a` (the load is asynchronous) or `s` (synchronous), or `?` (the member has no answer yet).
  new MEMBERS                     a connector with this number of members
  match ID LOCAL ANSWER...        = the number of members that were asked, and the connector's answer
  allocated ID BLOCKS EXTERNAL    = the call that each member received: number of blocks and of external tokens
  finished ID KEEPS...            = whether the blocks are kept, and by how many members
  reset DONE...                   = whether the reset succeeded
"""
import random
import types

from vllm.distributed.kv_transfer.kv_connector.v1.multi_connector import MultiConnector

from . import files


class Blocks(tuple):
    def new_empty(self):
        return Blocks()


class Member:
    def __init__(self):
        self.answer, self.asked, self.told = None, 0, None

    def get_num_new_matched_tokens(self, request, num_computed_tokens):
        self.asked += 1
        return self.answer

    def update_state_after_alloc(self, request, blocks, num_external_tokens):
        self.told = (len(blocks), num_external_tokens)

    def request_finished(self, request, blocks):
        return self.answer, None

    def reset_cache(self):
        return self.answer


def composite(members):
    """Returns a MultiConnector with these members. Does not call vLLM's constructor, which makes the members from a configuration."""
    made = object.__new__(MultiConnector)
    made._connectors, made._requests_to_connector, made._extra_async_saves = members, {}, {}
    return made


def text(answer):
    return "?" if answer[0] is None else f"{answer[0]}{'a' if answer[1] else 's'}"


def draw_answer(draw):
    if draw.random() < 0.15:
        return None, False
    tokens = draw.choice([0, 0, 4, 8, 8, 12])
    return tokens, tokens > 0 and draw.random() < 0.5


def record(draw, num_members, num_calls):
    members = [Member() for _ in range(num_members)]
    made = composite(members)
    yield f"new {num_members}"
    for _ in range(num_calls):
        number = draw.randrange(6)
        request = types.SimpleNamespace(request_id=str(number))
        verb = draw.random()
        if verb < 0.5:
            for member in members:
                member.answer, member.asked = draw_answer(draw), 0
            answers = [text(member.answer) for member in members]
            local = 4 * draw.randrange(5)
            answer = made.get_num_new_matched_tokens(request, local)
            yield f"match {number} {local} {' '.join(answers)} = {sum(member.asked for member in members)} {text(answer)}"
        elif verb < 0.8:
            blocks, external = Blocks(range(draw.randrange(1, 9))), draw.choice([0, 4, 8])
            made.update_state_after_alloc(request, blocks, external)
            yield f"allocated {number} {len(blocks)} {external} = {' '.join(f'{count}:{tokens}' for count, tokens in (m.told for m in members))}"
        elif verb < 0.97:
            for member in members:
                member.answer = draw.random() < 0.4
            kept, _ = made.request_finished(request, [])
            count = made._extra_async_saves.pop(request.request_id, 0) + int(kept)
            yield f"finished {number} {' '.join(str(int(m.answer)) for m in members)} = {int(kept)} {count}"
        else:
            for member in members:
                member.answer = draw.random() < 0.8
            done = made.reset_cache()
            yield f"reset {' '.join(str(int(m.answer)) for m in members)} = {int(done)}"


OUT = "composite_connector.txt.xz"
OPTIONS = {"calls": (400, "calls for each number of members"), "seed": (1, "seed of the calls")}


def main(out, calls, seed):
    draw = random.Random(seed)
    lines = [line for num_members in (1, 2, 3, 5) for line in record(draw, num_members, calls)]
    files.write_lines(out, lines)
