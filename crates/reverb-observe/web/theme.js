// Runs before the first paint, so that a chosen theme does not flash.
try {
  const theme = localStorage.getItem("reverb-theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  // Storage may be forbidden; the system's theme applies then.
}
