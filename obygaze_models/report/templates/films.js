// Heads sort the table of films.
for (const button of document.querySelectorAll("th > button")) {
  button.onclick = () => {
    const head = button.parentElement;
    const place = head.cellIndex;
    const body = document.querySelector(".films tbody");
    const sign = head.ariaSort === "descending" ? 1 : -1;
    const key = ({ cells }) => Number(cells[place].querySelector("data")?.value ?? -1e9);
    const order = (a, b) => (place ? key(a) - key(b) : by_text(b.textContent, a.textContent));
    body.append(...[...body.rows].sort((a, b) => sign * order(a, b)));
    document.querySelector("[aria-sort]")?.removeAttribute("aria-sort");
    head.ariaSort = sign < 0 ? "descending" : "ascending";
  };
}
