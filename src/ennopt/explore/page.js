// The page of `ennopt explore`. The server reads, computes and draws; this sends fields
// and puts what comes back in its place.

const byId = id => document.getElementById(id);
const question = byId("question"), sliders = byId("sliders");
const answers = [];  // names of the answers of this tab, in the order of their columns

let hush;
function say(text) {
  byId("status").textContent = text;
  clearTimeout(hush);
  hush = setTimeout(() => { byId("status").textContent = ""; }, 9000);
}

function fieldsOf(form) {
  const found = {};
  for (const field of form.elements) {
    if (!field.name || (field.type === "radio" && !field.checked)) continue;
    found[field.name] = field.type === "checkbox" ? (field.checked ? "on" : "") : field.value;
  }
  return found;
}

const everything = () => ({...fieldsOf(question), ...fieldsOf(sliders)});

async function send(where, body) {
  const response = await fetch(where, {
    method: "POST", headers: {"Content-Type": "application/json"},
    body: JSON.stringify(body),
  });
  return response;
}

// Messages stand beside the fields that they are about.

function showWrong(wrong) {
  for (const place of document.querySelectorAll(".wrong")) {
    const name = place.id.slice("wrong-".length);
    const text = wrong[name === "form" ? "" : name] || "";
    if (place.textContent !== text) place.textContent = text;
    const field = question.elements.namedItem(name);
    if (field instanceof HTMLElement) {
      if (text) field.setAttribute("aria-invalid", "true");
      else field.removeAttribute("aria-invalid");
    }
  }
}

// Looking: while an answer is on its way only the last move is kept.

let busy = false, waiting = false;

async function look() {
  if (busy) { waiting = true; return; }
  busy = true;
  try {
    const response = await send("respond", everything());
    const found = await response.json();
    showWrong(found.wrong || {});
    if (!found.wrong) {
      replaceKeepingScroll(byId("response"), found.html);
      found.sliders.forEach(place);
    }
  } catch (error) {
    say(`The page has lost its server: ${error.message}. Start ennopt explore again.`);
  } finally {
    busy = false;
    if (waiting) { waiting = false; look(); }
  }
}

function replaceKeepingScroll(element, html) {
  const before = [...element.querySelectorAll(".scroll")].map(e => e.scrollLeft);
  element.innerHTML = html;
  element.querySelectorAll(".scroll").forEach((e, k) => { e.scrollLeft = before[k] || 0; });
}

// A slider and its number, as the server says they are now.
function place(slider) {
  let row = sliders.querySelector(`[data-id="${slider.id}"]`);
  const kind = slider.choices ? "choice" : "number";
  if (!row || (row.querySelector("select") ? "choice" : "number") !== kind) {
    return rebuild();
  }
  if (slider.choices) {
    const select = row.querySelector("select");
    const told = [...select.options].map(o => o.value).join("\n");
    if (told !== slider.choices.join("\n")) {
      select.replaceChildren(...slider.choices.map(c => new Option(c, c)));
    }
    select.value = slider.at;
    return;
  }
  const exact = row.querySelector(".exact"), range = row.querySelector("[type=range]");
  range.min = slider.low; range.max = slider.high; range.step = slider.step || "any";
  range.disabled = slider.low === slider.high;
  exact.disabled = range.disabled;
  if (document.activeElement !== range) range.value = slider.at;
  if (document.activeElement !== exact) exact.value = slider.at;
  [...row.querySelectorAll(".ends span")].forEach((e, k) => { e.textContent = slider.ends[k]; });
}

// Categories join inputs: the server draws the sliders anew.
let rebuilding = false;
async function rebuild() {
  if (rebuilding) return;
  rebuilding = true;
  const response = await send("sliders", everything());
  const found = await response.json();
  if (!found.wrong) sliders.innerHTML = found.html;
  rebuilding = false;
}

