// The table of films: of many, only the best and the worst at first; heads sort it.
const rest = document.querySelectorAll("[data-rest]");
for (const row of rest) row.hidden = true;
find("all-films")?.addEventListener("click", ({ target }) => {
  for (const row of rest) row.hidden = false;
  target.parentElement.hidden = true;
});
for (const button of document.querySelectorAll("th > button")) {
  button.addEventListener("click", () => {
    const head = button.parentElement;
    const place = head.cellIndex;
    const body = head.closest("table").tBodies[0];
    const sign = head.ariaSort === "descending" ? 1 : -1;
    const key = ({ cells }) => Number(cells[place].querySelector("data")?.value ?? NaN);
    const by_name = (a, b) => b.textContent.localeCompare(a.textContent, "en", { numeric: true });
    const order = (a, b) => (place ? key(a) - key(b) : by_name(a, b));
    body.append(...[...body.rows].sort((a, b) => sign * (order(a, b) || 0)));
    for (const other of head.parentElement.cells) other.removeAttribute("aria-sort");
    head.ariaSort = sign < 0 ? "descending" : "ascending";
  });
}
