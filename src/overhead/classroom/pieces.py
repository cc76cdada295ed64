"""What records answer of the chapters that take a step apart: clocks, operations, bounds, budgets, profiles."""

from __future__ import annotations

from overhead.chapters import micro
from overhead.chapters.clocks.chapter import Clocks
from overhead.chapters.flop_bound.chapter import FlopBound
from overhead.chapters.per_op import claims as per_op
from overhead.chapters.per_op.chapter import PerOp
from overhead.chapters.profile.chapter import summary_of
from overhead.chapters.where_time_goes import claims as where
from overhead.chapters.where_time_goes.budget import Budget
from overhead.classroom.answers import MissingRecord, Records, exact, need
from overhead.harness import comparisons
from overhead.measure import probing
from overhead.problem import bounds
from overhead.problem.workload import Workload
from overhead.profiles.reading import example, read_profile
from overhead.profiles.summary import ApiRow
from overhead.records import pairs, stats
from overhead.records.record import Record, without_clock
from overhead.records.stats import Interval
from overhead.showing import tables
from overhead.showing.claims import against, timed

# --- 00-clocks --------------------------------------------------------------------------------------------------------


def reading(records: Records) -> Interval:
    clock = next((r.timer for r in records if r.timer), None)
    if clock is None:
        raise MissingRecord("what a reading of the clock costs")
    return exact(clock["pair_cost_ns"])


def cold(records: Records) -> Interval:
    record = timed(records, "jax-epoch", 32)
    steady = tables.headline(record) if record else None
    if record is None or record.timing is None or record.timing.first_s is None or steady is None:
        raise MissingRecord("jax-epoch with its first run")
    return against(record.timing.first_s, steady)


def pretended(records: Records, clock: str) -> Interval:
    """Milliseconds of a run on the device that is pretended, by one of the two clocks."""
    frame = Clocks().devices_frame([r for r in records if r.loop.endswith(":Synchronised")])
    rows = frame[frame["status"] == "ok"] if len(frame) else frame
    if not len(rows):
        raise MissingRecord("the pretended device that is waited for")
    return rows.iloc[0][clock]


def beside_a_load(records: Records) -> Interval:
    quiet, _, _ = comparisons.beside_a_load(records)
    if quiet is None:
        raise MissingRecord("the two arms without a load")
    return quiet


def one_after_the_other(records: Records) -> float:
    found = comparisons.beside_a_load(records)[2]
    need(found, "the two arms one after the other")
    return found[0].median


# --- 01-per-op-breakdown ----------------------------------------------------------------------------------------------


def not_products(records: Records) -> Interval:
    """Percent of the time of NumPy's operations, added up, that is no product's."""
    frame = PerOp().frame(records)
    ours = frame[frame["backend"] == "numpy (cpu)"] if len(frame) else frame
    if not len(ours):
        raise MissingRecord("NumPy op by op")
    rest, whole = ours[~ours["op"].isin(per_op.GEMMS)].sum(), ours["median_us"].sum()
    low, high = 100 * rest["low_us"] / whole, 100 * rest["high_us"] / whole
    return Interval(100 * rest["median_us"] / whole, low, high, int(ours["n"].min()))


def of_arithmetic(records: Records) -> float:
    """Percent of the arithmetic that is no product's."""
    flops = {work.name: work.flops for work in bounds.ops(Workload())}
    return 100 * sum(count for op, count in flops.items() if op not in per_op.GEMMS) / sum(flops.values())


def looking(records: Records) -> Interval:
    row = per_op.row_of(records, "numpy (cpu)")
    if row is None or row.ratio is None:
        raise MissingRecord("NumPy op by op")
    return row.ratio


def first_product(records: Records) -> Interval:
    """Microseconds of NumPy's first product."""
    record = next((r for r in records if (r.loop, r.device, r.op, r.status) == ("numpy", "cpu", "z1", "ok")), None)
    if record is None:
        raise MissingRecord("NumPy's operation z1")
    return stats.median_interval([[s * 1e6 for s in process] for process in without_clock(record)])


