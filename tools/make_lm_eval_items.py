#!/usr/bin/env python3
"""Writes tests/clients/lm_eval/items.jsonl: 200 multiple-choice items for lm-eval, without a download.

    python3 tools/make_lm_eval_items.py
"""
import json
import pathlib
import random

OUT = pathlib.Path(__file__).resolve().parent.parent / "tests/clients/lm_eval/items.jsonl"
NUM_CHOICES = 4

CAPITALS = """France Paris, Germany Berlin, Italy Rome, Spain Madrid, Portugal Lisbon, Austria Vienna, Greece Athens, Poland Warsaw, Hungary Budapest,
Sweden Stockholm, Norway Oslo, Finland Helsinki, Denmark Copenhagen, Ireland Dublin, Belgium Brussels, Russia Moscow, Ukraine Kyiv, Turkey Ankara,
Egypt Cairo, Kenya Nairobi, Nigeria Abuja, Ghana Accra, Morocco Rabat, Tunisia Tunis, Ethiopia Addis-Ababa, Japan Tokyo, China Beijing, Thailand Bangkok,
Vietnam Hanoi, Nepal Kathmandu, Iran Tehran, Iraq Baghdad, Israel Jerusalem, Canada Ottawa, Cuba Havana, Peru Lima, Chile Santiago, Brazil Brasilia,
Colombia Bogota, Australia Canberra"""
OPPOSITES = """hot cold, big small, up down, left right, early late, fast slow, hard soft, light dark, rich poor, strong weak, wet dry, full empty,
open closed, old young, happy sad, loud quiet, high low, long short, near far, thick thin, wide narrow, deep shallow, clean dirty, cheap expensive,
alive dead, asleep awake, sweet bitter, true false, first last, inside outside, above below, before after, buy sell, push pull, win lose, love hate,
begin end, remember forget, arrive leave, give take"""
PAST = """go went, see saw, eat ate, take took, give gave, come came, run ran, sing sang, swim swam, drink drank, begin began, write wrote, drive drove,
ride rode, speak spoke, break broke, choose chose, forget forgot, find found, think thought, buy bought, bring brought, teach taught, catch caught,
fly flew, grow grew, know knew, throw threw, draw drew, sleep slept, keep kept, feel felt, leave left, lose lost, build built, send sent, spend spent,
stand stood, understand understood, win won"""
KINDS = """dog animal, rose flower, apple fruit, oak tree, hammer tool, piano instrument, salmon fish, eagle bird, ant insect, car vehicle, gold metal,
chess game, carrot vegetable, water liquid, oxygen gas, shirt garment, chair piece-of-furniture, blue color, triangle shape, Monday day, July month, Mars planet,
Spanish language, tennis sport, nurse profession, violin instrument, banana fruit, tulip flower, iron metal, trout fish, owl bird, bee insect,
bus vehicle, red color, Venus planet, June month, Friday day, Italian language, football sport, pine tree"""


def pairs(table):
    return [tuple(word.replace("-", " ") for word in entry.split()) for entry in table.replace("\n", " ").split(", ")]


def items_of(table, prompt, rng):
    every = pairs(table)
    answers = sorted({answer for _, answer in every})
    for word, answer in every:
        choices = rng.sample([other for other in answers if other != answer], NUM_CHOICES - 1) + [answer]
        rng.shuffle(choices)
        yield {"context": prompt.format(word), "choices": choices, "gold": choices.index(answer)}


def sums(rng):
    for _ in range(40):
        a, b = rng.randrange(2, 50), rng.randrange(2, 50)
        choices = [str(a + b + off) for off in rng.sample([-11, -10, -2, -1, 1, 2, 10, 11], NUM_CHOICES - 1)] + [str(a + b)]
        rng.shuffle(choices)
        yield {"context": f"Question: What is {a} + {b}?\nAnswer:", "choices": choices, "gold": choices.index(str(a + b))}


def main():
    rng = random.Random(12)
    items = [*items_of(CAPITALS, "The capital of {} is", rng), *items_of(OPPOSITES, 'The opposite of "{}" is the word', rng),
             *items_of(PAST, 'The past tense of the verb "{}" is', rng), *items_of(KINDS, "In a dictionary, {}: a kind of", rng), *sums(rng)]
    assert len(items) == 200 and all(len(set(item["choices"])) == NUM_CHOICES for item in items)
    OUT.write_text("".join(json.dumps(item) + "\n" for item in items))


if __name__ == "__main__":
    main()
