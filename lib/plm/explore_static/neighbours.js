// The nearest neighbours of a word the reader types or picks, in one of several tables of vectors. A neighbour can be clicked
// to ask for its own neighbours.
// state: { word, table, tables: { name: { word: [[neighbour, cosine], ...] } }, message }
// question sent to a live kernel: { word }; it answers with new `tables` that hold the word, or with a `message`.

function render({ model, el }) {
  el.classList.add("plm-explorer");
  const state = () => model.get("state");
  const set = (changes) => { model.set("state", { ...state(), ...changes }); model.save_changes(); };
  const known = () => Object.keys(state().tables[state().table]);
  const list = `plm-words-${Math.random().toString(36).slice(2)}`;

  const bar = make(el, "form", { style: "display:flex; flex-wrap:wrap; gap:0.4rem 0.8rem; align-items:end" });
  const wordLabel = make(bar, "label", { style: "margin:0" }, "word ");
  const box = make(wordLabel, "input", { type: "text", list, autocapitalize: "none", autocomplete: "off", spellcheck: "false", style: "width:9rem" });
  const options = make(bar, "datalist", { id: list });
  make(bar, "button", { type: "submit" }, "show");
  const other = make(bar, "button", { type: "button" }, "another word");
  const tableLabel = make(bar, "label", { style: "margin:0" }, "vectors ");
  const choice = make(tableLabel, "select");
  for (const name of Object.keys(state().tables)) make(choice, "option", { value: name }, name);
  const said = make(el, "p", { class: "soft", "aria-live": "polite", style: "margin:0.5rem 0 0; min-height:1.4em" });
  const table = make(el, "table"), body = make(table, "tbody");

  const ask = (typed) => {
    const word = typed.trim().toLowerCase();
    if (!word) return;
    if (known().includes(word)) return set({ word, message: "" });
    if (model.get("live")) return model.send({ word });
    const close = known().filter((w) => w.startsWith(word.slice(0, 2))).slice(0, 6).join(", ");
    set({ message: `This page holds ${known().length} words, and “${word}” is not one of them` + (close ? `; it has ${close}.` : ".")
      + " Run the notebook to ask for any word of the vocabulary." });
  };
  bar.addEventListener("submit", (e) => { e.preventDefault(); ask(box.value); });
  box.addEventListener("change", () => ask(box.value));
  other.addEventListener("click", () => { const words = known(); ask(words[Math.floor(Math.random() * words.length)]); });
  choice.addEventListener("change", () => set({ table: choice.value, message: "" }));

  const draw = () => {
    const { word, table: name, tables, error } = state();
    const message = error ? `The kernel could not answer: ${error}` : state().message;
    if (options.childElementCount !== known().length) {
      options.replaceChildren();
      for (const w of known()) make(options, "option", { value: w });
    }
    if (document.activeElement !== box || !message) box.value = word;
    choice.value = name;
    said.textContent = message || `Nearest to “${word}” by cosine, ${name}:`;
    const focus = body.contains(document.activeElement);
    body.replaceChildren();
    for (const [neighbour, cosine] of tables[name][word]) {
      const row = make(body, "tr");
      const cell = make(row, "th", { scope: "row", style: "width:9rem; font-weight:normal" });
      const button = make(cell, "button", { type: "button", style: "border:0; padding:0.1rem 0; text-decoration:underline" }, neighbour);
      button.addEventListener("click", () => ask(neighbour));
      make(row, "td", { class: "value", style: "width:4rem" }, cosine.toFixed(2).replace("-", "\u2212"));
      const strip = make(row, "td", { "aria-hidden": "true" });
      make(strip, "div", { style: `height:0.7rem; border-radius:2px; background:#CC6677; width:${Math.max(0, 100 * cosine)}%` });
    }
    if (focus) box.focus();
  };
  model.on("change:state", draw);
  draw();
}

export default { render };
