// What is wrong with the words of a page, by geometry: cut off, on each other, beside the page.
() => {
  const wide = document.documentElement.clientWidth, found = [];
  const name = (node) => `${node.textContent.trim().slice(0, 40)} <${node.nodeName.toLowerCase()}${node.id ? "#" + node.id : ""}>`;
  const shown = (node) => node.checkVisibility?.({ opacityProperty: true, visibilityProperty: true }) ?? true;
  if (document.documentElement.scrollWidth > wide + 1) found.push(`page: ${document.documentElement.scrollWidth} px of ${wide}`);

  // Words of HTML: of their own text, not of what lies within.
  const words = [...document.querySelectorAll("body *")].filter((node) => !(node instanceof SVGElement) && shown(node) &&
    !["SCRIPT", "STYLE", "OPTION", "SELECT"].includes(node.nodeName) &&
    [...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim()));
  const boxOf = (node) => { const range = document.createRange(); range.selectNodeContents(node); return range.getBoundingClientRect(); };
  for (const node of words) {
    const box = boxOf(node);
    if (!box.width || !box.height) continue;
    for (let outer = node; outer && outer !== document.body; outer = outer.parentElement) {
      const style = getComputedStyle(outer), edge = outer.getBoundingClientRect();
      const scrolls = ["auto", "scroll"].includes(style.overflowX);
      if (["hidden", "clip"].includes(style.overflowX) && (box.left < edge.left - 1.5 || box.right > edge.right + 1.5)) found.push(`cut off: ${name(node)}`);
      if (scrolls && outer.scrollHeight > outer.clientHeight + 1 && ["auto", "scroll"].includes(style.overflowY) && getComputedStyle(outer).maxHeight !== "none" && outer.nodeName !== "UL") found.push(`hides rows: ${name(outer)}`);
      if (scrolls || outer.classList.contains("js-plotly-plot")) break;
      if (outer.parentElement === document.body && (box.right > wide + 1 || box.left < -1)) found.push(`outside: ${name(node)}`);
    }
  }
  // Words of drawings: inside their drawing, and not on one another.
  for (const drawing of document.querySelectorAll("svg")) {
    const edge = drawing.getBoundingClientRect();
    if (!edge.width || !shown(drawing) || drawing.closest(".modebar")) continue;
    const texts = [...drawing.querySelectorAll("text")].filter((text) => shown(text) && text.textContent.trim() && !text.closest(".hoverlayer, .modebar"));
    const boxes = texts.map((text) => text.getBoundingClientRect());
    boxes.forEach((box, i) => {
      if (!box.width) return;
      if (box.left < edge.left - 2 || box.right > edge.right + 2 || box.top < edge.top - 3 || box.bottom > edge.bottom + 3) found.push(`outside its drawing: ${name(texts[i])}`);
      for (let k = i + 1; k < boxes.length; k++) {
        const other = boxes[k], across = Math.min(box.right, other.right) - Math.max(box.left, other.left), down = Math.min(box.bottom, other.bottom) - Math.max(box.top, other.top);
        const turned = /rotate\((?!0|-?90|-?270|180)/.test(texts[i].getAttribute("transform") || "");
        if (!turned && across > 1.5 && down > Math.min(box.height, other.height) * 0.35) found.push(`on each other: ${name(texts[i])} and ${name(texts[k])}`);
      }
    });
  }
  // Short words of tables stand on one line.
  for (const cell of document.querySelectorAll("th, td")) {
    if (!shown(cell)) continue;
    const texts = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT), range = document.createRange();
    while (texts.nextNode()) for (const { 0: word, index } of texts.currentNode.data.matchAll(/[\w.,]{2,14}/g)) {
      if (/[\w.,]/.test((texts.currentNode.data[index - 1] ?? " ") + (texts.currentNode.data[index + word.length] ?? " "))) continue;
      range.setStart(texts.currentNode, index);
      range.setEnd(texts.currentNode, index + word.length);
      if (new Set([...range.getClientRects()].map((box) => Math.round(box.top))).size > 1) found.push(`broken: ${word} in ${name(cell)}`);
    }
  }
  // Words of HTML on words of HTML: boxes of blocks that hold text and lie beside each other.
  const leaves = words.filter((node) => !node.querySelector("*:not(small, code, strong, br, span, i)")).slice(0, 600);
  const places = leaves.map(boxOf);
  for (let i = 0; i < leaves.length; i++) for (let k = i + 1; k < leaves.length; k++) {
    const a = places[i], b = places[k];
    if (!a.width || !b.width || b.top > a.bottom || b.bottom < a.top || leaves[i].contains(leaves[k]) || leaves[k].contains(leaves[i])) continue;
    const fixed = [leaves[i], leaves[k]].some((node) => node.closest(".choose"));
    const across = Math.min(a.right, b.right) - Math.max(a.left, b.left), down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
    if (!fixed && across > 2 && down > 0.4 * Math.min(a.height, b.height)) found.push(`on each other: ${name(leaves[i])} and ${name(leaves[k])}`);
  }
  return [...new Set(found)].slice(0, 12);
}