# --- 02-flop-lower-bound ----------------------------------------------------------------------------------------------


def micro_of(records: Records, loop: str, op: str = "product") -> Record:
    """The probe of a library's product that is nobody's forced kernel."""
    found = [
        r
        for r in probing.select(records, "micro", op, loop=loop, device="cpu")
        if not r.env.get("OPENBLAS_CORETYPE") and r.status == "ok"
    ]
    need(found, f"the product of {loop}")
    return found[0]


def product_flops(records: Records) -> Interval:
    found = micro_of(records, "numpy").probe
    if found is None:
        raise MissingRecord("what the product does")
    return exact(found["flops"])


def times_its_bound(records: Records) -> Interval:
    frame = FlopBound().roofline_frame(records)
    rows = frame[(frame["backend"] == "numpy (cpu)") & (frame["op"] == "z1")] if len(frame) else frame
    if not len(rows):
        raise MissingRecord("NumPy's operation z1")
    return exact(float(rows.iloc[0]["time_us"] / rows.iloc[0]["bound_us"]))


def per_image(records: Records) -> Interval:
    return micro.ratio(micro_of(records, "numpy", "product-per-image"), "end", micro_of(records, "numpy"), "end")


def same_waiting(records: Records) -> Interval:
    return micro.ratio(micro_of(records, "jax"), "each", micro_of(records, "numpy"), "each")


def other_waiting(records: Records) -> float:
    return micro.ratio(micro_of(records, "jax"), "end", micro_of(records, "numpy"), "each").median


# --- 03-where-time-goes -----------------------------------------------------------------------------------------------


def budget_of(records: Records) -> Budget:
    found = where.budget_of(records, "numpy (cpu)")
    if found is None:
        raise MissingRecord("the budget of the NumPy step")
    return found


def term(records: Records, name: str) -> Interval:
    """Percent of the NumPy step that a term takes."""
    found = budget_of(records)
    part = next((i for t, i in found.terms if t.name == name), None)
    if part is None:
        raise MissingRecord(f"the term {name}")
    of = found.step
    return Interval(100 * part.median / of.median, 100 * part.low / of.high, 100 * part.high / of.low, part.n)


def budget_closes(records: Records) -> tuple[str, ...]:
    return ("closes",) if budget_of(records).closes else ("does not close",)


def keras_frame(records: Records) -> Interval:
    keras = probing.select(records, "frame", "keras-train-step", device="cpu")
    plain = probing.select(records, "frame", "function-step", device="cpu")
    need(keras and plain, "a step through Keras and the same without it")
    found = pairs.ratio(probing.rounds_us(keras[0], "end"), probing.rounds_us(plain[0], "end"))
    if found is None:
        raise MissingRecord("a step through Keras and the same without it")
    return found


# --- 04-profile -------------------------------------------------------------------------------------------------------


def own_profile(records: Records) -> Record:
    found = next((r for r in records if r.status == "ok" and r.profile), None)
    if found is None:
        raise MissingRecord("a profile of this host")
    return found


def executions(records: Records) -> Interval:
    record = own_profile(records)
    calls = max(summary_of(record).api, key=lambda row: row.count, default=None)
    if calls is None:
        raise MissingRecord("host calls in the profile")
    return exact(calls.count / record.trained.steps)


def queue_times(records: Records) -> Interval:
    found = summary_of(own_profile(records))
    if not found.queue or not found.queue.total_ns or not found.span_ns:
        raise MissingRecord("queue times in the profile")
    return exact(100 * found.queue.total_ns / found.span_ns)


def launch_call() -> ApiRow:
    """The most frequent call of the recorded example that is no wait."""
    return max((row for row in read_profile(example()).api if not row.waiting), key=lambda row: row.count)


def median_call(records: Records) -> Interval:
    own_profile(records)
    return exact((launch_call().median_ns or 0) / 1000)


def mean_call(records: Records) -> float:
    return launch_call().total_ns / launch_call().count / 1000
