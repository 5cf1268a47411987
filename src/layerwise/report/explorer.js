// Pair by pair: search, order, and the chosen pair's sentences, facts and chart.

// Rank 1 is the highest; equal values share the mean of their ranks; missing ones have none.
function ranksOf(values) {
  const order = values.map((_, index) => index).filter((index) => known(values[index]));
  order.sort((one, two) => values[two] - values[one]);
  const ranks = values.map(() => null);
  for (let start = 0, end; start < order.length; start = end) {
    end = start;
    while (end < order.length && values[order[end]] === values[order[start]]) end += 1;
    for (let at = start; at < end; at += 1) ranks[order[at]] = (start + end + 1) / 2;
  }
  return ranks;
}

function columnSums(rows) {
  return rows[0].map((_, layer) => {
    const values = rows.map((row) => row[layer]).filter(known);
    return { sum: values.reduce((sum, value) => sum + value, 0), count: values.length };
  });
}

function meanOfOthers(sums, row) {
  return sums.map(({ sum, count }, layer) => {
    const [less, fewer] = known(row[layer]) ? [sum - row[layer], count - 1] : [sum, count];
    return fewer > 0 ? less / fewer : null;
  });
}

function range(lists) {
  let [low, high] = [Infinity, -Infinity];
  for (const list of lists) for (const value of list) {
    if (known(value)) { low = Math.min(low, value); high = Math.max(high, value); }
  }
  return low <= high ? [low, high] : [0, 1];
}

// What the ranks, orders and the chart's scale need, worked out once.
function prepare(data) {
  const grades = data.pairs.map((pair) => pair[2]);
  const graded = grades.some(known);
  const mixOfGraded = data.mix.values.map((value, index) => (known(grades[index]) ? value : null));
  const [gradeRanks, mixRanks] = [ranksOf(grades), ranksOf(mixOfGraded)];
  const apart = gradeRanks.map((rank, index) => {
    const other = mixRanks[index];
    return known(rank) && known(other) ? Math.abs(rank - other) : null;
  });
  const moved = data.rows.map((row, index) => {
    const [last, mix] = [row[row.length - 1], data.mix.values[index]];
    return known(last) && known(mix) ? Math.abs(mix - last) : null;
  });
  const [low, high] = range([...data.rows, data.mix.values, ...(data.other ? data.other.rows : [])]);
  const texts = data.pairs.map((pair) => `${pair[0]}\n${pair[1]}`.toLocaleLowerCase());
  const count = grades.filter(known).length;
  return { grades, graded, gradeRanks, mixRanks, apart, moved, low, high, texts, count, sums: columnSums(data.rows) };
}

// Whether the answer recommends other layers than the model's own mix.
function isApart(data) {
  return data.recommended !== null && !data.recommended.is_mix;
}

function mixName(data, word) {
  return `${word} ${data.mix.name}${data.recommended && data.recommended.is_mix ? " (recommended)" : ""}`;
}

function ordersOf(data, facts) {
  const apart = (row, index) => Math.abs(data.recommended.values[index] - row[row.length - 1]);
  const byGrade = [
    ["disagreement with the grade, largest first", facts.apart, -1],
    ["disagreement with the grade, smallest first", facts.apart, 1],
    ["grade, highest first", facts.grades, -1],
    ["grade, lowest first", facts.grades, 1],
  ];
  return [
    ...(facts.graded ? byGrade : []),
    ["mix against last layer, largest change first", facts.moved, -1],
    ...(isApart(data) ? [["recommended against last layer, largest change first", data.rows.map(apart), -1]] : []),
    ["cosine of the mix, highest first", data.mix.values, -1],
    ["cosine of the mix, lowest first", data.mix.values, 1],
    ["as in the file", data.pairs.map((_, index) => index), 1],
  ];
}

function sorted(values, direction) {
  const order = values.map((_, index) => index);
  return order.sort((one, two) => {
    if (!known(values[one]) || !known(values[two])) return known(values[two]) - known(values[one]) || one - two;
    return direction * (values[one] - values[two]) || one - two;
  });
}

function columnLabels(data, index, mean) {
  const { other } = data;
  const labels = data.layers.map((layer, at) => {
    const lines = [`layer ${layer}: ${threeDigits(data.rows[index][at])}`, `mean of the others: ${threeDigits(mean[at])}`];
    if (other) {
      const twin = Math.round((at * (other.layers.length - 1)) / Math.max(data.layers.length - 1, 1));
      lines.push(`${other.name}, layer ${other.layers[twin]}: ${threeDigits(other.rows[index][twin])}`);
    }
    return lines.join("\n");
  });
  const lines = [`${mixName(data, "mix")}: ${threeDigits(data.mix.values[index])}`];
  if (isApart(data)) lines.push(`recommended ${data.recommended.name}: ${threeDigits(data.recommended.values[index])}`);
  return [...labels, lines.join("\n")];
}

