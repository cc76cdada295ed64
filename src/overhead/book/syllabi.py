"""The plans of a workshop, as data: what runs when, what is said meanwhile, which answers to expect.

`scripts/rehearse.py` plays a plan with a clock; the book shows it with the minutes that each chapter took.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from overhead.chapters import CHAPTERS


class Slot(NamedTuple):
    """A part of the lesson. Text is Markdown of the book; commands are started when the slot begins, in order."""

    minutes: int
    title: str
    does: str
    runs: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()  # chapters whose pages must be there when the slot begins
    say: str = ""  # while it runs
    wrong: str = ""  # the answer to expect, and what to do with it


class Syllabus(NamedTuple):
    """A plan: its page's name, its title, its slots."""

    name: str
    title: str
    slots: tuple[Slot, ...]

    @property
    def minutes(self) -> int:
        return sum(slot.minutes for slot in self.slots)


BET = Slot(
    10, "Bet", "Everybody writes down which device is faster at batch 32, by what factor, and why.",
    runs=("overhead doctor", "overhead run 01-per-op-breakdown 05-batch-sweep"),
    say="Doctor names what would spoil a measurement: a browser, a battery, a second program. Close them now.",
    wrong="*The GPU, by 10 to 50 times.* Keep the sheet; the plan's last slot comes back to it.",
)  # fmt: skip
COUNT = Slot(
    15, "Count", "The arithmetic of one step on paper, through the peak of the CPU: question 1 of {ref}`questions`.",
    say="Three products forward and backward make nearly all of it. Write the unit beside each figure.",
    wrong="*So a step takes that long.* It is a bound: nothing says that anybody reaches it ({ref}`glossary`).",
)  # fmt: skip
OP_BY_OP = Slot(
    15, "Op by op", "Guess the largest operation, open the page, explain the gap.",
    runs=("overhead run 03-where-time-goes",), needs=("01-per-op-breakdown",),
    say="Each operation is waited for here. What would change if nobody waited?",
    wrong="*The time follows the arithmetic.* Find an operation without arithmetic that costs as much as one with.",
)  # fmt: skip
SWEEP = Slot(
    20, "The batch sweep", "Predict the shape of the figure, then open it. Questions 4 to 7.",
    runs=("overhead run 06-overhead-ladder",), needs=("05-batch-sweep",),
    say="A line that falls pays once a step; a line that is flat pays once an image, whatever it pays for.",
    wrong="*Twice the batch, half the time.* Read off which loop does that, and from where on it does no more.",
)  # fmt: skip
BREAK = Slot(10, "A break", "Nothing is measured while the class plays videos: the page would say so.")
WHERE = Slot(
    15, "Where the time goes", "Each pair takes one loop and says whether its budget closes, and what is left.",
    needs=("03-where-time-goes",),
    say="A part that is measured alone may cost more or less than inside the step. The residual says how much.",
    wrong="*The API took 80 % of the time.* A sum of calls that wait is no share of the wall clock.",
)  # fmt: skip
LADDER = Slot(
    10, "Take overhead away", "Bet on the largest single gain, then open the ladder.",
    runs=("overhead run 11-lab",), needs=("06-overhead-ladder",),
    say="A rung is compared with the rung below it of its own family only. Why?",
    wrong="*A faster language.* Compare the rungs that keep Python with those that leave it.",
)  # fmt: skip
LAB = Slot(
    15, "A GPU that nobody here has", "The lab's simulated queue: forget to wait, double the batch, capture a graph.",
    needs=("11-lab",),
    say="It is simulated, and says so. What it shares with a real GPU is the queue. The example of "
    "{chapter}`04-profile` was recorded on two H100s, the published epochs stand in {chapter}`08-crossover`, and where "
    "the book has a GPU host, read its page beside yours.",
    wrong="*It returned after 5 us, so it is fast.* Wait for it, and look at the clock again.",
)  # fmt: skip
SETTLE = Slot(
    10, "Settle the bets", "The sheets of the first slot, {ref}`class-test` again, and `overhead class` with the dots "
    "of all machines.",
    say="Which wrong guess was largest, and what did it assume?",
)  # fmt: skip

