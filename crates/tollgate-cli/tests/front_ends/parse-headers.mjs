// Reads the headers of an answer (JSON on standard input: name to value) with libraries that clients use,
// and prints what they understood. The first argument is the folder with node_modules, the second which
// library: "classic" for ratelimit-header-parser, "structured" for structured-headers.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [folder, library] = process.argv.slice(2);
const require = createRequire(pathToFileURL(`${folder}/`));
const headers = JSON.parse(readFileSync(0, "utf8"));

if (library === "classic") {
  const { parseRateLimit } = require("ratelimit-header-parser");
  const { limit, remaining, reset } = parseRateLimit(headers);
  console.log(JSON.stringify({ limit, remaining, seconds: (reset.getTime() - Date.now()) / 1000 }));
} else {
  const { parseList } = require("structured-headers");
  const items = (field) =>
    parseList(headers[field]).map(([name, parameters]) => ({ name, ...Object.fromEntries(parameters) }));
  console.log(JSON.stringify({ policies: items("ratelimit-policy"), limits: items("ratelimit") }));
}
