// The next token after a prefix: a bar per token, and what temperature, top-k and top-p leave of them.
// state: { prefixes: [{ text, tokens: [[token, P], ... most probable first], tail: [[how many, their sum, [some]], ...] }],
//   prefix, temperature, k, p, drawn, message }
//   `tail`: the tokens that are not listed, in runs of nearly equal probability, with the names of a few: plm.sampling.next_token_example.
// question sent to a live kernel: { text }; it answers with new `prefixes` that hold the text as the last one.

const ALL = 60; // top-k slider's end: no limit
const SHOWN = 12;

// log-probabilities / temperature, softmax, then top-k, then top-p: plm.sampling.next_token_probs.
// kept: the probability of each listed token; tail: that of all others; left: how many tokens have any.
const choose = ({ tokens, tail }, temperature, k, p) => {
  const runs = [...tokens.map(([, q]) => [1, q]), ...tail];
  if (temperature === 0) return { kept: tokens.map((_, i) => (i ? 0 : 1)), beyond: [], tail: 0, left: 1 };
  const top = Math.log(runs[0][1]);
  let size = runs.map(([n]) => n);
  let share = runs.map(([n, q]) => n * Math.exp((Math.log(q / n) - top) / temperature));
  const scale = () => { const sum = share.reduce((a, b) => a + b, 0); share = share.map((q) => q / sum); };
  if (k < ALL) share = share.map((q, i) => (i < Math.min(k, tokens.length) ? q : 0));
  scale();
  if (p < 1) {
    let before = 0;
    share = share.map((q, i) => {
      // of a run only as many tokens stay as it takes to reach p
      const need = i === 0 ? 1 : Math.min(size[i], Math.ceil((p - 1e-9 - before) * size[i] / q));
      before += q;
      const stay = q > 0 && need > 0 ? need : 0, left = q * stay / size[i];
      size[i] = stay;
      return left;
    });
    scale();
  }
  const sum = (values) => values.reduce((a, b) => a + b, 0), beyond = share.slice(tokens.length);
  return { kept: share.slice(0, tokens.length), beyond, tail: sum(beyond), left: sum(size.filter((_, i) => share[i] > 0)) };
};

// Ten draws; of a run of tokens that are not listed one of those whose names are known, in brackets.
const drawTen = ({ tokens, tail }, { kept, beyond }, random) => Array.from({ length: 10 }, () => {
  const every = [...kept, ...beyond];
  let u = random(), i = 0;
  while (i < every.length - 1 && (u >= every[i] || every[i] === 0)) { u -= every[i]; i += 1; }
  while (every[i] === 0) i -= 1; // rounding led behind the last
  if (i < kept.length) return tokens[i][0];
  const names = tail[i - kept.length][2];
  return `(${names[Math.floor(random() * names.length)]})`;
});

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
    set({ drawn: drawTen(now, choose(now, s.temperature, s.k, s.p), Math.random) });
  });

  const draw = () => {
    const s = state(), at = Math.min(s.prefix, s.prefixes.length - 1), now = s.prefixes[at];
    prefix.replaceChildren();
    s.prefixes.forEach((one, i) => make(prefix, "option", { value: i }, one.text));
    prefix.value = at; temperature.input.value = s.temperature; k.input.value = s.k; p.input.value = s.p;
    temperature.value.textContent = s.temperature === 0 ? "0 (greedy)" : s.temperature.toFixed(1);
    k.value.textContent = s.k >= ALL ? "all" : s.k;
    p.value.textContent = s.p >= 1 ? "all" : s.p.toFixed(2);
    const { kept, tail, left } = choose(now, s.temperature, s.k, s.p);
    body.replaceChildren();
    now.tokens.slice(0, SHOWN).forEach(([token, plain], i) => {
      const tr = make(body, "tr"), look = kept[i] > 0 ? "" : "; opacity:0.45";
      make(tr, "th", { scope: "row", style: `font-weight:normal; white-space:nowrap; width:8rem${look}` }, token);
      const bar = make(make(tr, "td", { style: "padding:0.15rem 0" }), "div", { style: "position:relative; height:1rem" });
      make(bar, "div", { style: `position:absolute; left:0; top:0.1rem; height:0.8rem; width:${(100 * kept[i]).toFixed(2)}%; background:#4477AA` });
      make(bar, "div", { style: `position:absolute; left:${(100 * plain).toFixed(2)}%; top:0; height:1rem; border-left:2px solid #EE7733` });
      make(tr, "td", { class: "value", style: "width:4rem; text-align:right" }, kept[i].toFixed(3));
    });
    const all = now.tokens.length + now.tail.reduce((a, [n]) => a + n, 0), others = kept.slice(SHOWN).reduce((a, b) => a + b, tail);
    const open = left === all ? `all ${all} tokens` : `${left} token${left === 1 ? "" : "s"}`;
    const bracket = s.drawn && s.drawn.some((token) => /^\(.+\)$/.test(token)) ? "In brackets: one of the many that are about equally probable. " : "";
    const sentence = `${bracket}Left to draw from: ${open}. Those not shown hold ${others.toFixed(3)}. The orange mark is the model's own probability.`;
    said.textContent = s.error || (s.drawn && s.drawn.length ? `Drawn: ${s.drawn.join(" · ")}. ` : "") + (s.message ? `${s.message} ` : "") + sentence;
    table.setAttribute("aria-label", `Next token after “${now.text}”`);
  };
  model.on("change:state", draw);
  draw();
}

export default { render };
