/* Turn the pages of a [data-pager]: buttons, and arrow keys while the focus is inside. */
function enhancePager(root) {
  const items = [...root.querySelectorAll("[data-kind]:is(li)")];
  const kind = root.querySelector("[data-kind]:is(select)");
  const range = root.querySelector("[data-range]");
  const previous = root.querySelector("[data-previous]");
  const next = root.querySelector("[data-next]");
  const size = Math.min(Number(root.dataset.size), matchMedia("(max-width: 560px)").matches ? 12 : Infinity);
  const total = range.textContent;
  let page = 0;

  function chosen() {
    return items.filter((item) => !kind || !kind.value || item.dataset.kind === kind.value);
  }

  function show(wanted) {
    const list = chosen();
    const last = Math.max(0, Math.ceil(list.length / size) - 1);
    page = Math.min(Math.max(wanted, 0), last);
    const visible = new Set(list.slice(page * size, (page + 1) * size));
    for (const item of items) item.hidden = !visible.has(item);
    const first = page * size + 1;
    range.textContent = `${visible.size > 1 ? `${first}–${page * size + visible.size}` : first} of ${list.length === items.length ? total : list.length}`;
    previous.setAttribute("aria-disabled", String(page === 0));
    next.setAttribute("aria-disabled", String(page === last));
  }

  const keys = { ArrowLeft: -1, PageUp: -1, ArrowRight: 1, PageDown: 1, Home: -Infinity, End: Infinity };
  root.addEventListener("keydown", (event) => {
    const step = keys[event.key];
    if (step === undefined || event.target.matches("select, input") || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    show(page + step);
  });
  previous.addEventListener("click", () => show(page - 1));
  next.addEventListener("click", () => show(page + 1));
  kind?.addEventListener("change", () => show(0));
  if (kind) kind.value = "";
  show(0);
}
