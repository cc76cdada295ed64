"""One story through the chapters: the same step as a bar at the top of each, what to remember and what comes next.

The bar is the step of Keras's defaults at the smallest batch size of a host's batch sweep, taken apart by the loops
that do the same without some of it. Each chapter shows its own share in full colour and the others pale.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from itertools import pairwise
from typing import NamedTuple

from overhead.book.fragments import DEFAULTS, plain
from overhead.chapters import CHAPTERS
from overhead.records.record import Record
from overhead.showing import tables
from overhead.showing.claims import FAILS, HOLDS, Claim, Finding

AROUND, CALLS, BEYOND, PRODUCTS = (
    "Keras and TensorFlow around the step",
    "calling a compiled step from Python",
    "the compiled epoch beside its products",
    "matrix products (the floor)",
)
LOOPS = (DEFAULTS, "jax-step", "jax-epoch")  # each without what the one before it has too much

# What a chapter is about, of the four shares; why it is read where it is about none of them.
ABOUT: dict[str, tuple[str, ...]] = {
    "01-per-op-breakdown": (BEYOND, PRODUCTS),
    "02-flop-lower-bound": (PRODUCTS,),
    "03-where-time-goes": (AROUND, CALLS, BEYOND, PRODUCTS),
    "04-profile": (CALLS,),
    "05-batch-sweep": (AROUND, CALLS),
    "06-overhead-ladder": (AROUND, CALLS, BEYOND),
    "07-learning-rate-sweep": (CALLS, BEYOND),
    "09-under-the-floor": (PRODUCTS,),
}
INSTEAD = {
    "00-clocks": "This chapter asks whether times like these can be believed.",
    "08-crossover": "This chapter predicts such a step instead of measuring it.",
    "10-your-loop": "This chapter asks the same of a step of your own.",
    "11-lab": "This chapter puts such a step on a simulated GPU.",
}
# Three claims a chapter that a reader takes along; the records of each host say whether they hold there.
REMEMBER: dict[str, tuple[str, ...]] = {
    "00-clocks": ("reading-costs-little", "forgetting-is-caught", "turns-withstand-load"),
    "01-per-op-breakdown": ("looking-costs", "one-op-is-largest", "time-is-not-arithmetic"),
    "02-flop-lower-bound": ("bound-is-no-duration", "batch-reuses-weights", "one-of-five-products"),
    "03-where-time-goes": ("calls-fill-keras", "keras-adds-to-a-step", "products-fill-epoch"),
    "04-profile": ("queue-times-overlap", "launches-by-range"),
    "05-batch-sweep": ("cpu-wins-small", "larger-batch-pays-keras", "fewer-updates-cost-accuracy"),
    "06-overhead-ladder": ("dispatch-per-operator-costs", "dispatch-per-step-costs", "keras-around-the-step-costs"),
    "07-learning-rate-sweep": ("vmap-beats-one-by-one", "stacking-beats-vmap", "rate-10-diverges"),
    "08-crossover": ("hold-outs-predicted", "intervals-hold", "formula-beats-simpler"),
    "09-under-the-floor": ("most-pixels-are-zero", "sparse-under-the-floor", "grouping-decides-rows"),
    "10-your-loop": ("keras-is-dispatch-bound", "large-batch-is-not-dispatch-bound", "habits-cost"),
}
# The question with which a reader goes on to a chapter.
QUESTIONS = {
    "00-clocks": "Can these clocks be believed?",
    "01-per-op-breakdown": "Which operations of a step take the time?",
    "02-flop-lower-bound": "How fast could the step be at best?",
    "03-where-time-goes": "What is the time that is not arithmetic?",
    "04-profile": "Does a profiler see the same, and what does it not say?",
    "05-batch-sweep": "What changes when a step holds more images?",
    "06-overhead-ladder": "What does each way of removing overhead give?",
    "07-learning-rate-sweep": "And if many models are to be trained anyway?",
    "08-crossover": "From which size on would a GPU win?",
    "09-under-the-floor": "Can the floor itself be beaten?",
    "10-your-loop": "What limits your own loop?",
    "11-lab": "How does it feel to measure a GPU that nobody here has?",
}
VERDICTS = {HOLDS: "Holds here", FAILS: "Does not hold here"}


class Story(NamedTuple):
    """A step of Keras's defaults as four shares, in microseconds, from the outermost to the products."""

    batch_size: int
    step_us: float
    best_us: float  # of the compiled epoch
    shares: dict[str, float]


