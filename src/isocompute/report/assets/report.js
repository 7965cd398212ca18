"use strict";
// The page's own script. Data come from the JSON block; every text of a user is set by
// textContent and never given to Plotly, which reads mark-up in its texts.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const root = document.documentElement;
  const $ = (selector, from = document) => from.querySelector(selector);
  const $$ = (selector, from = document) => [...from.querySelectorAll(selector)];
  const severalB = data.several;
  const keyOf = (bp, n) => (severalB ? `${bp}|${n}` : `${n}`);
  const series = new Map(data.series.map((s) => [keyOf(s.bp, s.n), s]));
  const state = { hidden: new Set(), hiddenRuns: new Set(), scale: "log", theme: "light", choice: "auto", step: -1, lit: null, paper: false };
  const darkQuery = matchMedia("(prefers-color-scheme: dark)");
  const narrow = () => innerWidth < 640;

  // ---- words -------------------------------------------------------------------------------
  function count(value) {
    if (value === null || value === undefined || !Number.isFinite(value)) return "–";
    for (const [size, letter] of [[1e12, "T"], [1e9, "B"], [1e6, "M"], [1e4, "k"]]) {
      if (Math.abs(value) >= size * 0.9995) {
        const unit = letter === "k" ? 1e3 : size;
        return Number((value / unit).toPrecision(3)) + letter;
      }
    }
    return Math.abs(value) >= 10 ? Math.round(value).toLocaleString("en") : String(+value.toPrecision(2));
  }
  const score = (value) => (Number.isFinite(value) ? value.toFixed(3) : "–");
  const percent = (p) => (p > 0.99 && p < 1 ? ">99%" : p > 0 && p < 0.01 ? "<1%" : `${Math.round(100 * p)}%`);
  const chance = (p) => percent(Math.min(p, 0.9999)); // all of some hundred draws are no certainty
  const name = (bp, n) => (severalB ? `B\u209A=${bp}, n=${n}` : `n=${n}`);

  // ---- looks -------------------------------------------------------------------------------
  const css = (token) => getComputedStyle(root).getPropertyValue(token).trim();
  let look = {};
  function readLook() {
    look = {};
    for (const token of ["paper", "sheet", "ink", "muted", "rule", "accent", "accent-soft", "accent-faint", "hatch"]) {
      look[token] = css(`--${token}`);
    }
  }
  const color = (s) => s[state.theme];
  function fade(hex, alpha) {
    const [r, g, b] = [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
    return `rgba(${r},${g},${b},${alpha})`;
  }
  const styleOf = (bp, n) => series.get(keyOf(bp, n));
  const shown = (bp, n) => !state.hidden.has(keyOf(bp, n));

  // ---- axes --------------------------------------------------------------------------------
  function budgetTicks(lo, hi) {
    const decades = Math.log10(hi / lo);
    const room = narrow() ? 4 : 8;
    const fine = decades < 0.8 ? [1, 1.5, 2, 3, 4, 5, 7] : [1, 2, 5];
    const steps = decades * 3 <= room ? fine : decades * 2 <= room ? [1, 3] : [1];
    const ticks = [];
    for (let e = Math.floor(Math.log10(lo)); e <= Math.ceil(Math.log10(hi)); e++) {
      for (const m of steps) ticks.push(m * 10 ** e);
    }
    return ticks.filter((t) => t >= lo * 0.999 && t <= hi * 1.001);
  }
  function budgetAxis(lo, hi, title) {
    const log = state.scale === "log" && lo > 0;
    const axis = { ...base(), title: { text: title, standoff: 10 }, type: log ? "log" : "linear" };
    if (log) {
      const ticks = budgetTicks(lo, hi);
      axis.range = [Math.log10(lo), Math.log10(hi)];
      if (ticks.length > 1) Object.assign(axis, { tickvals: ticks, ticktext: ticks.map(count) });
    } else {
      const span = hi - (log ? lo : 0);
      const raw = span / (narrow() ? 4 : 7);
      const unit = 10 ** Math.floor(Math.log10(raw));
      const step = [1, 2, 5, 10].map((m) => m * unit).find((s) => s >= raw);
      const ticks = Array.from({ length: Math.floor(hi / step) + 1 }, (_, i) => i * step);
      Object.assign(axis, { range: [0, hi], tickvals: ticks, ticktext: ticks.map(count) });
    }
    return axis;
  }
  function base() {
    return {
      gridcolor: look.rule, linecolor: look.muted, zeroline: false, color: look.muted, ticks: "",
      tickfont: { color: look.ink, size: narrow() ? 11 : 12 }, title: { font: { color: look.muted } },
      automargin: false, showspikes: false,
    };
  }
  function octaveAxis(low, high, title) {
    const ticks = [];
    for (let e = Math.floor(Math.log2(low)); e <= Math.ceil(Math.log2(high)); e++) ticks.push(2 ** e);
    return {
      ...base(), type: "log", title: { text: title, standoff: 8 }, tickvals: ticks,
      ticktext: ticks.map(String), range: [Math.log10(low / 1.35), Math.log10(high * 1.35)],
    };
  }
  function layoutOf(x, y, more = {}) {
    return {
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", showlegend: false, hovermode: "closest",
      font: { family: getComputedStyle(document.body).fontFamily, size: narrow() ? 11 : 13, color: look.ink },
      margin: { l: narrow() ? 52 : 64, r: narrow() ? (severalB ? 62 : 46) : severalB ? 88 : 64, t: 12, b: 46 }, xaxis: x, yaxis: y,
      dragmode: matchMedia("(pointer: coarse)").matches ? false : "zoom", hoverdistance: 30, ...more,
    };
  }
  // Labels at the lines' ends, pushed apart so that none covers another.
  function endLabels(all, lo, hi, height) {
    let items = all.filter((i) => Number.isFinite(i.y));
    if (items.length > 12) { // colour follows n: one label per n, at the middle of its lines
      const groups = new Map();
      for (const item of items) groups.set(item.s.n, [...(groups.get(item.s.n) || []), item]);
      items = [...groups.values()].map((g) => ({ ...g[0], text: `n=${g[0].s.n}`, y: g.reduce((sum, i) => sum + i.y, 0) / g.length }));
    }
    const gap = ((hi - lo) * (narrow() ? 14 : 16)) / height;
    const sorted = items.sort((a, b) => a.y - b.y);
    for (let pass = 0; pass < 60; pass++) {
      for (let i = 1; i < sorted.length; i++) {
        const overlap = gap - (sorted[i].y - sorted[i - 1].y);
        if (overlap > 1e-12) { sorted[i].y += overlap / 2; sorted[i - 1].y -= overlap / 2; }
      }
    }
    for (let i = sorted.length - 1, top = hi; i >= 0; i--, top -= gap) sorted[i].y = Math.min(sorted[i].y, top);
    for (let i = 0, bottom = lo; i < sorted.length; i++, bottom += gap) sorted[i].y = Math.max(sorted[i].y, bottom);
    return sorted;
  }
  const labelTrace = (key, x, y, text, c) => ({
    x: [x], y: [y], mode: "text", text: [` ${text}`], textposition: "middle right", cliponaxis: false,
    textfont: { color: c, size: narrow() ? 11 : 12.5, weight: 600 }, hoverinfo: "skip", meta: { key },
  });
  // The plan is the first fit's: its budget is marked there and nowhere else.
  const planned = (fit) => (fit === data.fits[0] && data.plan && data.plan.at) || null;
  function budgetLine(fit, lo, hi, scale = 1) {
    const budget = planned(fit) / scale;
    if (!budget || budget < lo || budget > hi) return { shapes: [], annotations: [] };
    const x = state.scale === "log" ? Math.log10(budget) : budget;
    return {
      shapes: [{ type: "line", x0: budget, x1: budget, yref: "paper", y0: 0, y1: 1, layer: "below",
        line: { color: look.accent, width: 1.5, dash: "2px,3px" } }],
      annotations: [{ x, y: 0.01, yref: "paper", yanchor: "bottom", xanchor: "right", showarrow: false,
        text: `budget ${count(budget)} `, font: { color: look.accent, size: 12 }, bgcolor: look.paper }],
    };
  }

  // The same, with a line where all were last compared: what is right of it leads to the plan.
  function beyondLine(fit, lo, hi) {
    const drawn = budgetLine(fit, lo, hi), end = fit.document.support[1];
    if (end < hi * 0.999) drawn.shapes.push({ type: "line", x0: end, x1: end, yref: "paper", y0: 0, y1: 1, line: { color: look.ink, width: 1.2, dash: "5px,4px" } });
    return drawn;
  }

  // ---- figures: each returns { traces, layout, note } or null where there is no data ------------
  // A fitted curve from its configuration's first evaluation on, as [{ x, score, interval, extrapolated }].
  function lineOf(fit, row) {
    const own = fit.runs.filter((r) => r.bp === row.problems_per_batch && r.n === row.rollouts_per_problem).flatMap((r) => r.x);
    return row.at.filter((p) => p.x >= minmax(own)[0] * 0.999);
  }
  // The score of such a line at x, and its part between two budgets.
  function scoreAt(line, x) {
    const i = line.findIndex((p) => p.x >= x);
    if (i <= 0) return line[i < 0 ? line.length - 1 : 0].score;
    const [a, b] = [line[i - 1], line[i]], share = Math.log(x / a.x) / Math.log(b.x / a.x);
    return a.score + share * (b.score - a.score);
  }
  function part(line, from, to) {
    const lo = Math.max(from, line[0].x), hi = Math.min(to, line[line.length - 1].x);
    if (!(lo < hi)) return [];
    const inner = line.filter((p) => p.x > lo && p.x < hi).map((p) => [p.x, p.score]);
    return [[lo, scoreAt(line, lo)], ...inner, [hi, scoreAt(line, hi)]];
  }
  // A band between the ends of intervals; an open end lies at the edge given for it.
  function band(x, ends, alpha, edges = [NaN, NaN]) {
    const at = (i, side) => (ends[i] && Number.isFinite(ends[i][side]) ? ends[i][side] : edges[side]);
    const index = x.map((_, i) => i), back = [...index].reverse();
    return { x: [...x, ...back.map((i) => x[i])], y: [...index.map((i) => at(i, 1)), ...back.map((i) => at(i, 0))],
      fill: "toself", fillcolor: alpha, mode: "lines", line: { width: 0 }, hoverinfo: "skip", meta: {} };
  }
  // n of a law at x of its own variable.
  function lawAt(law, x) {
    if (!Number.isFinite(law.k) || !Number.isFinite(law.x0)) return 2 ** law.b;
    const u = law.form === "sigmoid_log10" ? Math.log10(x) : x;
    return 2 ** (law.b + law.L / (1 + Math.exp(-law.k * (u - law.x0))));
  }
  const spread = (lo, hi, k) => Array.from({ length: k }, (_, i) => lo * (hi / lo) ** (i / (k - 1)));
  const unitSaid = (unit) => ({ "gpu-hours": "GPU-hours" }[unit] || unit); // beside a number
  const unitOf = (doc) => ({ tokens: "generated tokens", rollouts: "training rollouts", "gpu-hours": "GPU-hours" }[doc.unit] || "budget");

  function curvesFigure(fit, height) {
    const doc = fit.document;
    const xs = fit.runs.flatMap((r) => r.x), ys = fit.runs.flatMap((r) => r.y).filter(Number.isFinite);
    if (!xs.length) return null;
    const lo = Math.min(...minmax(xs)) / 1.06, hi = minmax(xs)[1] * 1.06;
    const [yMin, yMax] = minmax(ys), pad = 0.05 * (yMax - yMin || 0.1);
    const range = [yMin - pad, yMax + pad];
    const total = xs.length, dots = total <= 2500;
    const traces = [], labels = [], lines = new Map(doc.curves.map((r) => [keyOf(r.problems_per_batch, r.rollouts_per_problem), lineOf(fit, r)]));
    for (const stretch of doc.frontier) {
      const key = keyOf(stretch.problems_per_batch, stretch.rollouts_per_problem), s = series.get(key), line = lines.get(key);
      if (!s || !line || !line.length || !shown(s.bp, s.n)) continue;
      const points = part(line, stretch.from, stretch.to);
      if (!points.length) continue;
      traces.push({ x: points.map((p) => p[0]), y: points.map((p) => p[1]), mode: "lines", hoverinfo: "skip",
        line: { color: fade(color(s), stretch.extrapolated ? 0.12 : 0.26), width: narrow() ? 9 : 13 }, meta: { key, under: true } });
    }
    // One trace per configuration: its runs follow each other with a gap between.
    for (const [key, s] of series) {
      const mine = fit.runs.filter((r) => keyOf(r.bp, r.n) === key && !state.hiddenRuns.has(r));
      if (!mine.length || !shown(s.bp, s.n)) continue;
      const owner = mine.flatMap((r) => [...r.x.map(() => r), null]);
      const x = mine.flatMap((r) => [...r.x, null]), y = mine.flatMap((r) => [...r.y, null]);
      traces.push({ x, y, mode: dots ? "markers" : "lines", hoverinfo: "none", connectgaps: false,
        marker: { color: color(s), size: 3.5, opacity: 0.3 }, line: { color: fade(color(s), 0.13), width: 1, simplify: true },
        meta: { key, say: (i) => owner[i] && `${name(s.bp, s.n)} · ${owner[i].run} · ${count(x[i])} ${unitSaid(doc.unit)} · score ${score(y[i])}` } });
    }
    for (const [key, line] of lines) {
      const s = series.get(key);
      if (!s || !shown(s.bp, s.n) || !line.length) continue;
      const known = line.filter((p) => !p.extrapolated), beyond = line.slice(Math.max(known.length - 1, 0));
      traces.push({ ...band(line.map((p) => p.x), line.map((p) => p.interval), fade(color(s), lines.size > 8 ? 0.05 : 0.1)), meta: { key } });
      const say = (points) => (i) => `${name(s.bp, s.n)} at ${count(points[i].x)} ${unitSaid(doc.unit)}: ${score(points[i].score)} (${score(points[i].interval[0])} to ${score(points[i].interval[1])})${points[i].extrapolated ? ", beyond its data" : ""}`;
      for (const [points, dash, width] of [[known, s.dash, 2.2], [beyond, "1px,4px", 1.7]]) {
        if (points.length > 1) traces.push({ x: points.map((p) => p.x), y: points.map((p) => p.score), mode: "lines", hoverinfo: "none",
          line: { color: color(s), width, dash }, meta: { key, fit: true, say: say(points) } });
      }
      labels.push({ key, s, y: line[line.length - 1].score });
    }
    const right = hi;
    for (const l of endLabels(labels, range[0], range[1], height - 58)) traces.push(labelTrace(l.key, right, l.y, l.text || l.s.label, color(l.s)));
    const thin = fit.thinned;
    return {
      traces,
      layout: layoutOf(budgetAxis(lo, hi, unitOf(doc)), { ...base(), title: { text: "validation score", standoff: 8 }, range }, budgetLine(fit, lo, hi)),
      note: thin.dropped ? `${thin.dropped.toLocaleString("en")} of ${(thin.dropped + thin.drawn).toLocaleString("en")} evaluations are not drawn: they share a column of pixels with others, and its lowest and highest stay.` : "",
    };
  }

  function minmax(values) {
    let lo = Infinity, hi = -Infinity;
    for (const v of values) { if (v < lo) lo = v; if (v > hi) hi = v; }
    return [lo, hi];
  }

  // A fixed batch has its law in update steps; the frontier then moves from rollouts to steps.
  const perStep = (doc) => (doc.law && doc.law.variable === "steps" && doc.setting.value ? doc.setting.value : 1);

  // Rows { x, value, interval, extrapolated } in the law's own variable: the best n, or the best B_p of a fixed batch.
  function bestRows(doc, of) {
    if (of === "bp") return ((doc.law_problems_per_batch || {}).at || []).map((r) => ({ ...r, value: r.problems_per_batch }));
    return doc.best.map((r) => ({ ...r, x: r.x / perStep(doc), value: r.rollouts_per_problem }));
  }
  function bestTraces(at, low, high, symbol, variable) {
    const xs = at.map((r) => r.x), edges = [low / 1.3, high * 1.3];
    const inside = at.filter((r) => !r.extrapolated);
    const say = (rows) => (i) => `best ${symbol} = ${count(rows[i].value)} at ${count(rows[i].x)} ${unitSaid(variable)}` +
      (rows[i].interval ? `; interval ${count(rows[i].interval[0])} to ${count(rows[i].interval[1])}` : "") +
      (rows[i].confidence_set && rows[i].confidence_set.length ? `; in contention: ${rows[i].confidence_set.join(", ")}` : "") +
      (rows[i].extrapolated ? "; extrapolated" : "");
    return {
      under: [band(xs, at.map((r) => r.interval), look["accent-faint"], edges),
        band(inside.map((r) => r.x), inside.map((r) => r.interval), look["accent-soft"], edges)],
      over: [
        { x: xs, y: at.map((r) => r.value), mode: "lines", hoverinfo: "none", line: { color: look.accent, width: 2, dash: "2px,4px" }, meta: { say: say(at) } },
        { x: inside.map((r) => r.x), y: inside.map((r) => r.value), mode: "lines", hoverinfo: "none", line: { color: look.accent, width: 3 }, meta: { say: say(inside) } }],
    };
  }
  const unitNames = { rollouts: "training rollouts", tokens: "generated tokens", steps: "update steps", "gpu-hours": "GPU-hours" };

  function lawFigure(fit, others, of = "n") {
    const doc = fit.document, law = of === "n" ? doc.law : doc.law_problems_per_batch;
    const field = of === "n" ? "rollouts_per_problem" : "problems_per_batch", symbol = of === "n" ? "n" : "B\u209A";
    const at = bestRows(doc, of);
    if (!law || at.length < 2) return null;
    const scale = perStep(doc);
    const parts = doc.frontier.filter((p) => p.to > p.from);
    const [nLow, nHigh] = minmax([...doc.curves.map((r) => r[field]), ...at.map((r) => r.value)].filter(Number.isFinite));
    const support = doc.support.map((x) => x / scale);
    let lo = at[0].x, hi = at[at.length - 1].x;
    const budget = planned(fit) / scale;
    if (budget > hi) hi = budget;
    lo /= 1.08; hi *= 1.08;
    const clip = (n, edge) => Math.min(Math.max(Number.isFinite(n) ? n : edge, nLow / 1.3), nHigh * 1.3);
    const best = bestTraces(at, nLow, nHigh, symbol, law.variable), traces = best.under;
    const allowed = at.flatMap((r) => (r.confidence_set || []).map((n) => [r.x, n]));
    traces.push({ x: allowed.map((p) => p[0]), y: allowed.map((p) => p[1]), mode: "markers", hoverinfo: "skip",
      marker: { symbol: "square", size: 4.5, color: fade(look.muted, 0.5) }, meta: {} });
    for (const part of parts) {
      const s = styleOf(part.problems_per_batch, part.rollouts_per_problem);
      if (!s || !shown(s.bp, s.n)) continue;
      const x = spread(part.from / scale, part.to / scale, 12);
      const p = part.probability_best;
      traces.push({ x, y: x.map(() => s[of]), mode: "lines", hoverinfo: "none",
        line: { color: fade(color(s), (Number.isFinite(p) ? 0.25 + 0.75 * p : 0.8) * (part.extrapolated ? 0.45 : 1)), width: narrow() ? 7 : 9 },
        meta: { key: keyOf(s.bp, s.n), say: () => `${name(s.bp, s.n)} leads from ${count(part.from / scale)} to ${count(part.to / scale)}${Number.isFinite(p) ? `; probability ${chance(p)}` : ""}${part.extrapolated ? "; extrapolated" : ""}` } });
    }
    // Where B_p differs too, each bar says which pair leads, once and above its start: there the
    // path of the best n is still below the bar.
    if (severalB && !narrow()) {
      const said = new Set();
      for (const part of [...parts].sort((a, b) => Number(!!a.extrapolated) - Number(!!b.extrapolated))) {
        const s = styleOf(part.problems_per_batch, part.rollouts_per_problem);
        if (!s || !shown(s.bp, s.n) || said.has(s.label) || Math.log(part.to / part.from) < 0.12 * Math.log(hi / lo)) continue;
        said.add(s.label);
        traces.push({ x: [part.from / scale], y: [s[of] * 1.04], mode: "text", text: [s.label], textposition: "top right", hoverinfo: "skip",
          textfont: { color: color(s), size: 12, weight: 600 }, meta: { key: keyOf(s.bp, s.n) } });
      }
    }
    for (const c of of === "n" ? doc.crossovers || [] : []) {
      if (!c.at || !c.interval) continue;
      // An end that the data do not bound is a short stub with an arrow.
      const y = Math.sqrt(c.from_rollouts_per_problem * c.to_rollouts_per_problem), middle = c.at / scale;
      const bound = c.interval.map(Number.isFinite);
      const [a, b] = c.interval.map((v, i) => (bound[i] ? v / scale : middle * (hi / lo) ** (i ? 0.035 : -0.035)));
      traces.push({ x: [a, middle, b], y: [y, y, y], mode: "lines+markers", hoverinfo: "none",
        line: { color: look.muted, width: 1.3 }, marker: { symbol: [bound[0] ? "line-ns" : "triangle-left", "diamond", bound[1] ? "line-ns" : "triangle-right"], size: [8, 6, 8], color: look.muted, line: { color: look.muted, width: 1.3 } },
        meta: { say: () => `n=${c.to_rollouts_per_problem} overtakes n=${c.from_rollouts_per_problem} at ${count(middle)} (${bound[0] ? count(a) : "not bounded"} to ${bound[1] ? count(b) : "not bounded"})` } });
    }
    const dashes = ["7px,4px", "2px,3px", "9px,3px,2px,3px"], sameKind = [];
    if (of === "n" && law.L) { // fitted inside what was compared, and drawn nowhere else
      const inside = at.filter((r) => !r.extrapolated), line = { color: look.accent, width: 1.3, dash: "12px,4px" };
      sameKind.push({ name: "the paper\u2019s sigmoid", dash: line.dash, color: line.color });
      traces.push({ x: inside.map((r) => r.x), y: inside.map((r) => lawAt(law, r.x)), mode: "lines", hoverinfo: "none", line,
        meta: { say: (j) => `the sigmoid: n = ${count(lawAt(law, inside[j].x))} at ${count(inside[j].x)}` } });
    }
    others.forEach((other, i) => {
      if ((other.document.law || {}).variable !== law.variable) return;
      const keep = bestRows(other.document, of).filter((r) => r.x >= lo && r.x <= hi && Number.isFinite(r.value) && !r.extrapolated);
      if (!keep.length) return;
      sameKind.push({ name: `best ${symbol} of ${other.name}`, dash: dashes[i % 3] });
      traces.push({ x: keep.map((r) => r.x), y: keep.map((r) => r.value), mode: "lines", hoverinfo: "none",
        line: { color: look.ink, width: 1.6, dash: dashes[i % 3] },
        meta: { say: (j) => `${other.name}: best ${symbol} = ${count(keep[j].value)} at ${count(keep[j].x)}` } });
    });
    traces.push(...best.over);
    const extras = budgetLine(fit, lo, hi, scale);
    for (const [a, b] of [[state.scale === "log" ? lo : 0, support[0]], [support[1], hi]]) {
      if (b > a * 1.001) extras.shapes.push({ type: "rect", x0: a, x1: b, yref: "paper", y0: 0, y1: 1, fillcolor: look.hatch, line: { width: 0 }, layer: "below" });
    }
    if (of === "n" && budget && data.plan.rollouts_per_problem && budget >= lo && budget <= hi) {
      const wide = data.plan.rollouts_per_problem_interval;
      if (wide && wide.every(Number.isFinite)) {
        traces.push({ x: [budget, budget], y: wide.map((v) => clip(v, nHigh)), mode: "lines+markers", hoverinfo: "none", cliponaxis: false,
          line: { color: look.accent, width: 2 }, marker: { symbol: "line-ew", size: 14, color: look.accent, line: { color: look.accent, width: 2 } },
          meta: { say: () => `the best n at the budget of the plan: between ${count(wide[0])} and ${count(wide[1])}` } });
      }
      traces.push({ x: [budget], y: [data.plan.rollouts_per_problem], mode: "markers", hoverinfo: "none", cliponaxis: false,
        marker: { symbol: "circle", size: 15, color: look.paper, line: { color: look.accent, width: 4 } },
        meta: { say: () => `the prescription: n=${data.plan.rollouts_per_problem} for ${count(budget)} ${unitSaid(law.variable)}` } });
    }
    const unit = unitNames[law.variable] || "budget";
    return { traces, layout: layoutOf(budgetAxis(lo, hi, unit), octaveAxis(nLow, nHigh, of === "n" ? "rollouts per problem, n" : "problems per batch, B\u209A"), extras), named: sameKind };
  }

  function probabilityFigure(fit) {
    const doc = fit.document, full = doc.probabilities, traces = [];
    const y = { ...base(), title: { text: "probability of being best", standoff: 8 }, range: [0, 1.0], tickformat: ".0%" };
    if (full && full.x && full.x.length > 1) {
      const lo = full.x[0], hi = full.x[full.x.length - 1], named = [], mids = [];
      const scaled = (v) => (state.scale === "log" ? Math.log(v) : v);
      const below = full.x.map(() => 0);
      full.configurations.forEach(([bp, n], i) => {
        const s = styleOf(bp, n);
        if (!s || !shown(bp, n)) return;
        const p = full.best[i].map((v) => v || 0);
        if (Math.max(...p) < 0.005) return;
        // In the middle of where it stands at least half as high as anywhere.
        const most = Math.max(...p), high = p.flatMap((v, j) => (v >= most / 2 ? [scaled(full.x[j])] : []));
        const middle = (high[0] + high[high.length - 1]) / 2;
        let widest = 0;
        p.forEach((v, j) => { if (Math.abs(scaled(full.x[j]) - middle) < Math.abs(scaled(full.x[widest]) - middle)) widest = j; });
        const edge = (scaled(full.x[widest]) - scaled(lo)) / (scaled(hi) - scaled(lo));
        // A character takes so much of the width; plotly's "middle left" stands left of its point.
        const wide = s.label.length * (narrow() ? 0.028 : 0.009);
        const side = edge + wide / 2 > 1 ? "left" : edge < wide / 2 ? "right" : "center";
        const from = edge - wide * { left: 1, center: 0.5, right: 0 }[side];
        if (p[widest] > 0.22) named.push({ s, x: full.x[widest], y: below[widest] + p[widest] / 2, side, from, to: from + wide });
        const top = p.map((v, j) => (below[j] += v));
        traces.push({ x: full.x, y: p, stackgroup: "p", mode: "lines", hoverinfo: "none", hoveron: "points",
          line: { color: look.paper, width: 1.2 }, fillcolor: color(s),
          meta: { key: keyOf(bp, n), say: (j) => `${name(bp, n)} is best at ${count(full.x[j])} with probability ${chance(p[j])}`, top } });
      });
      for (const label of named.reverse()) { // where two would touch, the larger n keeps its name
        const free = mids.every((m) => m.to < label.from || label.to < m.from || Math.abs(m.y - label.y) > 0.09);
        if (free) mids.push(label);
      }
      for (const m of mids) {
        traces.push({ x: [m.x], y: [m.y], mode: "text", text: [` ${m.s.label} `], textposition: `middle ${m.side}`, hoverinfo: "skip",
          textfont: { color: look.paper, size: 12.5, weight: 600 }, meta: { key: keyOf(m.s.bp, m.s.n) } });
      }
      if (!traces.length) return null;
      return { traces, layout: layoutOf(budgetAxis(lo, hi, unitOf(doc)), y, beyondLine(fit, lo, hi)) };
    }
    return null;
  }

  // What each configuration loses against the true best; down is worse.
  function lossFigure(fit, height) {
    const doc = fit.document, full = doc.probabilities;
    if (!full || !full.x || full.x.length < 2) return null;
    const lo = full.x[0], hi = full.x[full.x.length - 1], traces = [], labels = [];
    full.configurations.forEach(([bp, n], i) => {
      const s = styleOf(bp, n), y = full.regret[i], key = keyOf(bp, n);
      if (!s || !shown(bp, n)) return;
      traces.push({ x: full.x, y, mode: "lines", hoverinfo: "none", line: { color: color(s), width: 2, dash: s.dash },
        meta: { key, say: (j) => `${name(bp, n)} at ${count(full.x[j])} ${unitSaid(doc.unit)}: expected loss ${score(y[j])}` } });
      labels.push({ key, s, y: -y[y.length - 1] });
    });
    if (!traces.length) return null;
    const worst = Math.max(...traces.flatMap((t) => t.y)) * 1.04 || 0.01;
    for (const l of endLabels(labels, -worst, 0, height - 58)) traces.push(labelTrace(l.key, hi, -l.y, l.text || l.s.label, color(l.s)));
    return { traces, layout: layoutOf(budgetAxis(lo, hi, unitOf(doc)), { ...base(), title: { text: "expected loss of score", standoff: 8 }, range: [worst, 0] }, beyondLine(fit, lo, hi)) };
  }

  // The plane of (B_p, n): every tested pair, and the path of the best one.
  function directionFigure(fit) {
    const doc = fit.document, rows = doc.best.filter((r) => !r.extrapolated);
    const bs = doc.curves.map((r) => r.problems_per_batch), ns = doc.curves.map((r) => r.rollouts_per_problem);
    const [bLow, bHigh] = minmax(bs), [nLow, nHigh] = minmax(ns);
    const ends = [bLow / 1.5, bHigh * 1.5], traces = [];
    for (const batch of new Set(bs.map((b, i) => b * ns[i]))) {
      traces.push({ x: ends, y: ends.map((b) => batch / b), mode: "lines", hoverinfo: "skip", line: { color: look.muted, width: 0.8, dash: "1px,4px" }, meta: {} });
    }
    traces.push({ x: bs, y: ns, mode: "markers", hoverinfo: "none", marker: { symbol: "circle-open", size: 10, color: look.muted, line: { width: 1.5 } },
      meta: { say: (i) => `tested: B\u209A=${bs[i]}, n=${ns[i]}, batch ${count(bs[i] * ns[i])}` } });
    const path = [];
    for (const row of rows) {
      const pair = [row.problems_per_batch, row.tested_rollouts_per_problem], last = path[path.length - 1];
      if (last && last.pair[0] === pair[0] && last.pair[1] === pair[1]) last.to = row.x; else path.push({ pair, from: row.x, to: row.x });
    }
    const words = (p) => (p.to > p.from ? `${count(p.from)} to ${count(p.to)}` : count(p.from)), named = new Set();
    traces.push({ x: path.map((p) => p.pair[0]), y: path.map((p) => p.pair[1]), mode: "lines+markers+text", hoverinfo: "none",
      line: { color: look.accent, width: 2.2 }, marker: { size: 12, color: path.map((p) => color(styleOf(...p.pair))) },
      text: path.map((p) => { const seen = named.has(String(p.pair)); named.add(String(p.pair)); return seen ? "" : `  ${words(p)}`; }),
      textposition: "middle right", cliponaxis: false, textfont: { color: look.ink, size: 12 },
      meta: { say: (i) => `best at ${words(path[i])} ${unitSaid(doc.unit)}: B\u209A=${path[i].pair[0]}, n=${path[i].pair[1]}` } });
    const x = octaveAxis(bLow, bHigh, "problems per batch, B\u209A");
    x.range = [Math.log10(ends[0]), Math.log10(ends[1] * 1.4)];
    return { traces, layout: layoutOf(x, octaveAxis(nLow, nHigh, "rollouts per problem, n")) };
  }

  function backtestFigure(fit) {
    const doc = fit.document, rows = (doc.backtest || {}).rows;
    return rows && rows.length ? backtestRows(doc, rows) : null;
  }
  function backtestRows(doc, rows) {
    const [lo, hi] = minmax(rows.map((r) => r.x)), traces = [];
    const aside = 0.009, edge = 1.1 * 10 ** ((aside * series.size) / 2);
    for (const [key, s] of series) {
      const mine = rows.filter((r) => keyOf(r.problems_per_batch, r.rollouts_per_problem) === key && Number.isFinite(r.observed));
      if (!mine.length || !shown(s.bp, s.n)) continue;
      // Evaluations share their budgets: neighbours stand a little apart, the readout has the true one.
      const index = [...series.keys()].indexOf(key) - (series.size - 1) / 2, x = mine.map((r) => r.x * 10 ** (index * aside));
      const gap = (r, field) => (Number.isFinite(r[field]) ? r[field] - r.observed : null);
      const say = (field, words) => (i) => `${name(s.bp, s.n)} at ${count(mine[i].x)}, seen until ${count(mine[i].cut)}: ${words} ${score(mine[i][field])}, was ${score(mine[i].observed)}`;
      traces.push({ x, y: mine.map((r) => gap(r, "best_so_far")), mode: "markers", hoverinfo: "none",
        marker: { symbol: `${s.symbol}-open`, size: 6, color: color(s), opacity: 0.55 }, meta: { key, say: say("best_so_far", "no change") } });
      traces.push({ x, y: mine.map((r) => gap(r, "predicted")), mode: "markers", hoverinfo: "none",
        error_y: { type: "data", symmetric: false, color: fade(color(s), 0.4), thickness: 1, width: 0,
          array: mine.map((r) => (r.interval ? r.interval[1] - r.predicted : 0)), arrayminus: mine.map((r) => (r.interval ? r.predicted - r.interval[0] : 0)) },
        marker: { symbol: s.symbol, size: 7.5, color: color(s), line: { color: look.paper, width: 1 } }, meta: { key, say: say("predicted", "predicted") } });
    }
    if (!traces.length) return null;
    const zero = { type: "line", xref: "paper", x0: 0, x1: 1, y0: 0, y1: 0, line: { color: look.ink, width: 1.2 }, layer: "below" };
    return { traces, layout: layoutOf(budgetAxis(lo / edge, hi * edge, unitOf(doc.backtest)), { ...base(), nticks: 5, title: { text: "predicted − observed", standoff: 8 } }, { shapes: [zero] }) };
  }

  // Our best n, and the law of the published pipeline for three widths of its bins.
  function paperFigure(fit) {
    const doc = fit.document, scale = perStep(doc), paper = doc.paper || {}, at = bestRows(doc, "n");
    const laws = [paper, ...(paper.by_bin_width || [])].filter((p) => p.law);
    if (!laws.length || at.length < 2) return null;
    const xs = at.map((r) => r.x), [low, high] = minmax(doc.curves.map((r) => r.rollouts_per_problem));
    const lines = laws.map((p, i) => ({ name: `the paper\u2019s method, bins of ${p.bin_width}`, at: (x) => lawAt(p.law, x * scale), color: look.ink, width: 1.4, dash: ["6px,3px", "2px,3px", "9px,3px,2px,3px"][i % 3] }));
    if (fit.printed && scale === 1) lines.push({ name: "as the study printed it", at: (x) => lawAt(fit.printed, x), color: look.muted, width: 2.6, dash: "solid" });
    const best = bestTraces(at, low, high, "n", (doc.law || {}).variable || doc.unit), traces = [...best.under, ...best.over];
    for (const l of lines) {
      traces.push({ x: xs, y: xs.map(l.at), mode: "lines", hoverinfo: "none", line: { color: l.color, width: l.width, dash: l.dash },
        meta: { say: (j) => `${l.name}: n = ${count(l.at(xs[j]))} at ${count(xs[j])}` } });
    }
    return { traces, named: lines, layout: layoutOf(budgetAxis(xs[0] / 1.04, xs[xs.length - 1] * 1.04, unitNames[(doc.law || {}).variable] || "budget"), octaveAxis(low, high, "rollouts per problem, n")) };
  }

  function scoresFigure() {
    const metrics = Object.entries(data.study.scores), traces = [];
    const pairs = new Set(metrics.flatMap(([, rows]) => rows.map((r) => r.bp))).size > 1;
    metrics.forEach(([metric, rows], i) => {
      for (const bp of [...new Set(rows.map((r) => r.bp))].sort((a, b) => a - b)) {
        const mine = rows.filter((r) => r.bp === bp && shown(r.bp, r.n)).sort((a, b) => a.n - b.n);
        if (!mine.length) continue;
        const best = mine.reduce((a, b) => (b.value > a.value ? b : a));
        traces.push({ type: "bar", x: mine.map((r) => (pairs ? `${r.bp} × ${r.n}` : String(r.n))), y: mine.map((r) => r.value), hoverinfo: "none",
          xaxis: `x${i ? i + 1 : ""}`, yaxis: `y${i ? i + 1 : ""}`,
          marker: { color: mine.map((r) => color(styleOf(r.bp, r.n))), line: { color: mine.map((r) => (r === best ? look.ink : look.paper)), width: mine.map((r) => (r === best ? 3 : 0)) } },
          error_y: { type: "data", symmetric: false, color: look.muted, thickness: 1.3, width: 3,
            array: mine.map((r) => (r.interval ? r.interval[1] - r.value : 0)), arrayminus: mine.map((r) => (r.interval ? r.value - r.interval[0] : 0)) },
          meta: { say: (j) => `${metric} · ${name(mine[j].bp, mine[j].n)}: ${score(mine[j].value)}${mine[j].interval ? ` (${score(mine[j].interval[0])} to ${score(mine[j].interval[1])})` : ""}${mine[j] === best ? " · best" : ""}`, keys: mine.map((r) => keyOf(r.bp, r.n)) } });
      }
    });
    if (!traces.length) return null;
    const layout = layoutOf({}, {}, { barmode: "group", bargap: 0.25, annotations: [] });
    const columns = narrow() ? 1 : metrics.length, rowsCount = Math.ceil(metrics.length / columns);
    metrics.forEach(([metric], i) => {
      const c = i % columns, r = Math.floor(i / columns), w = 1 / columns, h = 1 / rowsCount;
      const suffix = i ? i + 1 : "";
      const top = 1 - r * h - (rowsCount > 1 ? 0.06 : 0), domainX = [c * w + (c ? 0.05 : 0), (c + 1) * w - (c < columns - 1 ? 0.02 : 0)];
      layout[`xaxis${suffix}`] = { ...base(), domain: domainX, type: "category", anchor: `y${suffix}`, title: { text: pairs ? "B\u209A × n" : state.paper || innerWidth < 1000 ? "n" : "rollouts per problem, n", standoff: 6 }, showgrid: false };
      layout[`yaxis${suffix}`] = { ...base(), domain: [1 - (r + 1) * h + (rowsCount > 1 ? 0.12 : 0), top - 0.06], anchor: `x${suffix}`, rangemode: "tozero", nticks: 5 };
      layout.annotations.push({ x: domainX[0], y: top, xref: "paper", yref: "paper", xanchor: "left", yanchor: "middle", showarrow: false, text: safe(metric), font: { size: 13, color: look.ink } });
    });
    layout.margin.t = 18;
    return { traces, layout, note: "Outlined: the best of each panel. Whiskers: 95% interval over seeds, where there are three or more." };
  }
  // The few texts that must stand inside a drawing keep only letters that mark-up cannot use.
  const safe = (text) => String(text).replace(/[^\w@ .,:%()+=-]/g, "?").slice(0, 60);

  function landscapeFigure() {
    const all = data.study.landscapes;
    if (!all.length) return null;
    const step = state.step < 0 ? all.length - 1 : state.step, view = all[step], traces = [];
    let top = 0;
    for (const group of all.flatMap((v) => v.groups)) top = Math.max(top, ...group.counts.map((c) => c / group.problems));
    const groups = [...view.groups].sort((a, b) => a.n - b.n || a.bp - b.bp).filter((g) => shown(g.bp, g.n) && styleOf(g.bp, g.n));
    for (const g of groups) {
      const s = styleOf(g.bp, g.n), share = g.counts.map((c) => c / g.problems);
      traces.push({ type: "bar", x: share.map((_, i) => `${i}/${g.samples}`), y: share, hoverinfo: "none", marker: { color: color(s), line: { width: 0 } },
        meta: { key: keyOf(g.bp, g.n), say: (i) => `${name(g.bp, g.n)} at ${count(view.rollouts)} rollouts: ${percent(share[i])} of problems succeed in ${i} of ${g.samples}` } });
    }
    return { traces, slider: { steps: all.map((v) => (v.rollouts ? `${count(v.rollouts)} rollouts` : "before training")), step },
      layout: layoutOf({ ...base(), type: "category", title: { text: "share of a problem's samples that succeed", standoff: 10 }, showgrid: false },
        { ...base(), title: { text: "share of problems", standoff: 8 }, range: [0, Math.min(1, top * 1.08)], tickformat: ".0%" }, { barmode: "group", bargap: 0.18, bargroupgap: 0.08 }) };
  }

  function lineFigure(rows, title, y, marked = true, xTitle = "training rollouts") {
    const kept = rows.filter((r) => shown(r.bp, r.n) && styleOf(r.bp, r.n) && r.x.length);
    if (!kept.length) return null;
    const [lo, hi] = minmax(kept.flatMap((r) => r.x).filter((x) => x > 0));
    if (!(hi > 0)) return null;
    const traces = kept.map((r) => {
      const s = styleOf(r.bp, r.n);
      return { x: r.x, y: r[y], mode: marked && r.x.length < 25 ? "lines+markers" : "lines", hoverinfo: "none", connectgaps: false,
        line: { color: color(s), width: kept.length > 12 ? 1.1 : 1.7, dash: kept.length > 12 ? "solid" : s.dash }, marker: { symbol: s.symbol, size: kept.length > 12 ? 4 : 6, color: color(s) },
        meta: { key: keyOf(r.bp, r.n), say: (i) => `${name(r.bp, r.n)}${r.run ? ` · ${r.run}` : ""} · ${count(r.x[i])} rollouts · ${Number.isFinite(r[y][i]) ? +r[y][i].toPrecision(4) : "–"}` } };
    });
    return { traces, layout: layoutOf(budgetAxis(lo / 1.03, hi * 1.03, xTitle), { ...base(), title: { text: title, standoff: 6 }, nticks: 5 }) };
  }
  function healthFigure(index) {
    const built = lineFigure(Object.values(data.study.health)[index], "", "y", false);
    if (built) {
      built.layout.margin = { l: 50, r: 10, t: 6, b: 40 };
      built.layout.xaxis.tickfont.size = 11;
      if (built.traces.every((t) => t.y.every((v) => !(v < 0)))) built.layout.yaxis.rangemode = "nonnegative"; // an error share of 0 has no negative side
      if (built.layout.xaxis.tickvals && built.layout.xaxis.tickvals.length > 4) {
        const every = Math.ceil(built.layout.xaxis.tickvals.length / 4);
        for (const k of ["tickvals", "ticktext"]) built.layout.xaxis[k] = built.layout.xaxis[k].filter((_, i) => i % every === 0);
      }
    }
    return built;
  }
  function gapFigure() {
    const rows = data.study.train_test.map((r) => ({ ...r, gap: r.train.map((t, i) => (Number.isFinite(t) && Number.isFinite(r.validation[i]) ? t - r.validation[i] : null)) }));
    return lineFigure(rows, "train minus validation", "gap");
  }
  function difficultyFigure() {
    const d = data.study.difficulty;
    return { traces: [{ type: "bar", x: d.counts.map((_, i) => `${i}`), y: d.counts, hoverinfo: "none", marker: { color: look.accent }, meta: { say: (i) => `${count(d.counts[i])} problems succeed in ${i} of ${d.samples}` } }],
      layout: layoutOf({ ...base(), type: "category", title: { text: `successes of ${d.samples}`, standoff: 10 }, showgrid: false }, { ...base(), title: { text: "problems", standoff: 8 } }, { bargap: 0.12 }) };
  }

  const builders = {
    "learning-curves": (i, h) => curvesFigure(data.fits[i], h),
    law: (i) => lawFigure(data.fits[i], data.fits.filter((_, j) => j !== i)),
    "law-problems-per-batch": (i) => lawFigure(data.fits[i], data.fits.filter((_, j) => j !== i), "bp"),
    "probability-best": (i) => probabilityFigure(data.fits[i]),
    "loss-by-n": (i, h) => lossFigure(data.fits[i], h),
    direction: (i) => directionFigure(data.fits[i]),
    backtest: (i) => backtestFigure(data.fits[i]),
    "paper-method": (i) => paperFigure(data.fits[i]),
    scores: scoresFigure, landscape: landscapeFigure, gap: gapFigure, difficulty: difficultyFigure,
    health: (i) => healthFigure(i),
  };

  // ---- drawing -----------------------------------------------------------------------------
  const figures = $$(".figure");
  const folded = (figure) => figure.closest("details:not([open])");
  const waiting = new Set(figures.filter((figure) => !folded(figure)));
  function draw(figure) {
    waiting.delete(figure);
    const plot = $(".plot", figure);
    // Paper has a size of its own: the width of A4 and Letter within their margins.
    const small = figure.closest(".multiples");
    const size = state.paper ? { width: small ? 320 : 660, height: small ? 150 : 250 } : {};
    const built = builders[figure.dataset.kind](Number(figure.dataset.index), size.height || plot.clientHeight);
    const note = $("[data-note]", figure);
    if (!built) {
      figure.dataset.state = "empty";
      note.textContent = state.hidden.size ? "Nothing of this figure is selected." : "Left out: the data do not hold what this figure needs.";
      plot.hidden = true;
      return mark();
    }
    plot.hidden = false;
    note.textContent = built.note || "";
    const traces = built.traces.map((t, i) => ({ ...t, uid: `t${i}`, meta: undefined }));
    figure.meta = built.traces.map((t) => t.meta || {});
    const config = { displayModeBar: false, responsive: true, scrollZoom: false, doubleClick: "reset", showTips: false };
    if (built.slider) slider(figure, built.slider);
    if (built.named) legendOf(figure, built.named);
    Plotly.react(plot, traces, { ...built.layout, ...size, autosize: !state.paper }, config);
    if (!figure.wired) wire(figure, plot);
    figure.dataset.state = "drawn";
    $$("a", plot).forEach((a) => a.remove());
    light(state.lit);
    mark();
  }
  function mark() {
    if (!waiting.size) root.dataset.drawn = "all";
  }
  function redraw() {
    readLook();
    for (const figure of figures) if (figure.dataset.state && !folded(figure)) draw(figure);
  }
  function drawRest() {
    const next = [...waiting][0];
    if (!next) return mark();
    draw(next);
    setTimeout(drawRest, 0); // lets the page answer between two figures
  }

  function wire(figure, plot) {
    figure.wired = true;
    const readout = $(".readout", figure);
    let at = [0, 0];
    const tell = (curve, point) => {
      const meta = figure.meta[curve] || {};
      if (!meta.say || !meta.say(point)) return;
      at = [curve, point];
      readout.textContent = meta.say(point);
      light(meta.keys ? meta.keys[point] : meta.key || null);
    };
    plot.on("plotly_hover", (event) => tell(event.points[0].curveNumber, event.points[0].pointNumber));
    plot.on("plotly_unhover", () => light(null));
    plot.addEventListener("blur", () => light(null));
    plot.addEventListener("keydown", (event) => {
      const move = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [1, 0], ArrowDown: [-1, 0] }[event.key];
      if (!move) return;
      event.preventDefault();
      const speaking = figure.meta.map((m, i) => (m.say ? i : -1)).filter((i) => i >= 0);
      if (!speaking.length) return;
      let [curve, point] = at;
      if (!speaking.includes(curve)) curve = speaking[0];
      if (move[0]) curve = speaking[(speaking.indexOf(curve) + move[0] + speaking.length) % speaking.length];
      const size = (plot.data[curve].x || []).length;
      point = Math.min(Math.max(point + move[1], 0), size - 1);
      tell(curve, point);
      pointAt(plot, curve, point);
    });
    $("[data-save]", figure).addEventListener("click", async () => {
      const url = await Plotly.toImage(plot, { format: "svg", width: 900, height: 560 });
      const link = document.createElement("a");
      link.href = url;
      link.download = `isocompute-${figure.dataset.kind}-${Number(figure.dataset.index) + 1}.svg`;
      link.click();
    });
  }
  function pointAt(plot, curve, point) {
    try { Plotly.Fx.hover(plot, [{ curveNumber: curve, pointNumber: point }]); } catch { /* the readout has told it */ }
  }

  // Hovering one configuration anywhere dims the others everywhere.
  function light(key) {
    state.lit = key;
    for (const chip of $$(".chip")) chip.classList.toggle("lit", chip.dataset.key === key);
    for (const figure of figures) {
      if (figure.dataset.state !== "drawn") continue;
      figure.meta.forEach((meta, i) => {
        for (const g of $$(`.tracet${i}`, figure)) g.style.opacity = key && meta.key && meta.key !== key ? 0.12 : "";
      });
      const barGroups = $$(".barlayer .trace", figure);
      barGroups.forEach((g, i) => {
        const meta = figure.meta[i] || {};
        if (meta.keys) $$(".point", g).forEach((p, j) => { p.style.opacity = key && meta.keys[j] !== key ? 0.2 : ""; });
        else if (meta.key) g.style.opacity = key && meta.key !== key ? 0.15 : "";
      });
    }
  }

  function slider(figure, options) {
    let box = $(".slider", figure);
    if (!box) {
      box = document.createElement("div");
      box.className = "slider";
      const label = document.createElement("label"), input = document.createElement("input"), out = document.createElement("output");
      input.type = "range"; input.min = 0; input.max = options.steps.length - 1; input.value = options.step;
      input.id = "landscape-step"; label.htmlFor = input.id; label.textContent = "Training so far"; out.htmlFor = input.id;
      input.addEventListener("input", () => { state.step = Number(input.value); draw(figure); });
      box.append(label, input, out);
      figure.insertBefore(box, $(".plot", figure));
    }
    $("output", box).textContent = options.steps[options.step];
    $("input", box).setAttribute("aria-valuetext", options.steps[options.step]);
  }
  function legendOf(figure, others) {
    let list = $(".others", figure);
    if (!others.length) { if (list) list.remove(); return; }
    if (!list) {
      list = document.createElement("ul");
      list.className = "others";
      figure.insertBefore(list, $("figcaption", figure));
    }
    list.replaceChildren(...others.map((other) => {
      const item = document.createElement("li");
      item.append(swatch(other.color || look.ink, other.dash, null), document.createTextNode(` ${other.name}`));
      return item;
    }));
  }

  // ---- controls ----------------------------------------------------------------------------
  function swatch(stroke, dash, symbol) {
    const NS = "http://www.w3.org/2000/svg", svg = document.createElementNS(NS, "svg");
    svg.setAttribute("viewBox", "0 0 24 14"); svg.setAttribute("aria-hidden", "true"); svg.setAttribute("width", 26); svg.setAttribute("height", 14);
    const line = document.createElementNS(NS, "path");
    line.setAttribute("d", "M0 7H24"); line.setAttribute("stroke", stroke); line.setAttribute("stroke-width", 2);
    if (dash && dash !== "solid") line.setAttribute("stroke-dasharray", dash.replaceAll("px", ""));
    svg.append(line);
    const shape = symbol && SHAPES[symbol];
    if (shape) {
      const path = document.createElementNS(NS, "path");
      path.setAttribute("d", shape); path.setAttribute("fill", stroke); path.setAttribute("stroke", look.paper); path.setAttribute("stroke-width", 1);
      svg.append(path);
    }
    return svg;
  }
  const polygon = (k, r, turn = 0, inner = 0) => "M" + Array.from({ length: inner ? 2 * k : k }, (_, i) => {
    const a = turn - Math.PI / 2 + (i * Math.PI * (inner ? 1 : 2)) / k, q = inner && i % 2 ? inner : r;
    return `${(12 + q * Math.cos(a)).toFixed(1)} ${(7 + q * Math.sin(a)).toFixed(1)}`;
  }).join("L") + "Z";
  const cross = "M10.3 2H13.7V5.3H17V8.7H13.7V12H10.3V8.7H7V5.3H10.3Z";
  const SHAPES = {
    circle: "M7.5 7a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0 -9 0Z", square: "M8 3H16V11H8Z", diamond: polygon(4, 5.5),
    "triangle-up": polygon(3, 5.8), "triangle-down": polygon(3, 5.8, Math.PI), cross, x: polygon(4, 6, Math.PI / 4, 2),
    pentagon: polygon(5, 5), star: polygon(5, 6, 0, 2.5), hexagon: polygon(6, 5),
  };

  // One box per run: what it hides are that run's own evaluations; the fit is of the whole
  // configuration and stays.
  function runBoxes() {
    for (const box of $$("[data-runs]")) {
      const fit = data.fits[Number(box.dataset.runs)];
      if (fit.runs.length < 2) { box.hidden = true; continue; }
      const set = document.createElement("fieldset"), legend = document.createElement("legend");
      legend.textContent = "Runs whose evaluations are drawn";
      set.append(legend);
      for (const run of [...fit.runs].sort((a, b) => a.n - b.n || a.bp - b.bp)) {
        const label = document.createElement("label"), input = document.createElement("input");
        input.type = "checkbox"; input.checked = true;
        input.addEventListener("change", () => {
          if (input.checked) state.hiddenRuns.delete(run); else state.hiddenRuns.add(run);
          draw(box.closest("section").querySelector('[data-kind="learning-curves"]'));
        });
        for (const type of ["pointerenter", "focusin"]) label.addEventListener(type, () => light(keyOf(run.bp, run.n)));
        for (const type of ["pointerleave", "focusout"]) label.addEventListener(type, () => light(null));
        label.append(input, document.createTextNode(` ${name(run.bp, run.n)} · ${run.run}${Number.isFinite(run.last) ? ` · ends at ${score(run.last)}` : ""}${run.missing ? ` · ${run.missing} without a score` : ""}`));
        set.append(label);
      }
      box.append(set);
    }
  }

  function buildChips() {
    const box = $("#chips");
    box.replaceChildren(...[...series.entries()].map(([key, s]) => {
      const chip = document.createElement("button");
      chip.type = "button"; chip.className = "chip"; chip.dataset.key = key;
      chip.setAttribute("aria-pressed", String(!state.hidden.has(key)));
      chip.append(swatch(color(s), s.dash, s.symbol), document.createTextNode(s.label));
      chip.addEventListener("click", () => toggle(key, chip));
      chip.addEventListener("dblclick", () => only(key));
      chip.addEventListener("pointerenter", () => light(key));
      chip.addEventListener("pointerleave", () => light(null));
      chip.addEventListener("focus", () => light(key));
      chip.addEventListener("blur", () => light(null));
      return chip;
    }));
    $("#toolbar").hidden = series.size === 0 || figures.length === 0;
  }
  function pressed() {
    for (const chip of $$(".chip")) chip.setAttribute("aria-pressed", String(!state.hidden.has(chip.dataset.key)));
    redraw();
  }
  function toggle(key) {
    if (state.hidden.has(key)) state.hidden.delete(key); else state.hidden.add(key);
    pressed();
  }
  function only(key) {
    state.hidden = new Set([...series.keys()].filter((k) => k !== key));
    pressed();
  }
  const press = (buttons, test) => buttons.forEach((b) => b.setAttribute("aria-pressed", String(test(b))));
  function theme(force) {
    state.theme = force || (state.choice === "auto" ? (darkQuery.matches ? "dark" : "light") : state.choice);
    root.dataset.theme = state.theme;
    readLook();
    buildChips();
    redraw();
  }

  $("#show-all").addEventListener("click", () => { state.hidden.clear(); pressed(); });
  const themes = $$("[data-theme-choice]"), scales = $$("[data-scale]");
  themes.forEach((b) => b.addEventListener("click", () => { state.choice = b.dataset.themeChoice; press(themes, (o) => o === b); theme(); }));
  scales.forEach((b) => b.addEventListener("click", () => { state.scale = b.dataset.scale; press(scales, (o) => o === b); redraw(); }));
  darkQuery.addEventListener("change", () => theme());
  addEventListener("beforeprint", () => {
    state.paper = true;
    while (waiting.size) draw([...waiting][0]);
    theme("light");
  });
  addEventListener("afterprint", () => { state.paper = false; theme(); });
  let width = narrow();
  addEventListener("resize", () => { if (narrow() !== width) { width = narrow(); redraw(); } });

  for (const box of $$("details.beside")) { // drawn when it is opened: folded, a figure has no width
    box.addEventListener("toggle", () => {
      if (box.open) for (const figure of $$(".figure", box)) if (!figure.dataset.state) draw(figure);
    });
  }
  for (const button of $$("[data-copy]")) {
    if (!navigator.clipboard) continue;
    button.hidden = false;
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText($("pre", button.parentElement).textContent);
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = "Copy"; }, 2000);
    });
  }

  runBoxes();
  theme();
  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) if (entry.isIntersecting && waiting.has(entry.target)) { seen.unobserve(entry.target); draw(entry.target); }
  }, { rootMargin: "300px" });
  figures.forEach((figure) => seen.observe(figure));
  setTimeout(drawRest, 60);
})();
