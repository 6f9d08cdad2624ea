// Asks through ioredis or node-redis with their default settings. The first argument is the folder with
// node_modules, the second the library, the third the port. Prints what it got as JSON.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [folder, library, port] = process.argv.slice(2);
const require = createRequire(pathToFileURL(`${folder}/`));

async function connected() {
  if (library === "ioredis") {
    const Redis = require("ioredis");
    const client = new (Redis.default ?? Redis)(Number(port), "127.0.0.1");
    return { call: (...words) => client.call(...words), ping: () => client.ping(), quit: () => client.quit() };
  }
  const { createClient } = require("redis");
  const client = createClient({ url: `redis://127.0.0.1:${port}` });
  client.on("error", (error) => {
    throw error;
  });
  await client.connect();
  return {
    call: (...words) => client.sendCommand(words.map(String)),
    ping: () => client.ping(),
    quit: () => client.close(),
  };
}

const client = await connected();
const got = { ping: await client.ping(), calls: [] };
for (let at = 0; at < 4; at++) got.calls.push(await client.call("CL.THROTTLE", library, 2, 1, 3600));
got.error = await client.call("CL.THROTTLE", library, "x", 1, 3600).catch((error) => error.message);
// Both libraries send what is asked in one turn as one pipeline.
const asked = Array.from({ length: 1000 }, () => client.call("CL.THROTTLE", `${library}-pipe`, 99, 1, 3600));
got.passed = (await Promise.all(asked)).filter((answer) => answer[0] === 0).length;
const check = await client.call("TOLLGATE.CHECK", "path", "/", "header.x-user", library);
got.check = Array.isArray(check) ? Object.fromEntries(check.flatMap((item, at) => (at % 2 ? [] : [[item, check[at + 1]]]))) : check;
await client.quit();
console.log(JSON.stringify(got));
