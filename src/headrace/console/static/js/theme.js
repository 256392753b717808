// Sets the chosen theme before the first paint. A classic script, because modules run after the page was parsed.
(function () {
  try {
    const chosen = localStorage.getItem("headrace-theme");
    if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
  } catch { /* storage is blocked: the system's theme */ }
})();
