// Accuracy against labels per class for several ways of training; a slider picks the number of labels and a table reads it off.
// state: { labels: [1, 2, …], tasks: { name: { way: { mean: […], std: […] } } }, task, chosen, extra: [{ task, labels, way: accuracy }] }
// `extra` holds runs that a live kernel added; the question it is asked is { task, labels }.

const COLOUR = { scratch: "#777777", frozen: "#0077BB", "fine-tuned": "#EE7733" };
const DASH = { scratch: "2 4", frozen: "8 4", "fine-tuned": "" };

const percent = (x) => `${Math.round(100 * x)}%`;
const points = (x) => { const n = Math.round(100 * x); return n ? `${n < 0 ? "\u2212" : "+"}${Math.abs(n)}` : "0"; };

function render({ model, el }) {
  el.classList.add("plm-explorer");
  const state = () => model.get("state");
  const set = (change) => { model.set("state", { ...state(), ...change }); model.save_changes(); };
  const { labels, tasks } = state(), ways = Object.keys(Object.values(tasks)[0]);
  const [W, H, left, right, top, bottom] = [400, 290, 44, 12, 12, 44];
  const span = Math.log(labels.at(-1) / labels[0]);
  const px = (n) => left + (Math.log(n / labels[0]) / span) * (W - left - right);
  const py = (a) => H - bottom - a * (H - top - bottom);

  const form = make(el, "div", { style: "display:flex; flex-wrap:wrap; gap:0.4rem 1.2rem; align-items:center" });
  const picker = make(make(form, "label", {}, "Digits: "), "select");
  for (const name of Object.keys(tasks)) make(picker, "option", { value: name }, name);
  picker.addEventListener("change", () => set({ task: picker.value }));
  const sliderLabel = make(form, "label", { style: "flex:1 1 220px" });
  const sliderText = make(sliderLabel, "span");
  const slider = make(sliderLabel, "input", { type: "range", min: 0, max: labels.length - 1, step: 1 });
  slider.addEventListener("input", () => set({ chosen: Number(slider.value) }));

  const layout = make(el, "div", { style: "display:flex; flex-wrap:wrap; gap:0.4rem 1.2rem; align-items:flex-start" });
  const figure = make(layout, "div", { style: "flex:1 1 290px; max-width:460px; min-width:0" });
  const side = make(layout, "div", { style: "flex:1 1 210px; min-width:0" });
  const svg = make(figure, "svg", { viewBox: `0 0 ${W} ${H}`, role: "img" });
  svg.style.touchAction = "pan-y";
  for (const a of [0, 0.2, 0.4, 0.6, 0.8, 1]) {
    make(svg, "line", { x1: left, x2: W - right, y1: py(a), y2: py(a), stroke: "var(--line)", "stroke-width": a ? 0.7 : 1.5 });
    make(svg, "text", { x: left - 6, y: py(a) + 5, "text-anchor": "end" }, percent(a));
  }
  for (const n of labels) make(svg, "text", { x: px(n), y: H - bottom + 18, "text-anchor": "middle" }, String(n));
  make(svg, "text", { x: (left + W - right) / 2, y: H - 6, "text-anchor": "middle" }, "labelled images per digit");
  const guide = make(svg, "line", { y1: top, y2: H - bottom, stroke: "var(--ink)", "stroke-width": 1, "stroke-dasharray": "3 3" });
  const drawn = make(svg, "g");
  svg.addEventListener("pointerdown", (e) => {
    const x = new DOMPoint(e.clientX, e.clientY).matrixTransform(svg.getScreenCTM().inverse()).x;
    const near = labels.map((n, i) => [Math.abs(px(n) - x), i]).sort((a, b) => a[0] - b[0]);
    set({ chosen: near[0][1] });
  });

  const table = make(side, "table"), head = make(make(table, "thead"), "tr");
  for (const title of ["training", "test accuracy", "vs scratch"]) make(head, "th", { scope: "col" }, title);
  const body = make(table, "tbody"), cells = {};
  for (const way of ways) {
    const tr = make(body, "tr"), name = make(tr, "th", { scope: "row", style: "font-weight:normal; white-space:nowrap" });
    const key = make(name, "svg", { viewBox: "0 0 26 10", "aria-hidden": "true", style: "display:inline-block; width:26px; height:10px; margin-right:6px" });
    make(key, "line", { x1: 0, x2: 26, y1: 5, y2: 5, stroke: COLOUR[way] || "var(--ink)", "stroke-width": 3, "stroke-dasharray": DASH[way] || "" });
    name.append(way);
    cells[way] = [make(tr, "td", { class: "value" }), make(tr, "td", { class: "value" })];
  }
  const said = make(side, "p", { class: "soft", "aria-live": "polite", style: "margin:0.5rem 0; min-height:4.2em" });
  const button = make(side, "button", { type: "button" }, "Train one more seed");
  let waiting = false;
  button.addEventListener("click", () => {
    waiting = true;
    draw();
    model.send({ task: state().task, labels: labels[state().chosen] });
  });
  const note = make(side, "p", { class: "soft", style: "margin:0.3rem 0" });

  const draw = () => {
    const { task, chosen, extra = [] } = state(), n = labels[chosen], rows = tasks[task];
    picker.value = task;
    slider.value = chosen;
    sliderText.textContent = `Labelled images per digit: ${n}`;
    slider.setAttribute("aria-valuetext", `${n} per digit`);
    guide.setAttribute("x1", px(n)); guide.setAttribute("x2", px(n));
    drawn.replaceChildren();
    for (const way of ways) {
      const { mean, std } = rows[way], colour = COLOUR[way] || "var(--ink)";
      const edge = (sign) => labels.map((m, i) => `${px(m)} ${py(Math.max(0, Math.min(1, mean[i] + sign * std[i])))}`);
      make(drawn, "path", { d: `M${[...edge(1), ...edge(-1).reverse()].join("L")}Z`, fill: colour, opacity: 0.2 });
    }
    for (const way of ways) {
      const { mean, std } = rows[way], colour = COLOUR[way] || "var(--ink)";
      make(drawn, "path", { d: `M${labels.map((m, i) => `${px(m)} ${py(mean[i])}`).join("L")}`, fill: "none", stroke: colour, "stroke-width": 3, "stroke-dasharray": DASH[way] || "" });
      make(drawn, "circle", { cx: px(n), cy: py(mean[chosen]), r: 5, fill: colour, stroke: "var(--paper)", "stroke-width": 1.5 });
      for (const run of extra) {
        if (run.task === task) make(drawn, "circle", { cx: px(run.labels), cy: py(run[way]), r: 4, fill: "none", stroke: colour, "stroke-width": 2 });
      }
      cells[way][0].textContent = `${percent(mean[chosen])} \u00b1 ${Math.round(100 * std[chosen])}`;
      cells[way][1].textContent = way === "scratch" ? "" : points(mean[chosen] - rows.scratch.mean[chosen]);
    }
    const gap = (way) => rows[way].mean[chosen] - rows.scratch.mean[chosen];
    const ahead = ways.filter((way) => way !== "scratch" && gap(way) > 0.01);
    const clear = ahead.filter((way) => gap(way) > rows.scratch.std[chosen] + rows[way].std[chosen]);
    said.textContent = `${n} labelled image${n > 1 ? "s" : ""} per digit: ` + (clear.length
      ? `${clear.join(" and ")} ${clear.length > 1 ? "beat" : "beats"} scratch by more than both bands together.`
      : ahead.length ? `${ahead.join(" and ")} ${ahead.length > 1 ? "are" : "is"} ahead of scratch, but the bands overlap.`
      : "starting from scratch does as well.");
    svg.setAttribute("aria-label", `Test accuracy against labelled images per digit, ${task} digits. At ${n}: ` +
      ways.map((way) => `${way} ${percent(rows[way].mean[chosen])}`).join(", ") + ".");
    const live = model.get("live");
    button.hidden = !live;
    button.disabled = waiting;
    button.textContent = waiting ? "Training \u2026" : "Train one more seed";
    const mine = extra.filter((run) => run.task === task).length;
    note.textContent = state().error ? `The kernel could not answer: ${state().error}` : live && mine ? `Open circles: ${mine} run${mine > 1 ? "s" : ""} of your own, from one pretrained network and with fixed rates.` : "";
  };
  // `answered` counts the kernel's replies, errors included: after each the reader may ask again.
  let answered = state().answered;
  model.on("change:state", () => { waiting = waiting && state().answered === answered; answered = state().answered; draw(); });
  draw();
}

export default { render };
