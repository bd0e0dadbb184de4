// Writes plotly.min.js.gz: the traces that pages draw, without the texts that describe every attribute to readers.
import { readFileSync, writeFileSync } from "node:fs";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";

const entry = `const Plotly = require("plotly.js/lib/core"); // with scatter
Plotly.register([require("plotly.js/lib/bar"), require("plotly.js/lib/heatmap")]);
module.exports = Plotly;`;
const texts = /^\s*_?description: ('.*'|\[(?:(?!^\s*\w+:)[^])*?\]\.join\(' '\)),?$/gm;
const withoutTexts = {
  name: "without-texts",
  setup: (on) => on.onLoad({ filter: /plotly\.js\/src\/.*\.js$/ }, ({ path }) => ({ contents: readFileSync(path, "utf8").replace(texts, "") })),
};
const { outputFiles } = await build({
  stdin: { contents: entry, resolveDir: "." }, bundle: true, minify: true, write: false, outfile: "plotly.js",
  format: "iife", globalName: "Plotly", target: "es2016", loader: { ".css": "empty" }, plugins: [withoutTexts],
  define: { global: "window", "define.amd": "false", "process.env.NODE_DEBUG": "false" },
});
const script = outputFiles.find(({ path }) => path.endsWith(".js")).contents;
writeFileSync("plotly.min.js.gz", gzipSync(script, { level: 9 }));
