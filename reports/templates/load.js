"use strict";
// The library that draws is packed, so that a page is small; the head of the page is seen before it is unpacked.
(async () => {
  const packed = Uint8Array.from(atob(document.getElementById("plotly").textContent), (letter) => letter.charCodeAt(0));
  const library = await new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"))).text();
  for (const text of [library, document.getElementById("drawn").textContent])
    document.body.append(Object.assign(document.createElement("script"), { textContent: text }));
})();
