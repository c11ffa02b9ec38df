// Attention weights over a sentence: pick an example, a layer, a head and a token, and see where that token looks.
// state: { examples: [{ name, rows: [token], columns: [token], weights: [layer][head][row][column], note }],
//          example, layer, head (a number, or "mean"), row, rowsAre, columnsAre, ask }
// rows look at columns; in self-attention both are the same tokens. A weight of null marks a place that the mask hides.
// rowsAre, columnsAre: what to call the two ("the translation", "the source"). ask: label of a text box that is shown when a
// kernel is live; the question is { text }, and the answer holds new `examples` (and which to show), or a `message`.

function render({ model, el }) {
  el.classList.add("plm-explorer");
  const state = () => model.get("state");
  const set = (changes) => { model.set("state", { ...state(), ...changes }); model.save_changes(); };
  const percent = (w) => (w === null ? "hidden" : w > 0 && w < 0.005 ? "<1%" : `${Math.round(100 * w)}%`);
  const shade = (w) => `color-mix(in srgb, #AA4499 ${Math.round(65 * Math.sqrt(w || 0))}%, var(--paper))`;

  // What is chosen, forced into what this example has.
  const chosen = () => {
    const s = state(), index = Math.min(s.example || 0, s.examples.length - 1), example = s.examples[index];
    const layer = Math.min(s.layer || 0, example.weights.length - 1), heads = example.weights[layer];
    const head = heads.length === 1 ? 0 : s.head === "mean" ? "mean" : Math.min(s.head || 0, heads.length - 1);
    const mean = (i, j) => (heads[0][i][j] === null ? null : heads.reduce((sum, h) => sum + h[i][j], 0) / heads.length);
    const matrix = head === "mean" ? example.rows.map((_, i) => example.columns.map((_, j) => mean(i, j))) : heads[head];
    return { index, example, layer, heads, head, matrix, row: Math.min(s.row || 0, example.rows.length - 1) };
  };

  const bar = make(el, "div", { style: "display:flex; flex-wrap:wrap; gap:0.3rem 1rem; align-items:center" });
  const picker = (name, key) => {
    const label = make(bar, "label", { style: "margin:0; max-width:100%" }, `${name} `), select = make(label, "select");
    select.addEventListener("change", () => set({ [key]: select.value === "mean" ? "mean" : Number(select.value), ...(key === "example" ? { row: 0, message: "" } : {}) }));
    return { label, fill: (options, value) => {
      label.style.display = options.length < 2 ? "none" : "block";
      select.replaceChildren();
      for (const [v, text] of options) make(select, "option", { value: v }, text);
      select.value = String(value);
    } };
  };
  const pickers = { example: picker("example", "example"), layer: picker("layer", "layer"), head: picker("head", "head") };
  const form = make(el, "form", { style: "display:flex; flex-wrap:wrap; gap:0.3rem 0.6rem; align-items:center; margin-top:0.4rem" });
  const ask = make(form, "label", { style: "margin:0" }), askText = make(ask, "span");
  const box = make(ask, "input", { type: "text", autocomplete: "off", spellcheck: "false", style: "width:18rem" });
  make(form, "button", { type: "submit" }, "show");
  form.addEventListener("submit", (e) => { e.preventDefault(); if (box.value.trim()) model.send({ text: box.value.trim() }); });

  const line = (margin) => make(el, "div", { style: `display:flex; flex-wrap:wrap; gap:0.25rem; margin-top:${margin}` });
  const heading = () => make(el, "p", { class: "soft", style: "margin:0.6rem 0 0" });
  const asks = heading(), rowLine = line("0.2rem"), looks = heading(), columnLine = line("0.2rem");
  rowLine.setAttribute("role", "radiogroup");
  columnLine.setAttribute("role", "list");
  const said = make(el, "p", { "aria-live": "polite", style: "margin:0.6rem 0 0; min-height:2.8em" });
  const note = make(el, "p", { class: "soft", style: "margin:0.2rem 0 0" });
  const map = make(el, "svg", { "aria-hidden": "true", style: "max-height:15rem; margin-top:0.5rem; touch-action:pan-y; cursor:pointer" });
  map.addEventListener("pointerdown", (e) => {
    const y = new DOMPoint(e.clientX, e.clientY).matrixTransform(map.getScreenCTM().inverse()).y;
    set({ row: Math.max(0, Math.min(chosen().example.rows.length - 1, Math.floor(y))) });
  });
  rowLine.addEventListener("keydown", (e) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[e.key], { row, example } = chosen();
    const to = e.key === "Home" ? 0 : e.key === "End" ? example.rows.length - 1 : step ? row + step : -1;
    if (to < 0 || to >= example.rows.length) return;
    e.preventDefault();
    set({ row: to });
    rowLine.children[to].focus();
  });

  const draw = () => {
    const s = state(), { index, example, layer, heads, head, matrix, row } = chosen();
    pickers.example.fill(s.examples.map((x, i) => [i, x.name]), index);
    pickers.layer.fill(example.weights.map((_, i) => [i, i + 1]), layer);
    pickers.head.fill(heads.length < 2 ? [] : [...heads.map((_, i) => [i, i + 1]), ["mean", "mean"]], head);
    form.style.display = s.ask && model.get("live") ? "flex" : "none";
    askText.textContent = `${s.ask || ""} `;
    asks.textContent = `Pick a token of ${s.rowsAre || "the sentence"} (arrow keys move):`;
    looks.textContent = `It looks at ${s.columnsAre || "the sentence"}:`;
    const focused = rowLine.contains(document.activeElement);
    rowLine.replaceChildren();
    columnLine.replaceChildren();
    example.rows.forEach((token, i) => {
      const on = i === row, button = make(rowLine, "button", {
        type: "button", role: "radio", "aria-checked": on, tabindex: on ? 0 : -1,
        style: `padding:0.2rem 0.45rem; min-width:1.9rem; ${on ? "border-color:#AA4499; box-shadow:inset 0 0 0 2px #AA4499; font-weight:700" : ""}`,
      }, token);
      button.addEventListener("click", () => { set({ row: i }); rowLine.children[i].focus(); });
    });
    if (focused) rowLine.children[row].focus();
    example.columns.forEach((token, j) => {
      const w = matrix[row][j], cell = make(columnLine, "span", {
        role: "listitem", "aria-label": `${token}: ${percent(w)}`,
        style: `display:inline-flex; flex-direction:column; align-items:center; min-width:2rem; padding:0.15rem 0.4rem; border-radius:4px; border:1px solid var(--line); background:${shade(w)}; ${w === null ? "opacity:0.45" : ""}`,
      });
      make(cell, "span", { "aria-hidden": "true" }, token);
      make(cell, "small", { class: "value", "aria-hidden": "true", style: "font-size:0.72rem" }, w === null ? "\u2014" : percent(w));
    });
    const ranked = matrix[row].map((w, j) => [w, j]).filter(([w]) => w !== null).sort((a, b) => b[0] - a[0]).slice(0, 3);
    said.textContent = s.error ? `The kernel could not answer: ${s.error}` : s.message ? s.message
      : `\u201c${example.rows[row]}\u201d looks most at ${ranked.map(([w, j]) => `\u201c${example.columns[j]}\u201d (${percent(w)})`).join(", ")}.`;
    note.textContent = example.note || "";
    const [m, n] = [example.rows.length, example.columns.length];
    map.setAttribute("viewBox", `0 0 ${n} ${m}`);
    map.replaceChildren();
    matrix.forEach((values, i) => values.forEach((w, j) => {
      make(map, "rect", { x: j + 0.04, y: i + 0.04, width: 0.92, height: 0.92, style: `fill:${w === null ? "var(--line)" : shade(w)}` });
    }));
    make(map, "rect", { x: 0, y: row, width: n, height: 1, fill: "none", stroke: "#AA4499", "stroke-width": 0.12 });
  };
  model.on("change:state", draw);
  draw();
}

export default { render };
