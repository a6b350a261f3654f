/* Links into folded entries, the current place in the contents, and copy buttons. */
function reveal() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!target?.matches(".entry")) return;
  target.dispatchEvent(new Event("reveal", { bubbles: true }));
  target.scrollIntoView({ block: "start" });
}

function follow(links) {
  const places = links.map((link) => document.getElementById(link.hash.slice(1)));
  let waiting = false;
  function mark() {
    waiting = false;
    let current = 0;
    places.forEach((place, index) => {
      if (place.getBoundingClientRect().top < innerHeight * 0.3) current = index;
    });
    links.forEach((link, index) => (index === current ? link.setAttribute("aria-current", "true") : link.removeAttribute("aria-current")));
  }
  addEventListener("scroll", () => {
    if (!waiting) requestAnimationFrame(mark);
    waiting = true;
  }, { passive: true });
  mark();
}

async function copy(button) {
  const code = button.parentNode.querySelector("code");
  try {
    await navigator.clipboard.writeText(code.textContent);
    button.textContent = "Copied";
    setTimeout(() => (button.textContent = "Copy"), 1600);
  } catch {
    getSelection().selectAllChildren(code);
  }
}

document.querySelectorAll("[data-table]").forEach(enhanceTable);
document.querySelectorAll("[data-pager]").forEach(enhancePager);
document.querySelectorAll("[data-copy]").forEach((button) => {
  button.hidden = false;
  button.addEventListener("click", () => copy(button));
});
follow([...document.querySelectorAll(".contents a")]);
addEventListener("hashchange", reveal);
reveal();
