// The theme puts the copy button of each block of code into a <nav> without a name; many such are no landmarks.
const unmarked = () =>
  document.querySelectorAll("nav.md-code__nav:not([role])").forEach((nav) => nav.setAttribute("role", "none"));
new MutationObserver(unmarked).observe(document.body, { childList: true, subtree: true });
unmarked();
