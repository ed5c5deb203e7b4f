// The concepts: chips to filter by, and a line and pictures for each.
const STILLS = 3;

const ticked = () => [...find("choose-concepts").querySelectorAll("input:checked")].map((box) => Number(box.value));

function offer_concepts(clips) {
  const before = ticked().map((concept) => find("choose-concepts").dataset.names.split("|")[concept]);
  find("choose-concepts").dataset.names = clips.concepts.join("|");
  find("concept-chips").replaceChildren(...clips.concepts.map((name, concept) => {
    const box = make("input", { type: "checkbox", value: concept });
    box.checked = before.includes(name);
    return make("label", { class: "chip", title: clips.meanings[concept] || null }, box, ` ${name}`);
  }));
  find("choose-concepts").hidden = !clips.concepts.length;
  const glossary = find("concept-glossary");
  glossary.hidden = !clips.concepts.length || (clips.meanings.every((line) => !line) && !Object.keys(data.pictures).length);
  if (glossary.open) explain_concepts();
}

// Of pictures, those of the highest levels that annotators marked with the concept.
function stills(clips, concept) {
  return clips.ids
    .map((id, clip) => [id, clip])
    .filter(([id, clip]) => Object.hasOwn(data.pictures, id) && clips.shows[clip].includes(concept))
    .sort(([, a], [, b]) => clips.level[b] - clips.level[a] || a - b)
    .slice(0, STILLS)
    .map(([id, clip]) => make("img", { src: `data:image/jpeg;base64,${data.pictures[id]}`, alt: `${clips.films[clips.film[clip]].title}, ${id}` }));
}

function explain_concepts() {
  const clips = view.clips;
  const list = make("dl");
  clips.concepts.forEach((name, concept) => {
    const marked = clips.shows.filter((concepts) => concepts.includes(concept)).length;
    const line = [clips.meanings[concept], `marked in ${count(marked, "clip")}`].filter(Boolean).join(" – ");
    list.append(make("dt", {}, name), make("dd", {}, line, make("div", {}, ...stills(clips, concept))));
  });
  find("concept-glossary").replaceChildren(find("concept-glossary").firstElementChild, list);
}

// Whether a clip shows all of the ticked concepts, or any.
function shows_ticked(clips, clip, concepts, match) {
  if (!concepts.length) return true;
  const has = (concept) => clips.shows[clip].includes(concept);
  return match === "any" ? concepts.some(has) : concepts.every(has);
}
