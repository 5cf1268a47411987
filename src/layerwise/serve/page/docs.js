// The API as its schema says it: every address with its fields.
"use strict";

const make = (name, text) => {
  const element = document.createElement(name);
  if (text !== undefined) element.textContent = text;
  return element;
};

const typeOf = (field) =>
  field.enum ? field.enum.join(" | ")
    : field.anyOf ? [...new Set(field.anyOf.map(typeOf))].filter((type) => type !== "null").join(" | ")
      : field.type === "array" ? `list of ${field.items ? typeOf(field.items) : "texts"}`
        : { string: "text", integer: "whole number", boolean: "true or false" }[field.type] || field.type || "any";

function operation(path, method, facts) {
  const section = make("section");
  section.append(make("h2", `${method.toUpperCase()} ${path}`), make("p", facts.description || facts.summary));
  const schema = facts.requestBody && facts.requestBody.content["application/json"].schema;
  if (schema) {
    const table = make("table"), body = make("tbody");
    for (const [name, field] of Object.entries(schema.properties)) {
      const row = make("tr"), required = (schema.required || []).includes(name) ? "required" : "";
      row.append(make("th", name), make("td", typeOf(field)), make("td", required), make("td", field.description || ""));
      body.append(row);
    }
    const scroll = make("div");
    scroll.className = "scroll fields";
    table.append(body);
    scroll.append(table);
    section.append(scroll);
  }
  return section;
}

fetch("openapi.json").then((response) => response.json()).then((schema) => {
  document.getElementById("operations").replaceChildren(
    ...Object.entries(schema.paths).flatMap(([path, methods]) =>
      Object.entries(methods).map(([method, facts]) => operation(path, method, facts))),
  );
});
