/* Every visible text whose contrast against what lies behind it is under 4.5:1 (WCAG 2.1, 1.4.3). */
() => {
  const parse = (text) => (text.match(/[\d.]+/g) || [0, 0, 0, 0]).map(Number);

  function lightness(colour) {
    const linear = colour.slice(0, 3).map((v) => v / 255).map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return linear[0] * 0.2126 + linear[1] * 0.7152 + linear[2] * 0.0722;
  }

  function behind(node) {
    const block = node.previousElementSibling;
    if (node.matches(".shares text") && block) return parse(getComputedStyle(block).fill);
    for (let at = node; at; at = at.parentElement) {
      const colour = parse(getComputedStyle(at).backgroundColor);
      if (colour.length === 3 || colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  }

  const faint = new Set();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const text = walker.currentNode.textContent.trim();
    const parent = walker.currentNode.parentElement;
    if (!text || !parent.checkVisibility() || parent.closest("script, style, title, desc")) continue;
    const style = getComputedStyle(parent);
    const ink = parse(parent.namespaceURI.endsWith("svg") ? style.fill : style.color);
    const [a, b] = [lightness(ink), lightness(behind(parent))].sort((x, y) => y - x);
    const contrast = (a + 0.05) / (b + 0.05);
    if (contrast < 4.5) faint.add(`${text.slice(0, 30)} ${contrast.toFixed(2)}`);
  }
  return [...faint];
}
