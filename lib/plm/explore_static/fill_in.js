// A sentence of which the reader hides one token, and what models guess in its place.
// state: { sentence, hidden, models: [name], sentences: [{ tokens: [text], rank: { model: [place or null] },
//   guesses: { model: [[[token, probability], ...] or null per token] } }], message }
// question sent to a live kernel: { text }; it answers with new `sentences`, and with `sentence` and `hidden`.

function render({ model, el }) {
  el.classList.add("plm-explorer");
  const state = () => model.get("state");
  const set = (changes) => { model.set("state", { ...state(), ...changes }); model.save_changes(); };

  const bar = make(el, "div", { style: "display:flex; flex-wrap:wrap; gap:0.4rem 0.8rem; align-items:end" });
  const picked = make(make(bar, "label", { style: "margin:0; max-width:100%" }, "sentence "), "select", { style: "max-width:100%" });
  const form = make(el, "form", { style: "margin:0.4rem 0 0" });
  const own = make(make(form, "label", { style: "margin:0; max-width:100%" }, "your own sentence "), "input", { type: "text", autocomplete: "off", style: "width:20rem; max-width:100%" });
  make(form, "button", { type: "submit" }, "show");
  make(el, "p", { class: "soft", style: "margin:0.5rem 0 0" }, "Choose a token to hide it:");
  const line = make(el, "div", { role: "group", "aria-label": "tokens of the sentence", style: "display:flex; flex-wrap:wrap; gap:0.25rem; margin:0.2rem 0 0" });
  const said = make(el, "p", { class: "soft", "aria-live": "polite", style: "margin:0.4rem 0 0; min-height:1.4em" });
  const tables = make(el, "div", { style: "display:flex; flex-wrap:wrap; gap:0.4rem 2rem" });

  picked.addEventListener("change", () => set({ sentence: Number(picked.value), hidden: state().sentences[picked.value].open ?? 0, message: "" }));
  form.addEventListener("submit", (e) => {
    e.preventDefault();
    if (!own.value.trim()) return;
    if (model.get("live")) return model.send({ text: own.value });
    set({ message: "This page holds the sentences of the list. Run the notebook to ask for your own." });
  });

  const guessed = (name, of, hidden) => {
    const box = make(tables, "div", { style: "min-width:12rem; flex:1 1 12rem; max-width:22rem" });
    make(box, "p", { style: "margin:0.2rem 0; font-weight:bold" }, name);
    const found = of.guesses[name][hidden];
    if (!found) return make(box, "p", { class: "soft", style: "margin:0" }, "has nothing to read before the first token");
    const body = make(make(box, "table", { style: "width:100%" }), "tbody");
    for (const [token, p] of found) {
      const row = make(body, "tr"), right = token === of.tokens[hidden];
      const cell = make(row, "td", { style: "text-align:left; white-space:nowrap" });
      make(cell, right ? "b" : "span", {}, token + (right ? " \u2713" : ""));
      make(row, "td", { class: "value", style: "width:4rem; white-space:nowrap" }, (100 * p).toFixed(1) + " %");
      const bar = make(make(row, "td", { style: "width:45%" }), "div", { style: `height:0.7rem; width:${Math.max(1, 100 * p)}%; background:#332288; outline:1px solid var(--soft)` });
      bar.setAttribute("aria-hidden", "true");
    }
    const rank = of.rank[name][hidden];
    make(box, "p", { class: "soft", style: "margin:0.2rem 0 0" }, rank === null ? "" : `the true token is number ${rank}`);
  };

  const draw = () => {
    const { sentences, sentence, hidden, models, message, error } = state();
    const of = sentences[sentence];
    picked.replaceChildren();
    sentences.forEach((s, i) => make(picked, "option", { value: i }, s.tokens.join(" ").slice(0, 60)));
    picked.value = sentence;
    const had = line.contains(document.activeElement);
    line.replaceChildren();
    of.tokens.forEach((token, i) => {
      const button = make(line, "button", { type: "button", "aria-pressed": String(i === hidden), style: "padding:0.1rem 0.35rem; min-height:1.8rem" + (i === hidden ? "; font-weight:bold" : "") }, i === hidden ? "[MASK]" : token);
      button.addEventListener("click", () => set({ hidden: i, message: "" }));
      if (had && i === hidden) button.focus();
    });
    said.textContent = error ? `The kernel could not answer: ${error}` : message || `Hidden: ${of.tokens[hidden]}`;
    tables.replaceChildren();
    for (const name of models) guessed(name, of, hidden);
  };
  model.on("change:state", draw);
  draw();
}

export default { render };
