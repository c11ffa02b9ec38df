// The next token after a prefix: a bar per token, and what temperature, top-k and top-p leave of them.
// state: { prefixes: [{ text, tokens: [[token, P], ... most probable first], rest, size }], prefix, temperature, k, p, drawn, message }
//   `rest` is the probability of all tokens that are not listed, `size` how many those are: plm.sampling.next_token_example.
// question sent to a live kernel: { text }; it answers with new `prefixes` that hold the text as the last one.

const ALL = 60; // top-k slider's end: no limit
const SHOWN = 12;

// log-probabilities / temperature, softmax, then top-k, then top-p: plm.sampling.next_token_probs
const choose = ({ tokens, rest, size }, temperature, k, p) => {
  const every = tokens.map(([, q]) => q);
  if (temperature === 0) return { kept: every.map((_, i) => (i ? 0 : 1)), tail: 0 };
  const top = Math.log(every[0]);
  // The tail is spread evenly over its tokens: right at temperature 1, and nearly so around it.
  let tail = rest > 0 && size > 0 ? size * Math.exp((Math.log(rest / size) - top) / temperature) : 0;
  let kept = every.map((q) => Math.exp((Math.log(q) - top) / temperature));
  const scale = () => { const sum = kept.reduce((a, b) => a + b, tail); kept = kept.map((q) => q / sum); tail /= sum; };
  scale();
  if (k < ALL) { kept = kept.map((q, i) => (i < k ? q : 0)); tail = 0; scale(); }
  if (p < 1) {
    let before = 0;
    const held = kept.map((q, i) => { const stay = i === 0 || before < p - 1e-9; before += q; return stay ? q : 0; });
    if (before >= p - 1e-9) tail = 0;
    kept = held;
    scale();
  }
  return { kept, tail };
};

function render({ model, el }) {
  el.classList.add("plm-explorer");
  const state = () => model.get("state");
  const set = (changes) => { model.set("state", { ...state(), ...changes }); model.save_changes(); };

  const prefixLabel = make(el, "label", {}, "after ");
  const prefix = make(prefixLabel, "select");
  prefix.addEventListener("change", () => set({ prefix: +prefix.value, drawn: [] }));
  if (model.get("live")) {
    const label = make(el, "label", {}, "your own beginning ");
    const box = make(label, "input", { type: "text", style: "width:20rem" });
    const ask = make(label, "button", { type: "button" }, "read it");
    ask.addEventListener("click", () => model.send({ text: box.value }));
  }
  const slider = (name, key, low, high, step) => {
    const label = make(el, "label", {}, `${name} `), value = make(label, "output", { style: "font-weight:bold" });
    const input = make(label, "input", { type: "range", min: low, max: high, step });
    input.addEventListener("input", () => set({ [key]: +input.value, drawn: [] }));
    return { input, value };
  };
  const temperature = slider("temperature", "temperature", 0, 2, 0.1);
  const k = slider("top-k", "k", 1, ALL, 1);
  const p = slider("top-p", "p", 0.05, 1, 0.05);
  const table = make(el, "table"), body = make(table, "tbody");
  const button = make(el, "button", { type: "button", style: "margin-top:0.5rem" }, "draw ten times");
  const said = make(el, "p", { class: "soft", "aria-live": "polite", style: "margin:0.5rem 0 0; min-height:2.8em" });

  button.addEventListener("click", () => {
    const s = state(), now = s.prefixes[Math.min(s.prefix, s.prefixes.length - 1)];
    const { kept } = choose(now, s.temperature, s.k, s.p), drawn = [];
    for (let n = 0; n < 10; n++) {
      let u = Math.random(), i = 0;
      while (i < kept.length && u >= kept[i]) { u -= kept[i]; i += 1; }
      drawn.push(i < kept.length ? now.tokens[i][0] : "(another)");
    }
    set({ drawn });
  });

  const draw = () => {
    const s = state(), at = Math.min(s.prefix, s.prefixes.length - 1), now = s.prefixes[at];
    prefix.replaceChildren();
    s.prefixes.forEach((one, i) => make(prefix, "option", { value: i }, one.text));
    prefix.value = at; temperature.input.value = s.temperature; k.input.value = s.k; p.input.value = s.p;
    temperature.value.textContent = s.temperature === 0 ? "0 (greedy)" : s.temperature.toFixed(1);
    k.value.textContent = s.k >= ALL ? "all" : s.k;
    p.value.textContent = s.p >= 1 ? "all" : s.p.toFixed(2);
    const { kept, tail } = choose(now, s.temperature, s.k, s.p);
    body.replaceChildren();
    now.tokens.slice(0, SHOWN).forEach(([token, plain], i) => {
      const tr = make(body, "tr"), look = kept[i] > 0 ? "" : "; opacity:0.45";
      make(tr, "th", { scope: "row", style: `font-weight:normal; white-space:nowrap; width:8rem${look}` }, token);
      const bar = make(make(tr, "td", { style: "padding:0.15rem 0" }), "div", { style: "position:relative; height:1rem" });
      make(bar, "div", { style: `position:absolute; left:0; top:0.1rem; height:0.8rem; width:${(100 * kept[i]).toFixed(2)}%; background:#4477AA` });
      make(bar, "div", { style: `position:absolute; left:${(100 * plain).toFixed(2)}%; top:0; height:1rem; border-left:2px solid #EE7733` });
      make(tr, "td", { class: "value", style: "width:4rem; text-align:right" }, kept[i].toFixed(3));
    });
    const n = kept.filter((q) => q > 0).length, others = kept.slice(SHOWN).reduce((a, b) => a + b, tail);
    const open = tail > 0 ? `all ${now.tokens.length + now.size} tokens` : `${n} token${n === 1 ? "" : "s"}`;
    const sentence = `Left to draw from: ${open}. Those not shown hold ${others.toFixed(3)}. The orange mark is the model's own probability.`;
    said.textContent = s.error || (s.drawn && s.drawn.length ? `Drawn: ${s.drawn.join(" · ")}. ` : "") + (s.message ? `${s.message} ` : "") + sentence;
    table.setAttribute("aria-label", `Next token after “${now.text}”`);
  };
  model.on("change:state", draw);
  draw();
}

export default { render };
