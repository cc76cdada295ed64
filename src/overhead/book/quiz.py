"""The test of twelve items, before and after a class: each with a common misreading, and the claim that settles it."""

from __future__ import annotations

from typing import NamedTuple


class Item(NamedTuple):
    """A question with four answers; `right` counts from 1, and `misreading` names what one of the others believes."""

    name: str
    misreading: str
    question: str
    answers: tuple[str, str, str, str]
    right: int
    why: str
    chapter: str
    claim: str


ITEMS = (
    Item(
        "busy", "busy is efficient",
        "A monitor shows the GPU 98 % busy while a small network trains. What follows?",
        (
            "The GPU does nearly all the arithmetic that it could.",
            "In nearly every moment some work was on the GPU; how much of it was used is not said.",
            "A faster GPU would train it in proportion faster.",
            "The CPU is idle 98 % of the time.",
        ),
        2, "Busy counts moments in which anything ran, be it one thread of one core, or a copy.",
        "03-where-time-goes", "busy-while-slower",
    ),
    Item(
        "sum", "the sum of API times is a share of the wall time",
        "A profile of a run of 10 s lists calls whose times add up to 8 s. What share of the run did the calls cost?",
        (
            "80 %.",
            "20 %, what is left is computing.",
            "That cannot be told from the sum: calls of several threads, and waits, overlap each other and the work.",
            "More than 80 %, since a profiler misses some.",
        ),
        3, "Times that overlap have a sum that is a share of nothing; it may exceed the run.",
        "04-profile", "queue-times-overlap",
    ),
    Item(
        "count", "a count is a cause",
        "A slow run made 1,875 graph launches, more than it has training steps. What does the count show?",
        (
            "How often something was launched; where, and what it cost, takes ranges and times.",
            "That the launches made it slow.",
            "That a quarter of the steps ran twice.",
            "That fewer launches would make it faster in proportion.",
        ),
        1, "Two different runs make the same count. A cause is what changes the time when it is switched.",
        "04-profile", "launches-by-range",
    ),
    Item(
        "peak", "FLOPs over peak is utilisation",
        "A product needs 6.4 MFLOP; at the peak of the device that is 0.6 us. It was measured at 25 us. What is right?",
        (
            "The device was used to 2.4 %, so 97.6 % of its cores were idle.",
            "The measurement is wrong, since the peak says 0.6 us.",
            "It would take 0.6 us if Python were faster.",
            "0.6 us is a bound that nothing beats; the measurement is 42 times it, and why is another question.",
        ),
        4, "A bound is neither a duration nor a utilisation: memory, calls and shapes have limits of their own.",
        "02-flop-lower-bound", "bound-is-no-duration",
    ),
    Item(
        "cores", "more outputs, more cores busy",
        "A layer has 128 outputs. How many cores work on it?",
        (
            "128, one an output.",
            "As many as the library and the shape give it; outputs are no cores, and more threads need not be faster.",
            "All, since a product is parallel.",
            "One, since NumPy is Python.",
        ),
        2, "A library splits a product as it sees fit. Whether more threads pay is measured.",
        "05-batch-sweep", "more-threads-pay",
    ),
    Item(
        "protocol", "6.26 over 0.14 is a speed-up",
        "Keras took 6.26 s for an epoch with validation, JAX 0.14 s for training alone. By what factor is JAX faster?",
        (
            "45, as 6.26 over 0.14.",
            "A bit less than 45, because of rounding.",
            "Not known: the two did different work, and a ratio needs the same work and an interval.",
            "45, but only at this batch size.",
        ),
        3, "Validation, a metric and the last batch are work. Compare at the same work, beside the published figures.",
        "05-batch-sweep", "validation-changes-the-figure",
    ),
    Item(
        "halves", "doubling the batch halves the overhead",
        "A loop's time for an epoch stays the same at every batch size. What does the flat line say?",
        (
            "It has next to no overhead.",
            "What it pays, it pays for each image: arithmetic, memory, or calls of its own.",
            "Doubling the batch halves its overhead, and doubles its arithmetic.",
            "Its overhead is paid once an epoch.",
        ),
        2, "What is paid a step halves with each doubling, what is paid an image stays; either may be overhead.",
        "05-batch-sweep", "flat-is-not-fast",
    ),
    Item(
        "spread", "a mean without spread",
        "Operation A takes 12.1 us on average, B 12.4 us. Which one is shorter?",
        (
            "A.",
            "Both alike, since 0.3 us is too little to matter.",
            "A, if it was measured more often than B.",
            "Not known without their spread: only intervals that stay apart tell.",
        ),
        4, "Two runs of the same code differ too. A difference is shown by an interval that excludes none.",
        "01-per-op-breakdown", "one-op-is-largest",
    ),
    Item(
        "first", "the first run is a steady run",
        "A compiled epoch is timed once, right after the program starts: 1.9 s. What was timed?",
        (
            "Compiling, warming up and an epoch, which later epochs may not show.",
            "An epoch, since a compiled program always does the same.",
            "An epoch, a bit too short because the memory was still free.",
            "Only the compiler.",
        ),
        1, "The first run stands apart on every page; whether compiling pays depends on how many epochs follow.",
        "00-clocks", "cold-run-longer",
    ),
    Item(
        "asynchronous", "a stopwatch around an asynchronous call",
        "time.perf_counter() before and after a call that runs on a GPU shows 30 us. What took 30 us?",
        (
            "The work on the GPU.",
            "The work and the copy of its result.",
            "Handing over the work; it may not have begun.",
            "The GPU's work, less what the CPU did meanwhile.",
        ),
        3, "Stop the clock when the device is done: block, or fetch something that depends on the result.",
        "00-clocks", "forgetting-is-caught",
    ),
    Item(
        "learning", "a larger batch learns the same",
        "An epoch at batch size 4,096 is four times as fast as at 32. Both see every image once. What about learning?",
        (
            "The same, since both saw the same images.",
            "The larger batch made 11 updates in the place of 1,500, so what it learnt has to be measured as well.",
            "The larger batch learns more, since its gradients are less noisy.",
            "The same, if the learning rate is the same.",
        ),
        2, "Time is compared at equal learning, or it compares unlike things.",
        "05-batch-sweep", "fewer-updates-cost-accuracy",
    ),
    Item(
        "epoch", "a faster epoch is faster training",
        "Batch size 512 has the shortest epoch on your machine. Which batch size is first at 97 % accuracy?",
        (
            "512, since its epochs are the shortest.",
            "The largest, since it needs the fewest updates.",
            "32, since small batches always learn best.",
            "The one with the least of epochs needed times seconds an epoch: measured, with several seeds.",
        ),
        4, "Seconds an epoch are half of the product; how many epochs are needed is the other half.",
        "05-batch-sweep", "one-batch-size-is-first",
    ),
)  # fmt: skip
INTRO = """(class-test)=
# A test of twelve items

Take it before the class and again after it. Each item has one answer; one of the others is a common misreading. Before
the class the page tells how many were right and not which; afterwards it tells all. What you choose stays in this
browser, until you save or print it. Without scripts, count by hand: the answers stand behind their buttons.

"""


def page() -> str:
    """The page in Markdown: what `overhead.js` finds by its classes, and what a reader without scripts can use."""
    parts = [INTRO, "::::::{container} overhead-test\n"]
    for number, item in enumerate(ITEMS, 1):
        options = "\n".join(f"- {answer}" for answer in item.answers)
        parts.append(
            f":::::{{container}} overhead-item overhead-right-{item.right}\n:name: test-{item.name}\n\n"
            f"**{number}.** {item.question}\n\n{options}\n\n"
            f"::::{{dropdown}} Answer to item {number}\n"
            f"**{item.answers[item.right - 1]}** {item.why} The misreading: *{item.misreading}*. Settled by "
            f"[{item.claim}](claim-{item.claim}).\n::::\n:::::\n"
        )
    return "\n".join([*parts, "::::::\n"])