const fourDigits = (value) => value.toFixed(4).replace("-", "\u2212");
const signed = (value) => `${value < 0 ? "\u2212" : "+"}${fourDigits(Math.abs(value))}`;

function htmlElement(name, text, attributes = {}) {
  const element = document.createElement(name);
  element.textContent = text;
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
}

function legendEntry(kind, shape, words) {
  const entry = htmlElement("span", "");
  const svg = svgElement("svg", { width: 18, height: 14, "aria-hidden": "true" });
  const line = svgElement("path", { class: kind, d: "M1 7H17", "stroke-width": 2 });
  const ring = svgElement("circle", { class: kind, cx: 9, cy: 7, r: 4.5, "stroke-width": 2.5, style: "fill: var(--paper)" });
  const diamond = svgElement("polygon", { class: kind, points: "9,1 15,7 9,13 3,7" });
  svg.append({ line, ring, diamond }[shape]);
  entry.append(svg, htmlElement("span", words, { dir: "auto" }));
  return entry;
}

function pairFacts(data, facts, index) {
  const row = data.rows[index];
  const ranks = `${Math.round(facts.gradeRanks[index])} by grade, ${Math.round(facts.mixRanks[index])} by the mix`;
  const told = [
    ["Grade", known(facts.grades[index]) ? String(Math.round(facts.grades[index] * 1000) / 1000) : null],
    ["Last layer", threeDigits(row[row.length - 1])],
    [mixName(data, "Mix"), threeDigits(data.mix.values[index])],
    ...(isApart(data) ? [[`Recommended ${data.recommended.name}`, threeDigits(data.recommended.values[index])]] : []),
    [`Rank of ${facts.count.toLocaleString("en")}`, known(facts.apart[index]) ? ranks : null],
  ];
  return told.filter(([, value]) => value !== null).map(([name, value]) => {
    const group = document.createElement("div");
    group.append(htmlElement("dt", name), htmlElement("dd", value));
    return group;
  });
}

// Words on a ground that is the stronger the more they add to the cosine, or, in the other colour, take from it.
function colouredWords(terms, strongest) {
  return terms.flatMap(([word, term]) => {
    const span = htmlElement("span", word, { "data-tip": signed(term) });
    const share = Math.round(50 * Math.abs(term) / strongest); // more, and the dark theme's ink can't be read on it
    span.style.background = `color-mix(in srgb, var(--series-${term < 0 ? 2 : 1}) ${share}%, var(--paper))`;
    return [span, " "];
  });
}

// Heads, then rows; the first cell names its row, numbers are terms.
function termTable([heads, ...rows]) {
  const isNumber = heads.map((_, at) => typeof rows[0][at] === "number");
  const row = (cells, name) => {
    const line = document.createElement("tr");
    line.append(...cells.map((cell, at) => {
      const look = { class: isNumber[at] ? "number" : "text", dir: "auto" };
      if (name(at) === "th") look.scope = cells === heads ? "col" : "row";
      return htmlElement(name(at), typeof cell === "number" ? signed(cell) : cell, look);
    }));
    return line;
  };
  const [table, head, body] = ["table", "thead", "tbody"].map((name) => document.createElement(name));
  head.append(row(heads, () => "th"));
  body.append(...rows.map((cells) => row(cells, (at) => (at ? "td" : "th"))));
  table.append(head, body);
  return table;
}

function listItem(data, facts, index) {
  const [left, right, grade] = data.pairs[index];
  const figure = facts.graded ? grade : data.mix.values[index];
  const item = htmlElement("li", "", { role: "option", id: `pair_option_${index}`, "data-pair": index });
  item.append(htmlElement("span", left, { dir: "auto" }), htmlElement("span", right, { dir: "auto" }));
  item.append(htmlElement("b", known(figure) ? figure.toFixed(2) : "\u2013"));
  return item;
}

// Inside its box only: scrollIntoView would move the page too.
function keepInView(list, item) {
  const below = item.offsetTop + item.offsetHeight - list.clientHeight;
  if (item.offsetTop < list.scrollTop) list.scrollTop = item.offsetTop;
  else if (below > list.scrollTop) list.scrollTop = below;
}

