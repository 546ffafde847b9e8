// What the theme leaves out for keyboards and screen readers.
document$.subscribe(() => {
  document.querySelector(".md-search")?.setAttribute("aria-label", "Search");
  document.querySelectorAll(".md-nav[aria-labelledby]").forEach((nav, index) => {
    const label = document.getElementById(nav.getAttribute("aria-labelledby"));
    nav.removeAttribute("aria-labelledby");
    nav.setAttribute("aria-label", `${label?.textContent.trim() || "Pages"} (${index + 1})`);
  });
  document.querySelectorAll(".md-code__nav").forEach((nav, index) => nav.setAttribute("aria-label", `Code ${index + 1}`));
  document.querySelectorAll("th:empty").forEach((cell) => cell.replaceWith(document.createElement("td")));
  document.querySelectorAll(".md-typeset__scrollwrap, .highlight code").forEach((box, index) => {
    if (box.scrollWidth > box.clientWidth) {
      box.tabIndex = 0;
      box.setAttribute("role", "region");
      box.setAttribute("aria-label", `Scrolls sideways (${index + 1})`);
    }
  });
});
