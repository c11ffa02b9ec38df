// An occurrence of a word in its sentence, and the occurrences whose vectors lie nearest to it, layer by layer.
// state: { word, pick, layer, layers: [name], words: { word: { sentences: [[before, word, after]], picks: [i],
//   near: { layer: { i: [[j, cosine], ...] } } } }, message }
// question sent to a live kernel: { word, sentence }; it answers with new `words` that hold the sentence, and `pick`.

function render({ model, el }) {
  el.classList.add("plm-explorer");
  const state = () => model.get("state");
  const set = (changes) => { model.set("state", { ...state(), ...changes }); model.save_changes(); };
  const sentence = (row, parent) => {
    const [before, word, after] = row;
    parent.append(before + " ");
    make(parent, "b", {}, word);
    parent.append(" " + after);
  };

  const bar = make(el, "div", { style: "display:flex; flex-wrap:wrap; gap:0.4rem 0.8rem; align-items:end" });
  const field = (name) => make(make(bar, "label", { style: "margin:0; max-width:100%" }, name + " "), "select", { style: "max-width:100%" });
  const words = field("word"), picks = field("sentence"), layers = field("vectors");
  for (const w of Object.keys(state().words)) make(words, "option", { value: w }, w);
  for (const name of state().layers) make(layers, "option", { value: name }, name);
  const form = make(el, "form", { style: "margin:0.4rem 0 0" });
  const own = make(make(form, "label", { style: "margin:0; max-width:100%" }, "your own sentence "), "input", { type: "text", autocomplete: "off", style: "width:20rem; max-width:100%" });
  make(form, "button", { type: "submit" }, "show");
  const chosen = make(el, "p", { style: "margin:0.6rem 0 0" });
  const said = make(el, "p", { class: "soft", "aria-live": "polite", style: "margin:0.2rem 0 0; min-height:1.4em" });
  const table = make(el, "table"), body = make(table, "tbody");

  words.addEventListener("change", () => set({ word: words.value, pick: state().words[words.value].picks[0], message: "" }));
  picks.addEventListener("change", () => set({ pick: Number(picks.value), message: "" }));
  layers.addEventListener("change", () => set({ layer: layers.value, message: "" }));
  form.addEventListener("submit", (e) => {
    e.preventDefault();
    if (!own.value.trim()) return;
    if (model.get("live")) return model.send({ word: state().word, sentence: own.value });
    set({ message: "This page holds the sentences of the list. Run the notebook to ask for your own." });
  });

  const draw = () => {
    const { word, pick, layer, error } = state();
    const of = state().words[word];
    words.value = word;
    layers.value = layer;
    picks.replaceChildren();
    for (const i of of.picks) make(picks, "option", { value: i }, of.sentences[i].join(" ").slice(0, 46) + " …");
    picks.value = pick;
    chosen.replaceChildren();
    sentence(of.sentences[pick], chosen);
    const near = of.near[layer][pick], same = near.every(([, c]) => c > 0.999);
    said.textContent = error ? `The kernel could not answer: ${error}` : state().message
      || (same ? "Every occurrence has the same vector; the first ones of the text:" : "Nearest occurrences by cosine:");
    body.replaceChildren();
    for (const [j, cosine] of near) {
      const row = make(body, "tr");
      make(row, "td", { class: "value", style: "width:3.2rem; vertical-align:top" }, cosine.toFixed(2).replace("-", "\u2212"));
      sentence(of.sentences[j], make(row, "td", { style: "text-align:left; white-space:normal" }));
    }
  };
  model.on("change:state", draw);
  draw();
}

export default { render };