function legend(data) {
  return [
    legendEntry("own", "line", `this pair, ${data.name}`),
    ...(data.other ? [legendEntry("second", "line", `this pair, ${data.other.name}`)] : []),
    legendEntry("others", "line", "mean of the other pairs"),
    legendEntry("own", "ring", "last layer"),
    legendEntry("mixed", "diamond", mixName(data, "mix")),
  ];
}

function startExplorer() {
  const holder = document.getElementById("pair_data");
  if (!holder) return;
  const data = JSON.parse(holder.textContent);
  const facts = prepare(data);
  const orders = ordersOf(data, facts);
  const part = (name) => document.getElementById(`pair_${name}`);
  const [list, search, select, chart] = [part("list"), part("search"), part("order"), part("chart")];
  let [shown, chosen, drawnWidth] = [[], null, 0];

  function draw() {
    const focused = [...chart.querySelectorAll(".point")].indexOf(document.activeElement);
    const mean = meanOfOthers(facts.sums, data.rows[chosen]);
    drawnWidth = chart.clientWidth;
    chart.replaceChildren(drawChart(Math.max(drawnWidth, 240), {
      layers: data.layers, own: data.rows[chosen], mean, mix: data.mix.values[chosen], low: facts.low, high: facts.high,
      second: data.other && data.other.rows[chosen], labels: columnLabels(data, chosen, mean),
    }));
    makePointsReachable(chart, focused);
  }

  function showTerms(terms) {
    part("terms").hidden = !terms;
    if (!terms) return;
    const strongest = Math.max(...terms.words.flat().map(([, term]) => Math.abs(term)), 1e-9);
    const sumsTo = `the terms sum to ${fourDigits(terms.total)}, residual ${terms.residual}`;
    part("sums").textContent = `cosine ${fourDigits(terms.cosine)}; ${sumsTo}`;
    part("words_left").replaceChildren(...colouredWords(terms.words[0], strongest));
    part("words_right").replaceChildren(...colouredWords(terms.words[1], strongest));
    part("by_word").replaceChildren(termTable(terms.by_word));
    part("by_layer").hidden = !terms.by_layer;
    part("by_layer").replaceChildren(...(terms.by_layer ? [termTable(terms.by_layer)] : []));
  }

  function choose(index) {
    chosen = index;
    part("left").textContent = data.pairs[index][0];
    part("right").textContent = data.pairs[index][1];
    part("facts").replaceChildren(...pairFacts(data, facts, index));
    showTerms(data.terms[index]);
    for (const item of list.children) item.setAttribute("aria-selected", String(Number(item.dataset.pair) === index));
    const item = list.querySelector(`[data-pair="${index}"]`);
    if (item) {
      list.setAttribute("aria-activedescendant", item.id);
      keepInView(list, item);
    } else list.removeAttribute("aria-activedescendant");
    draw();
  }

  function fill() {
    const words = search.value.toLocaleLowerCase().split(/\s+/).filter(Boolean);
    const [, values, direction] = orders[select.value];
    shown = sorted(values, direction).filter((index) => words.every((word) => facts.texts[index].includes(word)));
    list.replaceChildren(...shown.map((index) => listItem(data, facts, index)));
    const all = data.pairs.length.toLocaleString("en");
    const figure = facts.graded ? "the grade" : "the mix's cosine";
    part("count").textContent = shown.length
      ? `${shown.length.toLocaleString("en")} of ${all} pairs; at the right, ${figure}`
      : `None of ${all} pairs has these words`;
    if (shown.length) choose(shown.includes(chosen) && words.length ? chosen : shown[0]);
  }

  function turn(steps) {
    if (!shown.length) return;
    const at = shown.indexOf(chosen);
    choose(shown[Math.min(Math.max(at < 0 ? 0 : at + steps, 0), shown.length - 1)]);
  }

  orders.forEach(([name], index) => select.append(htmlElement("option", name, { value: index })));
  part("legend").append(...legend(data));
  search.addEventListener("input", fill);
  select.addEventListener("change", fill);
  list.addEventListener("click", (event) => {
    const item = event.target.closest("li");
    if (item) choose(Number(item.dataset.pair));
  });
  part("previous").addEventListener("click", () => turn(-1));
  part("next").addEventListener("click", () => turn(1));
  part("explorer").addEventListener("keydown", (event) => {
    const far = shown.length;
    const steps = { ArrowUp: -1, ArrowDown: 1, PageUp: -10, PageDown: 10 }[event.key]
      || (document.activeElement === list && { Home: -far, End: far }[event.key]);
    if (!steps || event.target === select || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    turn(steps);
  });
  part("explorer").hidden = false;
  fill();
  new ResizeObserver(() => { if (chart.clientWidth !== drawnWidth) draw(); }).observe(chart);
}
