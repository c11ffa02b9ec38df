// a is to b as c is to …: the words nearest to b − a + c, with or without the words of the question, in one of several tables.
// state: { chosen: [a, b, c], table, exclude, tables: { name: { "a b c": [[word, cosine], ...] } }, message }
// question sent to a live kernel: { words: [a, b, c] }; it answers with new `tables` that hold them, or with a `message`.

const SHOWN = 6;

function render({ model, el }) {
  el.classList.add("plm-explorer");
  const state = () => model.get("state");
  const set = (changes) => { model.set("state", { ...state(), ...changes }); model.save_changes(); };
  const known = () => Object.keys(state().tables[state().table]);

  const bar = make(el, "form", { style: "display:flex; flex-wrap:wrap; gap:0.4rem 0.8rem; align-items:end" });
  const pickLabel = make(bar, "label", { style: "margin:0" }, "question ");
  const picker = make(pickLabel, "select");
  const tableLabel = make(bar, "label", { style: "margin:0" }, "vectors ");
  const choice = make(tableLabel, "select");
  for (const name of Object.keys(state().tables)) make(choice, "option", { value: name }, name);
  const tickLabel = make(bar, "label", { style: "margin:0; display:flex; gap:0.4rem; align-items:center" });
  const tick = make(tickLabel, "input", { type: "checkbox", style: "accent-color:#0077BB" });
  make(tickLabel, "span", {}, "leave out the words of the question");
  const own = make(el, "form", { style: "display:flex; flex-wrap:wrap; gap:0.3rem; align-items:center; margin-top:0.5rem" });
  const boxes = ["", " is to ", " as "].map((before, i) => {
    make(own, "span", { class: "soft" }, before);
    return make(own, "input", { type: "text", "aria-label": `word ${"abc"[i]}`, autocapitalize: "none", autocomplete: "off", spellcheck: "false", style: "width:6.5rem" });
  });
  make(own, "span", { class: "soft" }, " is to ");
  make(own, "button", { type: "submit" }, "ask");
  own.hidden = !model.get("live");
  if (own.hidden) own.style.display = "none";
  const said = make(el, "p", { class: "soft", "aria-live": "polite", style: "margin:0.5rem 0 0; min-height:1.4em" });
  const table = make(el, "table"), body = make(table, "tbody");

  picker.addEventListener("change", () => set({ chosen: picker.value.split(" "), message: "" }));
  choice.addEventListener("change", () => set({ table: choice.value, message: "" }));
  tick.addEventListener("change", () => set({ exclude: tick.checked, message: "" }));
  own.addEventListener("submit", (e) => {
    e.preventDefault();
    const words = boxes.map((box) => box.value.trim().toLowerCase());
    if (!words.every(Boolean)) return;
    if (known().includes(words.join(" "))) set({ chosen: words, message: "" });
    else model.send({ words });
  });

  const draw = () => {
    const { chosen, table: name, exclude, tables, error } = state(), key = chosen.join(" ");
    if (picker.childElementCount !== known().length) {
      picker.replaceChildren();
      for (const k of known()) {
        const [a, b, c] = k.split(" ");
        make(picker, "option", { value: k }, `${a} : ${b} = ${c} : ?`);
      }
    }
    picker.value = key;
    choice.value = name;
    tick.checked = exclude;
    boxes.forEach((box, i) => { if (document.activeElement !== box) box.value = chosen[i]; });
    const [a, b, c] = chosen;
    said.textContent = error ? `The kernel could not answer: ${error}` : state().message || `Nearest to ${b} \u2212 ${a} + ${c}, ${name}:`;
    body.replaceChildren();
    const rows = tables[name][key].filter(([word]) => !exclude || !chosen.includes(word)).slice(0, SHOWN);
    for (const [word, cosine] of rows) {
      const row = make(body, "tr"), asked = chosen.includes(word);
      make(row, "th", { scope: "row", style: `width:11rem; font-weight:${asked ? "normal" : "bold"}` }, asked ? `${word} (in the question)` : word);
      make(row, "td", { class: "value", style: "width:4rem" }, cosine.toFixed(2).replace("-", "\u2212"));
      const strip = make(row, "td", { "aria-hidden": "true" });
      make(strip, "div", { style: `height:0.7rem; border-radius:2px; background:${asked ? "#BBBBBB" : "#DDAA33"}; width:${Math.max(0, 100 * cosine)}%` });
    }
  };
  model.on("change:state", draw);
  draw();
}

export default { render };
