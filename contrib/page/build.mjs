// Merges nsqadmin's page into few files: `node contrib/page/build.mjs FOLDER`. A checkout is served as it is, in modules.

import { cpSync, mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const SOURCE = join(dirname(fileURLToPath(import.meta.url)), "../../nsqadmin_py/static");
const CHARTS = "vendor/uplot.js"; // only charts need it, and it is a quarter of all
const TARGET = "es2022";

// The page's own modules find it beside them, wherever they were.
const chartsApart = {
  name: "charts apart",
  setup: ({ onResolve }) => onResolve({ filter: /\/vendor\/uplot\.js$/ }, () => ({ path: `./${CHARTS}`, external: true })),
};

const target = process.argv[2];
if (!target) {
  console.error("Usage: node contrib/page/build.mjs FOLDER, for the merged page");
  process.exit(2);
}
rmSync(target, { recursive: true, force: true });
mkdirSync(join(target, "vendor"), { recursive: true });

const index = readFileSync(join(SOURCE, "index.html"), "utf-8");
const styleLink = /^ *<link rel="stylesheet" href="{{ static }}\/(.*)">\n/gm;
const styles = [...index.matchAll(styleLink)].map(([, name]) => name);

const common = { bundle: true, minify: true, format: "esm", target: TARGET, legalComments: "inline", logLevel: "warning" };
await build({ ...common, entryPoints: [join(SOURCE, "app.js")], outfile: join(target, "app.js"), plugins: [chartsApart] });
await build({ ...common, entryPoints: [join(SOURCE, CHARTS)], outfile: join(target, CHARTS) });
await build({
  ...common,
  stdin: { contents: styles.map((name) => `@import "./${name}";`).join("\n"), resolveDir: SOURCE, loader: "css" },
  outfile: join(target, "app.css"),
  loader: { ".woff2": "file" },
  assetNames: "vendor/[name]",
});
cpSync(join(SOURCE, "icon.svg"), join(target, "icon.svg"));
for (const name of readdirSync(join(SOURCE, "vendor")).filter((name) => name.startsWith("LICENSE"))) {
  cpSync(join(SOURCE, "vendor", name), join(target, "vendor", name));
}
const oneStyle = '  <link rel="stylesheet" href="{{ static }}/app.css">\n';
writeFileSync(join(target, "index.html"), index.replace(styleLink, (_, name) => (name === styles[0] ? oneStyle : "")));