sliders.addEventListener("input", event => {
  const row = event.target.closest(".slider");
  if (event.target.type === "range") row.querySelector(".exact").value = event.target.value;
  else if (event.target.classList.contains("exact")) {
    const range = row.querySelector("[type=range]");
    if (event.target.value.trim() && isFinite(event.target.value)) range.value = event.target.value;
  }
  look();
});
sliders.addEventListener("change", look);
sliders.addEventListener("submit", event => event.preventDefault());

question.addEventListener("change", async event => {
  if (event.target.name === "categories") {
    const response = await send("inputs", everything());
    const found = await response.json();
    if (found.html !== undefined) byId("inputs").innerHTML = found.html;
    await rebuild();
  }
  look();
});

// Runs: each has a connection of its own, and ends with it.

question.addEventListener("submit", event => {
  event.preventDefault();
  start();
});

let begun = 0;

async function start() {
  const fields = everything();
  let response;
  try { response = await send("run", fields); }
  catch (error) { say(`The page has lost its server: ${error.message}.`); return; }
  if (!response.ok) {
    const {wrong} = await response.json();
    showWrong(wrong);
    const first = document.querySelector(".wrong:not(:empty)");
    say("The question cannot be read yet: see the messages beside the fields.");
    first.scrollIntoView({block: "center"});
    const field = question.elements.namedItem(first.id.slice("wrong-".length));
    if (field instanceof HTMLElement) field.focus({preventScroll: true});
    return;
  }
  showWrong({});
  const card = byId("run-card").content.firstElementChild.cloneNode(true);
  begun += 1;
  const title = `Run ${begun}: ${fields.sense === "min" ? "smallest" : "largest"} prediction`;
  card.querySelector("h3").textContent = title;
  card.setAttribute("aria-label", title);
  byId("no-runs").hidden = true;
  byId("live").append(card);
  say(`Run ${begun} has begun.`);
  try { await follow(response, card, begun); }
  catch (error) { say(`The run was lost: ${error.message}.`); }
  card.remove();
  byId("no-runs").hidden = byId("live").childElementCount > 0;
}

async function follow(response, card, number) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "", told = performance.now();
  for (;;) {
    const {value, done} = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      const state = JSON.parse(line);
      if (state.kind === "begun") {
        card.querySelector(".stop").addEventListener("click", event => {
          event.target.disabled = true;
          event.target.textContent = "Stopping";
          send(`stop/${state.run}`, {});
        });
      } else if (state.kind === "progress") {
        for (const [part, text] of Object.entries(state.numbers || {})) {
          card.querySelector(`[data-part=${part}]`).textContent = text;
        }
        if (state.chart) card.querySelector(".drawing").innerHTML = state.chart;
        if (performance.now() - told > 5000) {  // a screen reader must keep up
          told = performance.now();
          say(`Run ${number}: ${state.status}`);
        }
      } else if (state.kind === "failed") {
        showWrong({"": state.message});
        say(`Run ${number} failed: ${state.message}`);
      } else {
        answers.push(state.run);
        await compare();
        say(`Run ${number} has ended. ${state.status}`);
      }
    }
  }
}

// Answers side by side.

async function compare() {
  const response = await send("compare", {answers: answers.join(" ")});
  const found = await response.json();
  answers.splice(0, answers.length, ...found.answers);
  byId("compared").innerHTML = found.html;
  byId("no-answers").hidden = answers.length > 0;
}

byId("compared").addEventListener("click", event => {
  const {forget, show} = event.target.dataset;
  if (forget !== undefined) {
    answers.splice(answers.indexOf(forget), 1);
    compare();
  }
  if (show !== undefined) {
    for (const [name, at] of Object.entries(JSON.parse(show))) {
      const field = sliders.elements.namedItem(name);
      if (field) field.value = at;
    }
    if (document.activeElement) document.activeElement.blur();
    byId("look").scrollIntoView();
    look();
  }
});
