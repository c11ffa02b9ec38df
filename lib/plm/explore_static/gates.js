// The gates of a trained LSTM over a sentence: units by words, as a heat map, with a word to pick.
// state: { sentences: [{ words: [...], maps: { name: [[value per word], one row per unit] }, next: [[[word, P], ...] per word] }],
//          units: [label per row], kind, sentence, word, message }
// question sent to a live kernel: { text }; it answers with new `sentences` that hold the text as the last one.

const RANGE = { "cell": [-1, 1] }; // gates lie between 0 and 1
const paint = (value, low, high) => {
  const x = Math.max(0, Math.min(1, (value - low) / (high - low)));
  if (low >= 0) return `rgb(${Math.round(255 - 187 * x)},${Math.round(255 - 85 * x)},${Math.round(255 - 102 * x)})`;
  const away = Math.abs(2 * x - 1), other = Math.round(255 - 200 * away);
  return x > 0.5 ? `rgb(255,${other},${other})` : `rgb(${other},${other},255)`;
};

function render({ model, el }) {
  el.classList.add("plm-explorer");
  const state = () => model.get("state");
  const set = (changes) => { model.set("state", { ...state(), ...changes }); model.save_changes(); };

  const sentenceLabel = make(el, "label", {}, "sentence ");
  const sentence = make(sentenceLabel, "select");
  sentence.addEventListener("change", () => set({ sentence: +sentence.value, word: 0 }));
  const kindLabel = make(el, "label", {}, "show ");
  const kind = make(kindLabel, "select");
  for (const name of Object.keys(state().sentences[0].maps)) make(kind, "option", { value: name }, name);
  kind.addEventListener("change", () => set({ kind: kind.value }));

  let box = null;
  if (model.get("live")) {
    const label = make(el, "label", {}, "your own sentence ");
    box = make(label, "input", { type: "text", style: "width:20rem" });
    const ask = make(label, "button", { type: "button" }, "read it");
    ask.addEventListener("click", () => model.send({ text: box.value }));
  }
  const words = make(el, "div", { role: "group", "aria-label": "words", style: "display:flex; flex-wrap:wrap; gap:0.25rem; margin:0.5rem 0" });
  const svg = make(el, "svg", { role: "img" });
  svg.style.touchAction = "auto";
  const table = make(el, "table"), body = make(table, "tbody");
  const said = make(el, "p", { class: "soft", "aria-live": "polite", style: "margin:0.5rem 0 0; min-height:1.4em" });

  const draw = () => {
    const { sentences, units, kind: name, message, error } = state();
    const at = Math.min(state().sentence, sentences.length - 1), shown = sentences[at];
    const word = Math.min(state().word, shown.words.length - 1), rows = shown.maps[name];
    sentence.replaceChildren();
    sentences.forEach((s, i) => make(sentence, "option", { value: i }, s.words.slice(1, 8).join(" ") + " …"));
    sentence.value = at; kind.value = name;
    words.replaceChildren();
    shown.words.forEach((w, i) => {
      const look = i === word ? "border-color:#EE7733; border-width:2px; font-weight:bold" : "";
      make(words, "button", { type: "button", "aria-pressed": i === word, style: look }, w).addEventListener("click", () => set({ word: i }));
    });
    const left = 150, width = 480, cell = (width - left) / shown.words.length, height = 17, [low, high] = RANGE[name] || [0, 1];
    svg.replaceChildren();
    svg.setAttribute("viewBox", `0 0 ${width} ${rows.length * height + 4}`);
    rows.forEach((row, u) => {
      make(svg, "text", { x: left - 6, y: u * height + 13, "text-anchor": "end", style: "font-size:11px" }, units[u]);
      row.forEach((value, t) => make(svg, "rect", { x: left + t * cell, y: u * height + 1, width: cell - 0.7, height: height - 1.5, fill: paint(value, low, high) }));
    });
    make(svg, "rect", { x: left + word * cell - 1, y: 0, width: cell + 1.3, height: rows.length * height + 2, fill: "none", stroke: "#EE7733", "stroke-width": 2 });
    const values = rows.map((row) => row[word]), mean = values.reduce((a, b) => a + b, 0) / values.length;
    const said_ = `${name}, after reading “${shown.words[word]}”: mean over these units ${mean.toFixed(2)}`;
    svg.setAttribute("aria-label", `${said_}; ` + units.map((u, i) => `${u} ${values[i]}`).join(", "));
    body.replaceChildren();
    for (const [next, p] of shown.next[word]) {
      const tr = make(body, "tr");
      make(tr, "th", { scope: "row", style: "font-weight:normal" }, `next: ${next}`);
      make(tr, "td", { class: "value" }, p.toFixed(3));
    }
    said.textContent = error || message || `${said_}.`;
  };
  model.on("change:state", draw);
  draw();
}

export default { render };