def story_of(records: Sequence[Record]) -> Story | None:
    """The story of a host from its batch sweep; None where a loop of it is missing or they are not in this order."""
    timed = [r for r in records if r.status == "ok" and r.op is None and r.device == "cpu" and r.timing and r.workload]
    size = min((r.trained.batch_size for r in timed if r.loop == DEFAULTS), default=0)
    at = {r.loop: r for r in timed if r.trained.batch_size == size and r.trained.remainder == "drop"}
    floor = tables.floor_of(records, size, "cpu") if size else None
    if floor is None or not set(LOOPS) <= at.keys():
        return None
    seconds = [found.median for name in LOOPS if (found := tables.headline(at[name]))] + [floor[1].median]
    steps = at[DEFAULTS].trained.steps
    us = [1e6 * value / steps for value in seconds]
    if len(us) != len(LOOPS) + 1 or any(inner >= outer for outer, inner in pairwise(us)):
        return None
    ends = [*us[1:], 0.0]
    shares = {name: a - b for name, a, b in zip((AROUND, CALLS, BEYOND, PRODUCTS), us, ends, strict=True)}
    return Story(size, us[0], us[2], shares)


def words(story: Story, chapter: str | None) -> str:
    """The bar as text: the step, its shares, and which of them the chapter is about; of no chapter, the shares."""
    each = "; ".join(f"{name} {us:,.0f} us" for name, us in story.shares.items())
    whole = f"A step of {DEFAULTS} at batch size {story.batch_size}: {story.step_us:,.0f} us"
    return f"{whole}. {each}. {_about(story, chapter)}".rstrip()


def _about(story: Story, chapter: str | None) -> str:
    if chapter is None or chapter not in ABOUT:
        return INSTEAD.get(chapter or "", "")
    part = sum(story.shares[name] for name in ABOUT[chapter])
    if len(ABOUT[chapter]) == len(story.shares):
        return "This chapter is about all of it."
    return f"This chapter is about {part:,.0f} us of it ({part / story.step_us:.0%})."


def bar(story: Story, chapter: str | None) -> str:
    """The running figure in HTML: a bar on a linear scale, the shares of the chapter in full colour; of none, all."""
    about = tuple(story.shares) if chapter is None else ABOUT.get(chapter, ())

    def kind(number: int, name: str) -> str:
        return f"share-{number}{'' if name in about else ' pale'}"

    spans = "".join(
        f'<span class="{kind(n, name)}" style="width:{100 * us / story.step_us:.2f}%"></span>'
        for n, (name, us) in enumerate(story.shares.items())
    )
    legend = "".join(
        f'<span><i class="{kind(n, name)}"></i>{escape(name)} {us:,.0f} us</span>'
        for n, (name, us) in enumerate(story.shares.items())
    )
    caption = (
        f"A step of {escape(DEFAULTS)} at batch size {story.batch_size}: {story.step_us:,.0f} us here; as one compiled "
        f"epoch {story.best_us:,.0f} us. {escape(_about(story, chapter))}"
    )
    return (
        f'<figure class="overhead-bar overhead-story"><div role="img" aria-label="{escape(words(story, chapter))}">'
        f"{spans}</div><figcaption>{legend}<em>{caption}</em></figcaption></figure>"
    )


def remember(chapter: str, host: str, found: Mapping[str, tuple[Claim, Finding]], chapters: Sequence[str]) -> str:
    """The section at a chapter's end in Markdown: its claims as they stand on a host, and the next question."""
    lines = ["## What to remember", ""]
    for name in REMEMBER.get(chapter, ()):
        claim, finding = found[name]
        verdict = VERDICTS.get(finding.status, "Not measured here")
        lines.append(f"- **{verdict}** ({plain(finding.figure)}): {plain(claim.statement)} [Why](claim-{name}).")
    if chapter not in REMEMBER:
        lines.append("Nothing on this page is a measurement of a device, so it claims nothing of the world.")
    return "\n".join([*lines, "", _next(chapter, host, chapters)]) + "\n"


def _next(chapter: str, host: str, chapters: Sequence[str]) -> str:
    order = list(CHAPTERS)
    after = order[order.index(chapter) + 1 :]
    if not after:
        return "**Back to the answer**: {ref}`intro`."
    asked = QUESTIONS[after[0]]
    if after[0] in chapters:
        return f"**Next.** {{doc}}`{asked} </results/{host}/{after[0]}>`"
    return f"**Next.** {asked} `overhead run {after[0]}` answers it on your machine ({{ref}}`reproduce`)."
