// A command that wraps keeps each option whole.
document.addEventListener("DOMContentLoaded", () =>
  document.querySelectorAll(".highlight-console pre, .highlight-sh pre").forEach((pre) => {
    pre.innerHTML = pre.innerHTML.replace(/(?<=[\s>])--?[a-z][\w-]*/g, '<span class="option">$&</span>');
  }),
);
// A page on disk may not read others, so the search takes its excerpts from one script of all texts.
if (location.protocol === "file:" && location.pathname.endsWith("/search.html")) {
  const script = document.createElement("script");
  const loaded = new Promise((resolve) => (script.onload = resolve));
  script.src = "_static/texts.js";
  document.head.append(script);
  window.fetch = async (url) => {
    await loaded;
    return { text: () => `<div role="main">${TEXTS[url.replace("./", "")]}</div>` };
  };
}
