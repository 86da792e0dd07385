"""Prints the decisions of vLLM's scheduler in a script, call by call: `./dev oracle replay FILE --verbose`."""

from .play import Player


def _brief(answer, width: int = 400) -> str:
    if isinstance(answer, dict):  # empty fields of a plan are not shown
        answer = {key: value for key, value in answer.items() if value}
    text = str(answer)
    return text if len(text) <= width else text[:width] + " ..."


def show(script: dict) -> None:
    """Plays the script on vLLM's scheduler alone. Prints its configuration, its events and every answer."""
    print("configuration", script["config"])
    told = -1

    def observer(player, what, answers, look) -> None:
        nonlocal told
        for index in range(told + 1, player.index + 1):
            print(f"event {index} {script['events'][index]}")
        told = max(told, player.index)
        print(f"    {what}: {_brief(answers[0])}")
        for call in player.sides[0].log:
            print(f"        asks {_brief(call, 200)}")

    player = Player(script, ("stock",), observer).play()
    if player.raised is not None:
        print("ended by", player.raised)
