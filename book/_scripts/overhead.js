/* What a page of the book does beside the theme: covers a figure until the reader has guessed, lists the guesses, grades the
   test. A classic script, deferred; it asks for nothing, and what it keeps stays in this browser. Without it every figure
   shows, and every answer stands behind its button. */
(() => {
  "use strict";

  const KEY = "overhead-guesses";
  const TEST = "overhead-test";

  /* --- what is kept ------------------------------------------------------------------------------------------------ */

  function kept(key) {
    try {
      const value = JSON.parse(localStorage.getItem(key));
      return value && typeof value === "object" && !Array.isArray(value) ? value : {};
    } catch {
      return {}; // no storage, or not ours
    }
  }

  function keep(key, value) {
    try {
      localStorage.setItem(key, JSON.stringify(value));
    } catch {
      /* a browser that keeps nothing: the guess lasts as long as the page */
    }
  }

  /* --- making elements --------------------------------------------------------------------------------------------- */

  function make(tag, attributes = {}, ...inside) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name === "class") element.className = value;
      else if (typeof value === "boolean") element[name] = value;
      else element.setAttribute(name, value);
    }
    element.append(...inside);
    return element;
  }

  function number(value) {
    const digits = value < 10 ? 1 : 0;
    return value >= 100 ? String(Number(value.toPrecision(2))) : value.toFixed(digits);
  }

  function said(over, under, factor) {
    // factor: time of `over` through that of `under`
    return factor >= 1
      ? `${over} takes ${number(factor)} times as long as ${under}`
      : `${under} takes ${number(1 / factor)} times as long as ${over}`;
  }

  function download(name, text, type) {
    const link = make("a", { href: URL.createObjectURL(new Blob([text], { type })), download: name });
    document.body.append(link);
    link.click();
    link.remove();
  }

  /* --- a figure that is covered ------------------------------------------------------------------------------------- */

  function cover(box) {
    const { guess: chapter, host, question, over, under, gap, record, all } = box.dataset;
    const [median, low, high] = ["median", "low", "high"].map((name) => Number(box.dataset[name]));
    const figure = box.querySelector("details");
    const plain = box.querySelector(".overhead-guess-record");
    const id = `${chapter}@${host}`;
    const place = make("div", { class: "overhead-guess-place" });
    box.prepend(place);
    plain.hidden = true;

    function show(open) {
      figure.hidden = !open;
      figure.open = true;
    }

    function ask(focus) {
      show(false);
      const output = make("output", { for: `factor-${chapter}` }, "");
      const slider = make("input", {
        type: "range", id: `factor-${chapter}`, min: "0", max: "300", step: "1", value: "0",
      });
      const radios = [over, under].map((name) =>
        make("input", { type: "radio", name: `longer-${chapter}`, value: name, required: true }),
      );
      function factor() {
        const times = 10 ** (Number(slider.value) / 100);
        return radios[1].checked ? 1 / times : times;
      }
      function tell() {
        const chosen = radios.some((radio) => radio.checked);
        const times = `${number(10 ** (Number(slider.value) / 100))} times as long`;
        output.textContent = chosen ? said(over, under, factor()) : times;
        slider.setAttribute("aria-valuetext", output.textContent);
      }
      const form = make(
        "form",
        { class: "overhead-guess-form" },
        make("p", { class: "overhead-guess-question" }, make("strong", {}, "Guess before you look. "), question),
        make(
          "fieldset",
          {},
          make("legend", {}, "What takes longer?"),
          ...radios.map((radio, i) => make("label", {}, radio, ` ${[over, under][i]}`)),
        ),
        make("label", { for: `factor-${chapter}` }, "How many times as long? (logarithmic, 1 to 1,000 times)"),
        slider,
        output,
        make(
          "p",
          { class: "overhead-guess-buttons" },
          make("button", { type: "submit" }, "Commit my guess"),
          make("button", { type: "button", class: "overhead-guess-skip" }, "Show it without a guess"),
        ),
      );
      form.addEventListener("input", tell);
      form.addEventListener("submit", (event) => {
        event.preventDefault();
        const entry = { question, over, under, host, record, median, factor: factor() };
        keep(KEY, { ...kept(KEY), [id]: entry });
        compare(entry, true);
      });
      form.querySelector(".overhead-guess-skip").addEventListener("click", () => {
        keep(KEY, { ...kept(KEY), [id]: { skipped: true } });
        skip(true);
      });
      place.replaceChildren(form);
      tell();
      if (focus) radios[0].focus();
    }

    function again() {
      const button = make("button", { type: "button" }, "Guess anew");
      button.addEventListener("click", () => {
        const guesses = kept(KEY);
        delete guesses[id];
        keep(KEY, guesses);
        plain.hidden = true;
        ask(true);
      });
      return button;
    }

    function skip(focus) {
      show(true);
      plain.hidden = false;
      const line = make("p", { tabindex: "-1" }, "Shown without a guess. ", again());
      place.replaceChildren(line);
      if (focus) line.focus();
    }

    function compare(entry, focus) {
      show(true);
      const off = Math.max(entry.factor / median, median / entry.factor);
      const inside = entry.factor >= low * 0.99 && entry.factor <= high * 1.01;
      const right = entry.factor >= 1 === median >= 1;
      const verdict = inside
        ? "Inside the interval of the record."
        : `${right ? "The right direction" : "The other direction"}, and a factor of ${number(off)} away.`;
      const table = make(
        "table",
        { class: "overhead-guess-table" },
        make("caption", {}, question),
        make(
          "tbody",
          {},
          make("tr", {}, make("th", { scope: "row" }, "Your guess"), make("td", {}, said(over, under, entry.factor))),
          make(
            "tr",
            {},
            make("th", { scope: "row" }, "The record"),
            make("td", {}, `${over} takes ${record} times as long as ${under}`),
          ),
        ),
      );
      const link = make("a", { href: all }, "Print or save my guesses");
      const result = make("div", { tabindex: "-1", class: "overhead-guess-result", role: "status" }, table);
      result.append(make("p", {}, make("strong", {}, verdict), ` ${gap}`), make("p", {}, again(), " ", link));
      place.replaceChildren(result);
      if (focus) result.focus();
    }

    const before = kept(KEY)[id];
    if (before && before.skipped) skip(false);
    else if (before && before.factor > 0) compare(before, false);
    else ask(false);
  }

  /* --- all guesses, to print or to save ----------------------------------------------------------------------------- */

  function list(place) {
    const guesses = Object.entries(kept(KEY)).filter(([, entry]) => entry && entry.factor > 0);
    if (!guesses.length) {
      place.replaceChildren(make("p", {}, "This browser keeps no guess yet. Commit one on a chapter's page."));
      return;
    }
    const rows = guesses.sort(([a], [b]) => (a < b ? -1 : 1)).map(([id, entry]) => {
      const off = Math.max(entry.factor / entry.median, entry.median / entry.factor);
      const cells = [
        id.split("@")[0],
        entry.host,
        said(entry.over, entry.under, entry.factor),
        `${entry.over}: ${entry.record} times as long`,
        number(off),
      ];
      return make("tr", {}, ...cells.map((text) => make("td", {}, String(text))));
    });
    const names = ["chapter", "host", "my guess", "the record", "factor away"];
    const head = make("tr", {}, ...names.map((name) => make("th", { scope: "col" }, name)));
    const table = make("table", { class: "table" }, make("thead", {}, head), make("tbody", {}, ...rows));
    const print = make("button", { type: "button" }, "Print");
    print.addEventListener("click", () => window.print());
    const save = make("button", { type: "button" }, "Save as a file");
    save.addEventListener("click", () =>
      download("guesses.json", `${JSON.stringify(Object.fromEntries(guesses), null, 1)}\n`, "application/json"),
    );
    const forget = make("button", { type: "button" }, "Forget all");
    forget.addEventListener("click", () => {
      keep(KEY, {});
      list(place);
    });
    const buttons = make("p", { class: "overhead-guess-buttons" }, print, save, forget);
    place.replaceChildren(make("div", { class: "overhead-scroll", tabindex: "0" }, table), buttons);
  }

  /* --- the test, before and after ----------------------------------------------------------------------------------- */

  const ROUNDS = { before: "before the class", after: "after the class" };

  function item(block, index) {
    const options = block.querySelector("ul");
    const answer = block.querySelector("details");
    const right = Number(/overhead-right-(\d+)/.exec(block.className)[1]);
    const radios = [...options.children].map((_, i) =>
      make("input", { type: "radio", name: `item-${index}`, value: String(i + 1) }),
    );
    const labels = [...options.children].map((option, i) => {
      const words = option.querySelector("p") || option;
      return make("label", {}, radios[i], " ", make("span", {}, ...words.childNodes));
    });
    const mark = make("span", { class: "overhead-mark" });
    const question = block.querySelector("p");
    const legend = make("legend", {}, ...question.childNodes, mark);
    question.remove();
    options.replaceWith(make("fieldset", {}, legend, ...labels));
    answer.hidden = true;
    const chosen = () => Number((radios.find((radio) => radio.checked) || { value: "0" }).value);
    return { name: block.id, answer, mark, radios, right, chosen };
  }

  function test(place) {
    const items = [...place.querySelectorAll(".overhead-item")].map(item);
    const rounds = Object.keys(ROUNDS).map((name) => make("input", { type: "radio", name: "round", value: name }));
    const when = make(
      "fieldset",
      { class: "overhead-round" },
      make("legend", {}, "When do you take it?"),
      ...rounds.map((radio) => make("label", {}, radio, ` ${ROUNDS[radio.value]}`)),
    );
    const said = make("p", { role: "status", tabindex: "-1", class: "overhead-score" });
    const round = () => rounds.find((radio) => radio.checked).value;

    function score() {
      const found = kept(TEST);
      return Object.keys(ROUNDS)
        .filter((name) => found[name])
        .map((name) => `${ROUNDS[name]}: ${found[name].score} of ${items.length}`)
        .join("; ");
    }

    function open(name) {
      const found = kept(TEST)[name];
      items.forEach(({ name: id, answer, mark, radios, right }) => {
        const given = found ? found.answers[id] : 0;
        radios.forEach((radio) => {
          radio.checked = Number(radio.value) === given;
        });
        const told = name === "after" && Boolean(found);
        mark.textContent = told ? (given === right ? " Right." : " Not right.") : "";
        answer.hidden = !told;
      });
      said.textContent = score();
    }

    function grade() {
      const left = items.flatMap(({ chosen }, i) => (chosen() ? [] : [i]));
      if (left.length) {
        said.textContent = `Not answered yet: ${left.map((i) => i + 1).join(", ")}.`;
        items[left[0]].radios[0].focus();
        return;
      }
      const answers = Object.fromEntries(items.map(({ name, chosen }) => [name, chosen()]));
      const points = items.filter(({ right, chosen }) => chosen() === right).length;
      keep(TEST, { ...kept(TEST), [round()]: { answers, score: points, of: items.length } });
      open(round());
      said.focus();
    }

    const buttons = [
      ["Grade", grade],
      ["Print", () => window.print()],
      [
        "Save as a file",
        () => download("test.json", `${JSON.stringify(kept(TEST), null, 1)}\n`, "application/json"),
      ],
      [
        "Forget all",
        () => {
          keep(TEST, {});
          open(round());
        },
      ],
    ].map(([name, does]) => {
      const button = make("button", { type: "button" }, name);
      button.addEventListener("click", does);
      return button;
    });
    rounds[kept(TEST).before ? 1 : 0].checked = true;
    when.addEventListener("change", () => open(round()));
    place.prepend(when);
    place.append(make("p", { class: "overhead-guess-buttons" }, ...buttons), said);
    open(round());
  }

  document.querySelectorAll(".overhead-guess").forEach(cover);
  document.querySelectorAll(".overhead-guesses").forEach(list);
  document.querySelectorAll(".overhead-test").forEach(test);
})();