TWO_HOURS = Syllabus(
    "two-hours", "A workshop in two hours", (BET, COUNT, OP_BY_OP, SWEEP, BREAK, WHERE, LADDER, LAB, SETTLE)
)
FOUR_HOURS = Syllabus(
    "four-hours",
    "A workshop in four hours",
    (
        BET._replace(minutes=15), COUNT, OP_BY_OP, SWEEP._replace(minutes=25), BREAK,
        WHERE._replace(minutes=20, runs=("overhead run 02-flop-lower-bound 07-learning-rate-sweep",)),
        LADDER._replace(minutes=20),
        Slot(
            15, "Many models", "Five learning rates one after the other, or at once: bet first.",
            runs=("overhead run 09-under-the-floor",), needs=("07-learning-rate-sweep",),
            say="A batch of models fills the products that one model leaves empty.",
            wrong="*Five models take five times as long.* Read the ratio, then say what is shared.",
        ),
        BREAK._replace(minutes=15),
        Slot(
            20, "Under the floor", "What is a bound a bound for? An algorithm, or the task?",
            runs=("overhead run 10-your-loop",), needs=("09-under-the-floor",),
            say="Four fifths of the pixels are zero. Whoever skips them exactly does the same training.",
            wrong="*Nothing can beat the floor.* The floor is the dense algorithm's.",
        ),
        LAB._replace(minutes=20),
        Slot(
            30, "Your own loop", "`overhead diagnose --template numpy`, then your own step: what limits it, and is the "
            "advice right?", needs=("10-your-loop",),
            say="A verdict counts where a change of one thing changed the time. *Cannot tell* is an answer.",
            wrong="*It is slow because of Python.* Which intervention says so?",
        ),
        Slot(
            10, "Would a GPU help?", "`overhead advise --layers 784,128,10 --batch-size 32 --gpu T4`, after a guess.",
            runs=("overhead calibrate",),
            say="Modelled is not measured: the label says which.",
            wrong="*The GPU has more FLOPs.* Ask for the crossover, and for what the step waits.",
        ),
        SETTLE._replace(minutes=10),
    ),
)  # fmt: skip
SYLLABI = {syllabus.name: syllabus for syllabus in (TWO_HOURS, FOUR_HOURS)}


def chapters_of(command: str) -> tuple[str, ...]:
    """The chapters that a command of a slot measures."""
    words = command.split()
    return tuple(word for word in words[2:] if word in CHAPTERS) if words[:2] == ["overhead", "run"] else ()


def table(syllabus: Syllabus, took: Mapping[str, tuple[float, str]]) -> str:
    """A plan in Markdown: a row a slot, then what to say and to expect. `took`: chapter → seconds, whose they are."""
    lines = ["| minutes | what | starts to run | takes, minutes |", "|--:|---|---|--:|"]
    begins = 0
    for slot in syllabus.slots:
        runs = ", then ".join(f"`{command}`" for command in slot.runs) or "–"
        each = [chapter for command in slot.runs for chapter in chapters_of(command)]
        total = sum(took[chapter][0] for chapter in each) / 60
        ends = begins + slot.minutes
        takes = f"{total:.1f} ({'; '.join(dict.fromkeys(took[c][1] for c in each))})" if each else "–"
        lines.append(f"| {begins}-{ends} | **{slot.title}.** {slot.does} | {runs} | {takes} |")
        begins = ends
    lines.append("")
    for slot in syllabus.slots:
        if slot.say or slot.wrong:
            said = f"\n: While it runs, or before the page opens: {slot.say}" if slot.say else ""
            wrong = f"\n: To expect: {slot.wrong}" if slot.wrong else ""
            lines.append(f"{slot.title}{said}{wrong}\n")
    return "\n".join(lines)
