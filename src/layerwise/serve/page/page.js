// The page to try a server: sentences to similarities by layer, two mixes, search, and the lines to copy.
"use strict";

const find = (id) => document.getElementById(id);
const make = (name, text, attributes = {}) => {
  const element = document.createElement(name);
  if (text !== undefined) element.textContent = text;
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
};
const draw = (name, attributes, text) => {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  return element;
};

async function ask(path, body) {
  const options = body && { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
  const response = await fetch(path, options);
  const answer = await response.json();
  if (!response.ok) throw new Error(answer.error.message);
  return answer;
}

function show(problem, error) {
  problem.textContent = error ? error.message : "";
  problem.hidden = !error;
}

const short = (text) => (text.length > 34 ? `${text.slice(0, 33)}…` : text);
const options = (select, values) => select.replaceChildren(...values.map((value) => make("option", value)));

async function start() {
  const models = await ask("v1/models");
  options(find("model"), models.data.map((model) => model.id));
  find("model_label").hidden = models.data.length < 2;
  options(find("index"), models.indexes);
  find("searching").hidden = !models.indexes.length;
  await describe();
}

async function describe() {
  const layers = await ask(`v1/layers?model=${encodeURIComponent(find("model").value)}`);
  find("about").textContent = `${layers.model}: layers 0 to ${layers.layers.at(-1)} of ${layers.width} numbers; its own mix is ${layers.mix}.`;
  options(find("pooling"), layers.poolings);
  find("pooling").value = "mean";
  writeLines();
}

async function compare() {
  const sentences = find("sentences").value.split("\n").map((line) => line.trim()).filter(Boolean);
  if (sentences.length < 2) throw new Error("Write two sentences or more, one a line.");
  if (sentences.length > 12) throw new Error("Write at most 12 sentences, so that all pairs can be shown.");
  const pairs = sentences.flatMap((left, i) => sentences.slice(i + 1).map((right) => [left, right]));
  const common = { model: find("model").value, pairs, pooling: find("pooling").value };
  const mixes = [find("mix_a").value, find("mix_b").value];
  const [byLayer, ...byMix] = await Promise.all(
    ["all", ...mixes].map((layers) => ask("v1/similarity", { ...common, layers })),
  );
  const rows = byLayer.data.map((item) => item.layers);
  showHeat(pairs, rows);
  showCurves(rows);
  showMixes(pairs, mixes, byMix.map((answer) => answer.data.map((item) => item.similarity)));
  mark(0);
  find("result").hidden = false;
}

function header(cells) {
  const head = make("thead"), row = make("tr");
  row.append(...cells.map((cell) => make("th", cell, { scope: "col" })));
  head.append(row);
  return head;
}

function showHeat(pairs, rows) {
  const all = rows.flat(), low = Math.min(...all), high = Math.max(...all);
  const body = make("tbody");
  rows.forEach((values, number) => {
    const row = make("tr"), name = make("th", undefined, { scope: "row" }), button = make("button", pairs[number].map(short).join(" / "));
    button.addEventListener("click", () => mark(number));
    name.append(button);
    row.append(name);
    for (const value of values) {
      const cell = make("td", value.toFixed(2));
      const share = high > low ? (value - low) / (high - low) : 1;
      cell.style.backgroundColor = `hsl(${215 - 180 * share} 65% ${88 - 20 * share}%)`;
      row.append(cell);
    }
    body.append(row);
  });
  find("heat").replaceChildren(header(["pair", ...rows[0].map((_, layer) => layer)]), body);
}

function showCurves(rows) {
  const [width, height, left, bottom] = [720, 300, 40, 28];
  const all = rows.flat(), low = Math.min(0, ...all), high = Math.max(1, ...all);
  const x = (layer) => left + (layer / Math.max(1, rows[0].length - 1)) * (width - left - 12);
  const y = (value) => 8 + ((high - value) / (high - low)) * (height - bottom - 8);
  const svg = find("curves");
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.replaceChildren();
  for (let tick = Math.ceil(low * 4) / 4; tick <= high; tick += 0.25) {
    svg.append(draw("line", { x1: left, x2: width - 12, y1: y(tick), y2: y(tick), class: "rule" }));
    svg.append(draw("text", { x: left - 6, y: y(tick) + 4, "text-anchor": "end" }, tick.toFixed(2)));
  }
  const step = Math.ceil(rows[0].length / 14);
  rows[0].forEach((_, layer) => {
    if (layer % step === 0) svg.append(draw("text", { x: x(layer), y: height - 8, "text-anchor": "middle" }, String(layer)));
  });
  for (const values of rows) {
    svg.append(draw("path", { d: values.map((value, layer) => `${layer ? "L" : "M"}${x(layer)} ${y(value)}`).join("") }));
  }
}

function showMixes(pairs, mixes, columns) {
  const body = make("tbody");
  pairs.forEach((pair, number) => {
    const row = make("tr"), values = columns.map((column) => column[number]);
    row.append(make("th", pair.map(short).join(" / "), { scope: "row" }));
    row.append(...[...values, values[1] - values[0]].map((value) => make("td", value.toFixed(3))));
    body.append(row);
  });
  find("mixes").replaceChildren(header(["pair", `A: ${mixes[0]}`, `B: ${mixes[1]}`, "B − A"]), body);
}

function mark(number) {
  find("heat").querySelectorAll("tbody tr").forEach((row, place) => row.setAttribute("aria-selected", place === number));
  find("curves").querySelectorAll("path").forEach((path, place) => path.classList.toggle("marked", place === number));
}

async function search() {
  const answer = await ask("v1/search", { index: find("index").value, input: find("query").value });
  find("hits").replaceChildren(
    ...answer.data[0].hits.map((hit) => {
      const item = make("li"), columns = Object.entries(hit.columns).filter(([name]) => name !== "row");
      item.append(make("b", `${hit.score.toFixed(3)} `), columns.map(([, value]) => value).join(" · ") || `row ${hit.row}`);
      return item;
    }),
  );
}

function writeLines() {
  const model = find("model").value, base = new URL("v1", location.href).href;
  const how = { layers: find("mix_b").value, pooling: find("pooling").value };
  const body = JSON.stringify({ model, input: ["A sentence."], ...how });
  find("curl_code").textContent = [
    `curl ${base}/embeddings -H 'Content-Type: application/json' -H 'Authorization: Bearer none'`,
    `-d '${body.replaceAll("'", "'\\''")}'`,
  ].join(" \\\n  ");
  find("python_code").textContent = [
    "from openai import OpenAI",
    "",
    `client = OpenAI(base_url=${JSON.stringify(base)}, api_key="none")`,
    "response = client.embeddings.create(",
    `    model=${JSON.stringify(model)}, input=["A sentence."], extra_body=${JSON.stringify(how)}`,
    ")",
    "print(response.data[0].embedding[:4])",
  ].join("\n");
}

function submits(form, problem, work) {
  find(form).addEventListener("submit", async (event) => {
    event.preventDefault();
    const button = event.submitter || find(form).querySelector("button");
    button.disabled = true;
    try {
      await work();
      show(find(problem));
    } catch (error) {
      show(find(problem), error);
    } finally {
      button.disabled = false;
    }
  });
}

async function copy(button) {
  const code = find(button.dataset.copy);
  try {
    await navigator.clipboard.writeText(code.textContent);
  } catch { // without HTTPS there is no clipboard: select the lines instead
    getSelection().selectAllChildren(code);
    document.execCommand("copy");
  }
  button.textContent = "Copied";
  setTimeout(() => { button.textContent = "Copy"; }, 1500);
}

submits("compare", "problem", compare);
submits("search", "search_problem", search);
find("model").addEventListener("change", () => describe().catch((error) => show(find("problem"), error)));
for (const choice of ["mix_b", "pooling"]) find(choice).addEventListener("input", writeLines);
document.querySelectorAll("[data-copy]").forEach((button) => button.addEventListener("click", () => copy(button)));
start().catch((error) => show(find("problem"), error));
