"use strict";

// Everything is made with elements and text, never with markup from a string:
// what an answer holds is shown and cannot run.

const METHODS = ["get", "post", "put", "patch", "delete"];
const MOST_SHOWN = 200000;
const byId = (id) => document.getElementById(id);
let description = {};

function make(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== undefined && child !== null));
  return element;
}

// `code` between backticks.
function prose(text) {
  return (text || "").split(/`([^`]+)`/).map((part, at) => (at % 2 ? make("code", {}, part) : part));
}

// ---- schemas

function refName(schema) {
  return schema && schema.$ref ? schema.$ref.split("/").pop() : undefined;
}

function resolve(schema) {
  const name = refName(schema);
  return name ? (description.components.schemas[name] || {}) : (schema || {});
}

function choices(schema) {
  return (schema.oneOf || schema.anyOf || []).filter((one) => one.type !== "null" && !isRule(one));
}

// A branch that only says what must be there describes no value of its own.
function isRule(schema) {
  return schema.required && !schema.type && !schema.$ref;
}

function typeOf(schema) {
  if (!schema) return "any";
  const name = refName(schema);
  if (name) return name;
  const parts = choices(schema);
  if (parts.length) return parts.map(typeOf).join(" or ");
  const kinds = [].concat(schema.type || []).filter((kind) => kind !== "null");
  if (kinds.includes("array")) return "array of " + typeOf(schema.items);
  return kinds.join(" or ") || "any";
}

function boundsOf(schema) {
  const said = [];
  const { minimum: least, maximum: most } = schema;
  if (least !== undefined && most !== undefined) said.push(least + " to " + most);
  else if (least) said.push("at least " + least);
  else if (most !== undefined) said.push("at most " + most);
  if (schema.maxLength) said.push("at most " + schema.maxLength + " characters");
  if (schema.maxItems) said.push("at most " + schema.maxItems + " items");
  if (schema.format === "date-time") said.push("RFC 3339");
  const words = schema.enum || schema.items?.enum;
  if (words) said.push((schema.enum ? "one of " : "of ") + words.filter((word) => word !== null).join(", "));
  if (schema.default !== undefined) said.push("usually " + schema.default);
  return said.join("; ");
}

// What can be opened below a property, if anything.
function inner(schema) {
  if (!schema) return undefined;
  if (refName(schema)) return schema;
  if (schema.items) return inner(schema.items);
  if (schema.properties) return schema;
  return choices(schema).map(inner).find(Boolean);
}

function schemaTree(schema) {
  const whole = resolve(schema);
  const must = new Set(whole.required || []);
  const rows = Object.entries(whole.properties || {}).map(([name, property]) => {
    const below = inner(property);
    const bounds = boundsOf(property);
    return make("li", {},
      make("code", {}, name), must.has(name) ? make("span", { class: "must", title: "required" }, "*") : "",
      " ", make("span", { class: "type" }, typeOf(property)),
      bounds ? make("span", { class: "type" }, " (" + bounds + ")") : "",
      property.description ? make("div", { class: "words" }, ...prose(property.description)) : null,
      below ? lazily(typeOf(below), () => schemaTree(below)) : null);
  });
  const box = make("div", { class: "schema" });
  if (whole.description) box.append(make("div", { class: "words" }, ...prose(whole.description)));
  if (rows.length) box.append(make("ul", {}, ...rows));
  else if (!choices(whole).length) box.append(make("span", { class: "type" }, typeOf(whole)));
  for (const one of choices(whole)) {
    box.append(make("div", {}, make("span", { class: "type" }, typeOf(one))));
  }
  if (whole.additionalProperties === true) {
    box.append(make("div", { class: "words" }, "Further fields are kept."));
  }
  return box;
}

// Details whose inside is made when they are first opened.
function lazily(title, fill) {
  const box = make("details", {}, make("summary", {}, title));
  box.addEventListener("toggle", () => {
    if (box.open && box.childElementCount === 1) box.append(fill());
  });
  return box;
}

// A value that fits, where no example is given.
function sample(schema, depth = 0) {
  const whole = resolve(schema);
  if (whole.example !== undefined) return whole.example;
  if (whole.default !== undefined) return whole.default;
  if (whole.enum) return whole.enum[0];
  const parts = choices(whole);
  if (parts.length) return sample(parts[0], depth + 1);
  const kind = [].concat(whole.type || "object").find((one) => one !== "null");
  if (kind === "array") return depth > 4 ? [] : [sample(whole.items, depth + 1)];
  if (kind === "integer" || kind === "number") return whole.minimum || 0;
  if (kind === "boolean") return false;
  if (kind === "string") return whole.format === "date-time" ? "2024-05-01T10:00:00Z" : "text";
  const wanted = Object.entries(whole.properties || {}).filter(([name]) => (whole.required || []).includes(name));
  return Object.fromEntries(wanted.map(([name, property]) => [name, sample(property, depth + 1)]));
}

// ---- an operation

function needsKey(operation) {
  const asked = operation.security || description.security || [];
  return !asked.some((one) => Object.keys(one).length === 0) && asked.length > 0;
}

function parameterRow(parameter, id) {
  const schema = parameter.schema || {};
  const value = parameter.example !== undefined ? parameter.example : schema.example;
  const given = parameter.required && value !== undefined ? String(value) : "";
  const common = { id, "data-name": parameter.name, "data-in": parameter.in, autocomplete: "off", spellcheck: "false" };
  const words = schema.enum || (schema.type === "boolean" ? ["true", "false"] : undefined);
  const field = words
    ? make("select", common, make("option", { value: "" }, ""), ...words.map((word) => make("option", {}, word)))
    : make("input", { ...common, type: "text", value: given, inputmode: schema.type === "integer" ? "numeric" : undefined });
  const bounds = boundsOf({ ...schema, enum: undefined });
  const hint = (parameter.description || "") + (bounds ? " " + bounds[0].toUpperCase() + bounds.slice(1) + "." : "");
  return make("div", { class: "parameter" },
    make("span", {},
      make("label", { for: id }, make("code", {}, parameter.name)),
      parameter.required ? make("span", { class: "must", title: "required" }, "*") : "",
      " ", make("span", { class: "type" }, parameter.in === "query" ? typeOf(schema) : parameter.in)),
    field,
    make("span", { class: "hint" }, ...prose(hint)));
}

function answerRow([code, response]) {
  const parts = Object.entries(response.content || {}).map(([type, media]) =>
    lazily(type + (media.schema ? ": " + typeOf(media.schema) : ""), () => schemaTree(media.schema)));
  return make("div", { class: "answer" }, make("span", { class: "code" }, code),
    make("div", {}, ...prose(response.description), ...parts));
}

// Refusals are much the same everywhere, so they are folded away.
function answerRows(operation) {
  const all = Object.entries(operation.responses || {});
  const refusals = all.filter(([code]) => code >= "400");
  const rows = all.filter(([code]) => code < "400").map(answerRow);
  if (refusals.length) {
    const title = "Refusals: " + refusals.map(([code]) => code).join(", ");
    rows.push(lazily(title, () => make("div", {}, ...refusals.map(answerRow))));
  }
  return make("div", { class: "answers" }, ...rows);
}

// What would be sent, from what stands in the form.
function request(form) {
  const { path, method, operation, fields, body } = form;
  let place = path;
  const query = new URLSearchParams();
  const headers = {};
  for (const field of fields) {
    const { name, in: where } = { name: field.dataset.name, in: field.dataset.in };
    if (where === "path") place = place.replace("{" + name + "}", encodeURIComponent(field.value));
    else if (field.value === "") continue;
    else if (where === "query") query.append(name, field.value);
    else if (where === "header") headers[name] = field.value;
  }
  const asked = query.toString();
  const text = body && body.value.trim() !== "" ? body.value : undefined;
  if (text !== undefined) headers["Content-Type"] = body.dataset.type;
  return { url: place + (asked ? "?" + asked : ""), method: method.toUpperCase(), headers, text, keyed: needsKey(operation) };
}

function quoted(text) {
  return "'" + text.replaceAll("'", "'\\''") + "'";
}

// The key is not in it: a line that is copied ends up in places.
function curlLine(form) {
  const sent = request(form);
  const verb = sent.method === "GET" ? "" : "-X " + sent.method + " ";
  const parts = ["curl " + verb + quoted(location.origin + sent.url)];
  if (sent.keyed) parts.push('-H "Authorization: Bearer $ICECORE_KEY"');
  for (const [name, value] of Object.entries(sent.headers)) parts.push("-H " + quoted(name + ": " + value));
  if (sent.text !== undefined) parts.push("-d " + quoted(sent.text));
  return parts.join(" \\\n  ");
}

async function send(form) {
  const { result, button } = form;
  const sent = request(form);
  const key = byId("key").value.trim();
  const headers = { ...sent.headers };
  if (sent.keyed && key) headers.Authorization = "Bearer " + key;
  button.disabled = true;
  const began = performance.now();
  try {
    const options = { method: sent.method, headers, body: sent.text, cache: "no-store", credentials: "omit", redirect: "error" };
    const response = await fetch(sent.url, options);
    const text = await response.text();
    show(result, response, text, performance.now() - began);
  } catch (error) {
    result.replaceChildren(make("p", { class: "note bad" }, "Nothing came back: " + error.message));
  } finally {
    button.disabled = false;
  }
}

function show(result, response, text, took) {
  const good = response.status < 400;
  const headers = [...response.headers].map(([name, value]) => name + ": " + value).join("\n");
  result.replaceChildren(
    make("div", { class: "line" },
      make("span", { class: "status " + (good ? "good" : "bad") }, String(response.status)),
      make("span", { class: "hint" }, took.toFixed(took < 10 ? 1 : 0) + " ms"),
      make("span", { class: "hint" }, new TextEncoder().encode(text).length + " bytes")),
    make("details", {}, make("summary", {}, "Headers"), make("pre", {}, headers)),
    make("pre", { class: "body", tabindex: "0", "aria-label": "Body of the answer" }, pretty(text)));
}

function pretty(text) {
  let shown = text;
  try {
    shown = JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    // Shown as it came.
  }
  return shown.length > MOST_SHOWN ? shown.slice(0, MOST_SHOWN) + "\n… cut here" : shown || "(empty)";
}

async function copy(text, button) {
  const before = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    button.textContent = "Select and copy it";
  }
  setTimeout(() => { button.textContent = before; }, 1500);
}

function fillOperation(box, path, method, operation) {
  const id = operation.operationId;
  const inside = make("div", { class: "inside" });
  if (operation.description) inside.append(make("p", {}, ...prose(operation.description)));

  const rows = (operation.parameters || []).map((one, at) => parameterRow(one, id + "-" + at));
  if (rows.length) inside.append(make("h3", {}, "Parameters"), make("div", { class: "parameters" }, ...rows));

  const [type, media] = Object.entries(operation.requestBody?.content || {})[0] || [];
  let body;
  if (media) {
    const example = media.example !== undefined ? media.example : sample(media.schema);
    const text = typeof example === "string" ? example : JSON.stringify(example, null, 2);
    body = make("textarea", { id: id + "-body", "data-type": type, spellcheck: "false", rows: Math.min(16, text.split("\n").length + 1) });
    body.value = text;
    inside.append(make("h3", {}, make("label", { for: id + "-body" }, "Body")), body,
      lazily("What it may hold: " + typeOf(media.schema), () => schemaTree(media.schema)));
  }

  const result = make("div", { class: "result", "aria-live": "polite" });
  const button = make("button", { class: "send", type: "button" }, "Send");
  const line = make("pre", { class: "curl", hidden: true, tabindex: "0", "aria-label": "The same with curl" });
  const form = { path, method, operation, body, result, button };
  form.fields = rows.flatMap((row) => [...row.querySelectorAll("input, select")]);
  const refresh = () => { line.textContent = curlLine(form); };
  const toggle = make("button", { type: "button", "aria-expanded": "false" }, "curl");
  const copier = make("button", { type: "button", hidden: true }, "Copy");
  button.addEventListener("click", () => send(form));
  toggle.addEventListener("click", () => {
    refresh();
    line.hidden = copier.hidden = !line.hidden;
    toggle.setAttribute("aria-expanded", String(!line.hidden));
  });
  copier.addEventListener("click", () => copy(curlLine(form), copier));
  inside.addEventListener("input", refresh);
  inside.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey || event.target.tagName === "INPUT")) {
      event.preventDefault();
      send(form);
    }
  });
  inside.append(
    make("div", { class: "actions" }, button, toggle, copier, make("span", { class: "hint" }, "Ctrl+Enter sends")),
    line, result, make("h3", {}, "Answers"), answerRows(operation));
  box.append(inside);
}

function operationBox(path, method, operation) {
  const box = make("details", { class: "operation", id: operation.operationId },
    make("summary", {},
      make("span", { class: "chip " + method }, method.toUpperCase()),
      make("span", { class: "path" }, path),
      needsKey(operation) ? null : make("span", { class: "open" }, "no key"),
      make("span", { class: "short" }, ...prose(operation.summary))));
  box.addEventListener("toggle", () => {
    if (box.open && box.childElementCount === 1) fillOperation(box, path, method, operation);
  });
  box.dataset.words = [method, path, operation.operationId, operation.summary, operation.description, ...(operation.tags || [])]
    .join(" ").toLowerCase();
  return box;
}

// ---- the page

function groups() {
  const found = new Map((description.tags || []).map((tag) => [tag.name, { tag, boxes: [] }]));
  for (const [path, item] of Object.entries(description.paths || {})) {
    for (const method of METHODS.filter((one) => item[one])) {
      const operation = item[method];
      operation.operationId ||= method + path;
      const name = (operation.tags || ["other"])[0];
      if (!found.has(name)) found.set(name, { tag: { name }, boxes: [] });
      found.get(name).boxes.push(operationBox(path, method, operation));
    }
  }
  return [...found.values()].filter((group) => group.boxes.length);
}

function lay() {
  byId("version").textContent = description.info.version;
  byId("about").replaceChildren(...prose(description.info.description));
  for (const { tag, boxes } of groups()) {
    const section = make("section", { class: "group", "aria-label": tag.name },
      make("h2", {}, tag.name), make("p", {}, ...prose(tag.description)), ...boxes);
    byId("routes").append(section);
    const links = boxes.map((box) => make("li", { "data-of": box.id },
      make("a", { href: "#" + encodeURIComponent(box.id), onclick: () => { box.open = true; } }, box.id)));
    byId("contents").append(make("div", {}, make("h2", {}, tag.name), make("ul", {}, ...links)));
  }
  byId("state").textContent = "";
  openNamed();
}

function openNamed() {
  const box = byId(decodeURIComponent(location.hash.slice(1)));
  if (box && box.classList.contains("operation")) {
    box.open = true;
    box.scrollIntoView();
  }
}

function filter() {
  const words = byId("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0;
  for (const section of document.querySelectorAll(".group")) {
    let any = false;
    for (const box of section.querySelectorAll(".operation")) {
      box.hidden = !words.every((word) => box.dataset.words.includes(word));
      if (!box.hidden) {
        any = true;
        shown += 1;
      }
    }
    section.hidden = !any;
  }
  for (const link of document.querySelectorAll("nav li")) {
    link.hidden = byId(link.dataset.of).hidden;
  }
  for (const part of document.querySelectorAll("nav > div")) {
    part.hidden = !part.querySelector("li:not([hidden])");
  }
  byId("state").textContent = words.length ? shown + (shown === 1 ? " route" : " routes") : "";
}

byId("filter").addEventListener("input", filter);
document.addEventListener("keydown", (event) => {
  const typing = ["INPUT", "TEXTAREA", "SELECT"].includes(event.target.tagName);
  if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey) {
    event.preventDefault();
    byId("filter").focus();
  }
});
window.addEventListener("hashchange", openNamed);

fetch("/v1/openapi.json", { credentials: "omit" })
  .then((response) => {
    if (!response.ok) throw new Error("status " + response.status);
    return response.json();
  })
  .then((found) => {
    description = found;
    lay();
  })
  .catch((error) => {
    byId("state").textContent = "The document could not be read: " + error.message;
    byId("state").classList.add("bad");
  });
