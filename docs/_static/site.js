// A command that wraps keeps each option whole.
document.addEventListener("DOMContentLoaded", () =>
  document.querySelectorAll(".highlight-console pre, .highlight-sh pre").forEach((pre) => {
    pre.innerHTML = pre.innerHTML.replace(/(?<=[\s>])--?[a-z][\w-]*/g, '<span class="option">$&</span>');
  }),
);
