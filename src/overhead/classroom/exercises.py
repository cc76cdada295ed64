"""The exercises: at least three a chapter, one of them a trap. Their text stands in the instructor's notebooks."""

from __future__ import annotations

from functools import partial

from overhead.classroom import pieces, training
from overhead.classroom.answers import Exercise, Trap

SPREAD = 0.25  # of a time that is measured anew in class, or read off a logarithmic axis

CLOCKS, OPS, BOUND, BUDGET = "00-clocks", "01-per-op-breakdown", "02-flop-lower-bound", "03-where-time-goes"
PROFILE, SWEEP, LADDER, RATES = "04-profile", "05-batch-sweep", "06-overhead-ladder", "07-learning-rate-sweep"
LOOP, FLOOR, LAB = "10-your-loop", "09-under-the-floor", "11-lab"

TABLE = (
    Exercise(
        "clocks-reading", CLOCKS, "nanoseconds", pieces.reading,
        ("Section *The clock* has two figures; which of them is two readings?", "chapter.timer(records) says it."),
    ),
    Exercise(
        "clocks-cold", CLOCKS, "times as long", pieces.cold,
        ("What does the first run do that later ones do not?", "Divide the first run of jax-epoch by a later one."),
        within=SPREAD,
    ),
    Exercise(
        "clocks-wait", CLOCKS, "milliseconds", lambda records: pieces.pretended(records, "wall"),
        (
            "When does the device begin, and who waits for it?",
            "The record keeps two clocks: `dispatch` is the call, `wall` the finished work.",
            'Read the column "wall" in the place of "dispatch".',
        ),
        trap="an unsynchronised timing",
        traps=(
            Trap(
                lambda records: pieces.pretended(records, "dispatch").median,
                "that is when the call returned; the device was still working",
            ),
        ),
    ),
    Exercise(
        "clocks-neighbour", CLOCKS, "times as long", pieces.beside_a_load,
        (
            "What else ran while one of the two arms was timed, and not while the other was?",
            "The arms took turns in another record: then the load met both.",
            "comparisons.beside_a_load(records) gives quiet, taking turns, one after the other, in this order.",
        ),
        within=0.03,
        trap="a noisy neighbour",
        traps=(Trap(pieces.one_after_the_other, "a neighbour ran beside one arm only, and stands in the ratio"),),
    ),
    Exercise(
        "ops-share", OPS, "percent of the time", pieces.not_products,
        ("Which five of the thirteen are products?", "Add up the other eight and divide by the sum of all thirteen."),
        traps=(Trap(pieces.of_arithmetic, "that is their share of the arithmetic; the question is of the time"),),
    ),
    Exercise(
        "ops-looking", OPS, "times as long", pieces.looking,
        ("Which row has one wait at the end?", "The last table's sum over *same calls*: `steps_frame`, column ratio."),
    ),
    Exercise(
        "ops-float64", OPS, "microseconds", pieces.first_product,
        (
            "How many bytes does the batch of the cell have, and how many should 32 x 784 numbers have?",
            "NumPy's random numbers are float64 unless asked otherwise; a product of float32 and float64 is float64.",
            "Give both arrays dtype float32, or read the operation z1 from your record.",
        ),
        within=SPREAD,
        trap="a float64 by accident",
        traps=(
            Trap(
                lambda records: 2 * pieces.first_product(records).median,
                "about twice your record's: are both arrays float32?",
            ),
        ),
    ),
    Exercise(
        "bound-flops", BOUND, "floating-point operations", pieces.product_flops,
        ("A multiply-add is how many operations?", "2 x rows x inner x columns of `(32, 784) @ (784, 128)`."),
        within=0.001,
        traps=(Trap(lambda records: pieces.product_flops(records).median / 2, "a multiply-add counts as two"),),
    ),
    Exercise(
        "bound-times", BOUND, "times its bound", pieces.times_its_bound,
        ("The gap table has the share; you are asked for its inverse.", "roofline_frame: time_us / bound_us of z1."),
    ),
    Exercise(
        "bound-per-image", BOUND, "times as long", pieces.per_image,
        ("The arithmetic is the same. What is read how often?", "The last table: per image over batch."),
    ),
    Exercise(
        "bound-waiting", BOUND, "times as long", pieces.same_waiting,
        (
            "What differs between the two sides besides the library?",
            "One side waits after each call, the other once at the end.",
            'Take the clock "each" on both sides.',
        ),
        trap="an unsynchronised timing",
        traps=(Trap(pieces.other_waiting, "the library and the waiting changed at once; wait alike on both sides"),),
    ),
    Exercise(
        "budget-products", BUDGET, "percent of the step", lambda records: pieces.term(records, "products"),
        ("The budget has a term *products*.", "Divide it by the measured step, not by the sum of the terms."),
    ),
    Exercise(
        "budget-closes", BUDGET, "", pieces.budget_closes,
        ("The residual has an interval.", "It closes when the whole interval lies within a tenth of the step."),
        words=("closes", "does not close"),
    ),
    Exercise(
        "budget-keras", BUDGET, "times as long", pieces.keras_frame,
        ("Same mathematics, with and without Keras around it.", "chapter.frame_sentence(records) ends with it."),
    ),
    Exercise(
        "budget-calls", BUDGET, "percent of the step", lambda records: pieces.term(records, "calls"),
        (
            "Who measured what is left over after the products?",
            "A remainder holds whatever nobody measured: elementwise work, data, allocation, the residual.",
            "The term *calls* is measured by itself, on a network of two pixels.",
        ),
        trap="what is left over, taken for a cause",
        traps=(
            Trap(
                lambda records: 100 - pieces.term(records, "products").median,
                "that is all that is no product; only a part of it was measured as calls",
            ),
        ),
    ),
    Exercise(
        "profile-calls", PROFILE, "calls a step", pieces.executions,
        ("How many steps had the profiled epoch?", "The most frequent host call's count over the steps."),
    ),
    Exercise(
        "profile-queue", PROFILE, "percent of the wall span", pieces.queue_times,
        ("Queue times overlap each other.", "Their sum over the span of the profile; it may be above 100."),
    ),
    Exercise(
        "profile-mean", PROFILE, "microseconds", pieces.median_call,
        (
            "Are all calls alike? Compare the mean with the median.",
            "A call that finds the queue full blocks until there is room: its time is waiting.",
            "The median is what a launch takes; `median_ns` of the same row.",
        ),
        trap="a mean of a blocking API time",
        traps=(Trap(pieces.mean_call, "the mean holds the calls that blocked; what does an ordinary call take?"),),
    ),
    Exercise(
        "sweep-floor", SWEEP, "times the floor", training.times_floor,
        ("The table has a column for it.", "numpy's row at the smallest batch size, column *times the floor*."),
        within=0.1,
    ),
    Exercise(
        "sweep-image", SWEEP, "times as long for an image", training.image_at_both_ends,
        (
            "Not every epoch sees as many images.",
            "Divide each epoch by the images that it saw; then the smallest batch by the largest.",
        ),
        within=0.1,
        traps=(Trap(training.doubled, "that is what the batch grew by: only what is paid a step shrinks with it"),),
    ),
    Exercise(
        "sweep-first", SWEEP, "times as long", training.first_epoch,
        ("*first epoch, s* over *seconds per epoch* of jax-epoch.", "What is in the first one is compiled once."),
        within=SPREAD,
    ),
    Exercise(
        "sweep-dropped", SWEEP, "images", training.images_seen,
        (
            "Divide 48,000 by your largest batch size. Is it whole?",
            "What is left over makes no batch, and is dropped.",
            "Whole batches times the batch size; the record calls it images_seen.",
        ),
        within=0.0,
        trap="a dropped batch",
        traps=(Trap(training.images_there, "that many are there; the last, partial batch was dropped"),),
    ),
    Exercise(
        "ladder-operator", LADDER, "times as long", lambda r: training.quotient(r, "jax-op-by-op", "jax-step"),
        ("Two rungs of the JAX family.", "The gain of jax-step over the rung below it."),
        within=0.1,
    ),
    Exercise(
        "ladder-largest", LADDER, "", training.best_rungs,
        ("The column *gain*.", "The rung whose gain over the one below is the largest; intervals may leave several."),
        words=(
            "keras-fit-tuned", "tf-step", "tf-epoch", "jax-step", "jax-epoch", "jax-epoch-tuned", "numpy",
            "numpy-preallocated",
        ),
    ),
    Exercise(
        "ladder-allocation", LADDER, "times as long", lambda r: training.quotient(r, "numpy", "numpy-preallocated"),
        ("The last family has it.", "numpy over numpy-preallocated; below 1 is an answer too."),
        within=0.1,
    ),
    Exercise(
        "ladder-returned", LADDER, "microseconds a step", lambda records: training.step_us(records, "wall"),
        (
            "Had the work been done when that clock was stopped?",
            "A compiled call returns when the work is queued.",
            "Take the clock that waits: `wall`.",
        ),
        within=0.1,
        trap="an unsynchronised timing",
        traps=(
            Trap(
                lambda records: training.step_us(records, "dispatch").median,
                "that is how long the calls took; the work was not done",
            ),
        ),
    ),
    Exercise(
        "rates-vmap", RATES, "times as long", lambda records: training.engines(records, "sequential", "vmap"),
        ("Five models, one after another and side by side.", "sequential over vmap at 5 models."),
        within=0.1,
    ),
    Exercise(
        "rates-diverged", RATES, "learning rate", training.diverged,
        ("The table of curves marks it with a step.", "The smallest of the rates that are called diverged."),
        within=0.0,
    ),
    Exercise(
        "rates-images", RATES, "images", training.images_timed,
        (
            "Is the epoch that was timed a whole one?",
            "The page's parameters have `timed_images`.",
            "What the record's workload calls images_seen.",
        ),
        within=0.0,
        trap="a part of the batches, taken for an epoch",
        traps=(Trap(lambda records: 48_000.0, "the data set has that many; the timed epoch is shorter"),),
    ),
    Exercise(
        "floor-zeros", FLOOR, "percent of the pixels", training.zeros,
        ("An image has 784 pixels; how many of them are not zero?", "The first sentence of the page has the share."),
        within=0.01,
        traps=(Trap(lambda records: 100 - training.zeros(records).median, "so many are not zero; asked is the rest"),),
    ),
    Exercise(
        "floor-sparse", FLOOR, "times as long", training.dense_over_sparse,
        ("The floor is the dense products alone; `sparse` is a whole step.", "One over the column *times the floor*."),
    ),
    Exercise(
        "floor-duplicates", FLOOR, "percent of the changes", training.lost,
        (
            "What does NumPy do with an index that occurs twice in `w[index] -= change`?",
            "Only one change for each row survives; how many of the looked-up rows are different ones?",
            "The column *duplicates* of the table of rows, in its first case.",
        ),
        within=0.02,
        trap="an update that loses duplicates",
        traps=(Trap(training.surviving, "so many survive; asked is how many are lost"),),
    ),
    Exercise(
        "loop-verdict", LOOP, "", training.diagnosed,
        ("What share of the step leads?", "The verdict of the NumPy loop at its smallest batch size."),
        words=("dispatch-bound", "arithmetic-bound", "memory-bound", "input-bound", "wait-bound", "cannot tell"),
    ),
    Exercise(
        "lab-queue", LAB, "launches", training.depth,
        ("A launch returns at once while the queue has room.", "Where does the figure of the queue leave its level?"),
    ),
    Exercise(
        "lab-wait", LAB, "milliseconds", partial(training.forgotten, clock="wall"),
        (
            "Who waits for the device before the clock stops?",
            "The record keeps two clocks: `returned` and `wall`.",
            "Read the column *until the device was done* of the graph of the unfused step.",
        ),
        trap="an unsynchronised timing",
        traps=(
            Trap(
                lambda records: training.forgotten(records, "returned").median,
                "that is when the last call returned; the device was still working",
            ),
        ),
    ),
    Exercise(
        "lab-seeming", LAB, "times as long", training.seeming,
        ("Divide one clock by the other.", "*Until the device was done* over *until the last call returned*."),
    ),
    Exercise(
        "loop-image", LOOP, "times as long", partial(training.pitfall, name="one-image-at-a-time"),
        ("A row of the price list.", "*a step an image, in the place of one a batch*: the column *times*."),
    ),
    Exercise(
        "loop-float64", LOOP, "times as long", partial(training.pitfall, name="float64"),
        (
            "Twice the bytes: is that twice the time?",
            "What costs is decided by the record, not by counting bytes.",
            "The row of weights that became float64, column *times*.",
        ),
        trap="a float64 by accident",
        traps=(Trap(lambda records: 2.0, "twice the bytes need not be twice the time: your record has the factor"),),
    ),
)  # fmt: skip
EXERCISES = {exercise.name: exercise for exercise in TABLE}
