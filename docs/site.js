// The theme puts the copy button of each block of code into a <nav> without a name; many such are no landmarks.
const unmarked = () =>
  document.querySelectorAll("nav.md-code__nav:not([role])").forEach((nav) => nav.setAttribute("role", "none"));
new MutationObserver(unmarked).observe(document.body, { childList: true, subtree: true });
unmarked();

// The theme searches for every word that begins as a typed one does: "a" finds all of them, and "nan" finds "nanogpt"
// as soon as "nan". So a question goes to its worker without the words that every page has, and a whole word counts
// more than a beginning. A search with signs of its own (+, -, ", ~, ^, :) goes as it was typed.
const EVERYWHERE = new Set(
  `a an and are as at be by can coming could did do does for get go have how i if in into inside is it its me my of on or
  out should so that the their them then there these they this to use want was we were what when where which while who
  why will with work would you your`.split(/\s+/),
);
const QUERY = 2; // the theme's number of a message to the worker that asks
const asked = (typed) => {
  if (/(^|\s)[+\-~^]|["~^*:]/.test(typed)) return typed;
  const words = typed.toLowerCase().match(/[\p{L}\p{N}_]+/gu) ?? [];
  const telling = words.filter((word) => !EVERYWHERE.has(word));
  const name = words.length > 1 && words.length < 4 ? [`${words.join("_")}^8`] : []; // "cross entropy": a function's
  return [...name, ...(telling.length ? telling : words).map((word) => `${word}^4 ${word}`)].join(" ");
};
const post = Worker.prototype.postMessage;
Worker.prototype.postMessage = function (message, ...rest) {
  const query = message?.type === QUERY && typeof message.data === "string";
  return post.call(this, query ? { ...message, data: asked(message.data) } : message, ...rest);
};
