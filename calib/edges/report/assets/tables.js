/* Search, filter, sort and unfold the entries of every [data-table]. An entry is a <tbody> with its row and its detail. */
function enhanceTable(root) {
  const entries = [...root.querySelectorAll(".entry")];
  const search = root.querySelector("[data-search]");
  const filter = root.querySelector("[data-filter]");
  const order = root.querySelector("[data-order]:is(select)");
  const shown = root.querySelector("[data-shown]");
  const none = root.querySelector("[data-none]");
  const more = root.querySelector("[data-more]");
  let limit = Number(root.dataset.limit);
  const everything = shown.textContent;
  const texts = new Map(entries.map((entry) => [entry, [...entry.querySelectorAll("[data-q]")].map((part) => part.textContent).join(" ").toLowerCase()]));

  function matches(entry, words, flag) {
    return words.every((word) => texts.get(entry).includes(word)) && (!flag || entry.dataset.flags.split("|").includes(flag));
  }

  function apply() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    let found = 0;
    for (const entry of entries) {
      const fits = matches(entry, words, filter ? filter.value : "");
      found += fits ? 1 : 0;
      entry.hidden = !fits || found > limit;
    }
    shown.textContent = found === entries.length ? everything : `${found} of ${everything}`;
    none.hidden = found > 0;
    more.hidden = found <= limit;
    more.textContent = `Show all ${found}`;
  }

  function value(entry, key) {
    if (key === "name") return texts.get(entry);
    const text = entry.dataset[key];
    return text === undefined ? NaN : Number(text);
  }

  /* Entries without a value go last either way; equal ones keep the network's order. */
  function compare(key, sign) {
    return (a, b) => {
      const x = value(a, key);
      const y = value(b, key);
      const missing = Number.isNaN(x) - Number.isNaN(y);
      if (missing) return missing;
      const difference = typeof x === "string" ? x.localeCompare(y, "en") : x - y;
      return sign * difference || a.dataset.order - b.dataset.order;
    };
  }

  function sort(key, direction) {
    entries.sort(compare(key, direction === "up" ? 1 : -1));
    entries[0]?.parentNode.append(...entries);
    apply();
    for (const button of root.querySelectorAll("[data-by]")) {
      const state = button.dataset.by !== key ? "none" : direction === "up" ? "ascending" : "descending";
      button.closest("th").setAttribute("aria-sort", state);
    }
    if (order) {
      const wanted = `${key}:${direction}`;
      order.value = [...order.options].some((option) => option.value === wanted) ? wanted : "";
    }
  }

  search.addEventListener("input", apply);
  filter?.addEventListener("change", apply);
  order?.addEventListener("change", () => sort(...order.value.split(":")));
  for (const button of root.querySelectorAll("[data-by]")) {
    button.addEventListener("click", () => {
      const current = button.closest("th").getAttribute("aria-sort");
      const first = button.dataset.by === "name" ? "up" : "down";
      const other = first === "up" ? "down" : "up";
      sort(button.dataset.by, current === "none" ? first : current === (first === "up" ? "ascending" : "descending") ? other : first);
    });
  }
  root.addEventListener("click", (event) => {
    const button = event.target.closest(".open");
    if (button) unfold(button, button.getAttribute("aria-expanded") !== "true");
  });
  root.addEventListener("reveal", (event) => {
    const entry = event.target.closest(".entry");
    if (entry.hidden) {
      limit = Infinity;
      search.value = "";
      if (filter) filter.value = "";
      apply();
    }
    const button = entry.querySelector(".open");
    if (button) unfold(button, true);
  });
  more.addEventListener("click", () => {
    const next = entries.filter((entry) => !entry.hidden).length;
    limit = Infinity;
    apply();
    entries.filter((entry) => !entry.hidden)[next]?.querySelector(".open")?.focus();
  });
  search.value = "";
  if (filter) filter.value = "";
  if (order) order.selectedIndex = 0;
  apply();
}

function unfold(button, open) {
  button.setAttribute("aria-expanded", String(open));
  document.getElementById(button.getAttribute("aria-controls")).hidden = !open;
}
