// Light or dark: as the system says, until somebody chooses.

const dark = matchMedia("(prefers-color-scheme: dark)");
const NAME = "metricdp-theme";

/** Wire the switch; `changed` is called whenever the colours change. */
export function themeSwitch(button, changed) {
  let chosen = recall();

  const apply = () => {
    const name = chosen ?? (dark.matches ? "dark" : "light");
    document.documentElement.dataset.theme = name;
    button.setAttribute("aria-label", `Switch to ${name === "dark" ? "light" : "dark"} colours`);
    changed();
  };

  button.addEventListener("click", () => {
    chosen = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    remember(chosen);
    apply();
  });
  dark.addEventListener("change", apply);
  apply();
}

// Browsers without storage throw here; the switch works all the same.
function recall() {
  try {
    const name = localStorage.getItem(NAME);
    return name === "dark" || name === "light" ? name : null;
  } catch {
    return null;
  }
}

function remember(name) {
  try {
    localStorage.setItem(NAME, name);
  } catch {
    // Nothing to do.
  }
}
