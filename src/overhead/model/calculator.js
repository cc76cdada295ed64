// The calculator of the book: the replay of `model/replay.py` in the reader's browser. No dependency, nothing loaded.
// Constants, the census of the loops and the presets of GPUs stand as JSON in the page.
"use strict";
(function () {
  const sum = (values) => values.reduce((a, b) => a + b, 0);
  const pairs = (layers) => layers.slice(1).map((outputs, i) => [layers[i], outputs]);

  function model(data) {
    const { constants, census, rules } = data;

    function workload(layers, batch, images) {
      const parameters = sum(pairs(layers).map(([i, o]) => i * o + o));
      return { layers, batch, images, steps: Math.floor(images / batch), parameters, bytes: 4 * batch * layers[0] };
    }

    function count(counts, w) {
      const layers = w.layers.length - 1;
      const of = { one: 1, layers, hidden: layers - 1 };
      return sum(Object.entries(counts).map(([name, each]) => each * of[name]));
    }

    function products(w) {
      const found = [];
      pairs(w.layers).forEach(([i, o], at) => {
        found.push(["nn", w.batch, o, i], ["tn", i, o, w.batch]);
        if (at) found.push(["nt", w.batch, i, o]);
      });
      return found;
    }

    function near(at, weights, point, reach) {
      let total = 0;
      at.forEach((place, i) => {
        const gap = sum(place.map((a, j) => (a - point[j]) ** 2));
        total += weights[i] * Math.exp(-0.5 * gap / reach ** 2);
      });
      return Math.exp(total);
    }

    function product(library, [layout, m, n, k]) {
      const f = library.fits[layout];
      const tile = (x, t) => Math.ceil(x / t) * t;
      const full = (m / (m + f.m_half)) * (n / (n + f.n_half)) * (k / (k + f.k_half));
      const moved = 4 * (m * n + m * k + k * n);
      const wide = moved <= rules.level_bytes ? f.near_bytes_per_s : f.far_bytes_per_s;
      const wake = m * n * k > f.switch ? f.wake_s : 0;
      const s = 2 * tile(m, f.tile_m) * tile(n, f.tile_n) * k / (f.flops_per_s * full) + moved / wide + wake;
      return s * near(f.at, f.weights, [m, n, k].map(Math.log2), rules.product_reach);
    }

    function along(curve, size) {
      const x = Math.log(size);
      if (x <= Math.log(curve[0][0])) return curve[0][1];
      for (let i = 1; i < curve.length; i++) {
        const [a, b] = [Math.log(curve[i - 1][0]), Math.log(curve[i][0])];
        if (x <= b) return curve[i - 1][1] + (x - a) * (curve[i][1] - curve[i - 1][1]) / (b - a);
      }
      return curve[curve.length - 1][1];
    }

    function parts(c, w, forward) {
      const library = constants.products[c.library][constants.threads];
      const passes = constants.passes[c.framework], last = passes[passes.length - 1][1], third = forward ? 3 : 1;
      const made = products(w).filter((p) => !forward || p[0] === "nn");
      let memory = 0;
      if (!forward) for (const [i, o] of pairs(w.layers)) {
        memory += c.parameter_bytes * i * o * along(passes, 4 * i * o);
        if (c.fresh) memory += 4 * i * o * along(constants.fresh, 4 * i * o);
      }
      for (const width of w.layers.slice(1, -1)) {
        const n = w.batch * width;
        memory += c.activation_bytes / third * n * along(passes, 4 * n);
        if (c.fresh && !forward) memory += 20 * n * along(constants.fresh, 4 * n);
      }
      memory += c.input_bytes * w.batch * w.layers[0] * last;
      if (4 * w.images * w.layers[0] > constants.far_bytes) memory += w.bytes * last;
      const logits = c.logits * w.batch * w.layers[w.layers.length - 1];
      return { ops: count(c.ops, w) / third, logits: logits / third, products: made.map((p) => product(library, p)), memory };
    }

    function framed(of, steps, frame, factors) {
      const [epoch, call, op, logit, product, memory] = frame;
      const each = sum(of.products.map((s, i) => s * factors(i)));
      return [epoch + steps * (call + of.ops * op), steps * (product * each + logit * of.logits), steps * memory * of.memory, 0, 0];
    }

    const checks = (c, w) => Math.ceil(c.validated_images / w.batch);
    const plus = (a, b) => a.map((x, i) => x + b[i]);

    function interval(loop, device, terms, draws) {
      const sorted = [...draws].sort((a, b) => a - b), reach = rules.reach, seconds = sum(terms);
      return {
        loop, device, terms, seconds, low: Math.min(sorted[reach], seconds),
        high: Math.max(sorted[sorted.length - 1 - reach], seconds),
      };
    }

    function onCpu(loop, w) {
      const c = census[loop], frame = constants.frames[c.frame];
      if (!frame || c.library === "gpu" || !constants.products[c.library]) return null;
      if (c.below_batch !== null && w.batch >= c.below_batch) return null;
      if (c.validated_images && (w.layers[0] !== 784 || w.layers[w.layers.length - 1] !== 10)) return null;
      const found = [[parts(c, w, false), w.steps]];
      if (c.validated_images) found.push([parts(c, w, true), checks(c, w)]);
      const place = [Math.log2(w.batch), Math.log2(w.parameters), rules.a_layer * (w.layers.length - 1)];
      const smoothed = near(frame.at, frame.weights, place, rules.step_reach);
      const summed = (of, left, i) => found
        .map(([part, steps]) => framed(part, steps, of, (j) => Math.exp(left[(i * 7 + j * 11) % left.length])))
        .reduce(plus).map((s) => smoothed * s);
      const terms = summed(rules.terms.map((name) => frame[name]), [0], 0), seconds = sum(terms);
      const left = constants.products[c.library][constants.threads].residuals, draws = [];
      for (let i = 0; i < rules.draws; i++) {
        const off = Math.log(sum(summed(frame.draws[i % frame.draws.length], left, i)) / seconds);
        draws.push(seconds * Math.exp(off + frame.residuals[(i * 5) % frame.residuals.length]));
      }
      return interval(loop, "cpu", terms, draws);
    }

    function gpuTerms(c, w, gpu, frame, factor, launch, arithmetic) {
      const kernels = count(c.kernels, w), full = (x) => x / (x + gpu.half);
      let flops = 0, moved = 0;
      for (const [, m, n, k] of products(w)) {
        flops += 2 * m * n * k / (gpu.flops_per_s * (full(m) * full(n) * full(k)));
        moved += 4 * (m * n + m * k + k * n);
      }
      moved += c.parameter_bytes * w.parameters + c.activation_bytes * w.batch * sum(w.layers.slice(1, -1));
      const device = [launch * kernels * gpu.kernel_s, arithmetic * flops, arithmetic * moved / gpu.bytes_per_s];
      const enqueued = { kernel: kernels, step: 1, none: 0 }[c.launches];
      const epoch = frame ? frame[0] : 0, call = factor * (frame ? frame[1] : 0);
      let inside = launch * enqueued * gpu.launch_s;
      if (c.executed) inside += factor * (frame ? frame[2] : 0) * count(c.ops, w);
      if (c.op_by_op) inside += factor * kernels * gpu.python_op_s;
      const copy = c.fed ? w.bytes / gpu.copy_bytes_per_s + gpu.copy_s : 0;
      const after = checks(c, w), busy = sum(device), all = w.steps + after, worked = w.steps + after / 3;
      const shown = worked * (c.waits ? busy : Math.max(0, busy - call - inside));
      return [
        factor * (after ? 2 : 1) * epoch + all * call + worked * inside, shown * device[1] / busy,
        shown * device[2] / busy, all * copy,
        shown * device[0] / busy + launch * gpu.synchronise_s * (c.waits ? all : 1),
      ];
    }

    function onGpu(loop, w, gpu, factor) {
      const c = census[loop], frame = constants.frames[c.frame];
      if (!c.kernels || (!frame && c.frame !== "cupy")) return null;
      const spread = Math.log(1 + gpu.uncertainty), draws = [], z = rules.spread;
      const terms = (of, a, b) => gpuTerms(c, w, gpu, of, factor, a, b);
      for (let i = 0; i < rules.draws; i++) {
        const a = Math.exp(spread * z[i % z.length]), b = Math.exp(spread * z[(i * 5 + 3) % z.length]);
        draws.push(sum(terms(frame ? frame.draws[i % frame.draws.length] : null, a, b)));
      }
      return interval(loop, "gpu", terms(frame ? rules.terms.map((name) => frame[name]) : null, 1, 1), draws);
    }

    function predictions(layers, batch, images, gpuName) {
      const w = workload(layers, batch, images), gpu = data.gpus.find((g) => g.name === gpuName);
      const found = Object.keys(census).flatMap((loop) => [onCpu(loop, w), gpu ? onGpu(loop, w, gpu, 1) : null]);
      return found.filter(Boolean).sort((a, b) => a.seconds - b.seconds);
    }

    return { workload, onCpu, onGpu, predictions };
  }

  // Bad input, in words; null where there is none.
  function fault(layers, batch, images) {
    const whole = (x) => Number.isInteger(x) && x > 0;
    if (layers.length < 2 || layers.length > 12 || !layers.every((x) => whole(x) && x <= 1e5)) {
      return "Layers must be 2 to 12 whole numbers between 1 and 100000, with commas between.";
    }
    if (!whole(images) || images > 1e7) return "Images must be a whole number between 1 and 10000000.";
    if (!whole(batch) || batch > images) return `The batch size must be between 1 and ${images} (images).`;
    return null;
  }

  const figure = (x) => x.toPrecision(x >= 1 ? 3 : 2).replace(/(\.\d*?)0+$/, "$1").replace(/\.$/, "");

  function start(form, data) {
    const say = form.querySelector("output"), body = form.querySelector("tbody"), made = model(data);
    const field = (name) => form.elements.namedItem(name);
    const cell = (tag, text, of) => {
      const made = document.createElement(tag);
      made.textContent = text;
      if (of) made.className = of;
      return made;
    };
    function show() {
      const layers = field("layers").value.split(",").map(Number), batch = Number(field("batch").value);
      const images = Number(field("images").value), gpu = field("gpu").value, wrong = fault(layers, batch, images);
      body.replaceChildren();
      if (wrong) {
        say.textContent = wrong;
        return;
      }
      const found = made.predictions(layers, batch, images, gpu), most = Math.max(...found.map((p) => p.high));
      const least = Math.min(...found.map((p) => p.low)), place = (s) => 100 * (Math.log(s / least) / Math.log(most / least) * 0.94 + 0.05);
      const told = (p) => `${p.loop}, ${figure(p.seconds)} s an epoch [${figure(p.low)}, ${figure(p.high)}]`;
      const here = found.find((p) => p.device === "cpu"), there = found.find((p) => p.device === "gpu");
      say.textContent = `Fastest on ${data.host}: ${told(here)}.` + (there
        ? ` Modelled ${gpu}: ${told(there)}; ` + (there.low > here.high ? "the CPU is faster."
          : there.high < here.low ? "the GPU is faster." : "which is faster cannot be told.") : "");
      for (const p of found) {
        const row = document.createElement("tr"), bar = document.createElement("meter");
        bar.min = 0; bar.max = 100; bar.value = place(p.seconds);
        bar.setAttribute("aria-hidden", "true");
        const last = document.createElement("td");
        last.append(bar);
        row.append(cell("td", p.loop), cell("td", p.device === "cpu" ? data.host : `modelled ${gpu}`),
          cell("td", figure(p.seconds), "number"), cell("td", `${figure(p.low)} to ${figure(p.high)}`, "number"), last);
        body.append(row);
      }
    }
    form.addEventListener("input", show);
    form.addEventListener("submit", (event) => { event.preventDefault(); show(); });
    form.hidden = false;
    show();
  }

  window.overheadModel = model;
  for (const form of document.querySelectorAll("form.overhead-calculator")) {
    start(form, JSON.parse(document.getElementById(form.dataset.constants).textContent));
  }
})();
