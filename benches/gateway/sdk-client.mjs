// Calls tools with the official TypeScript client, the one that most programs which speak MCP have inside.
// Arguments: the folder of its package, and what to compare as JSON. Prints the figures as JSON.

import { join } from "node:path";
import { pathToFileURL } from "node:url";

const [packages, plan] = process.argv.slice(2);
const { contestants, rounds, atOnce, inFlight } = JSON.parse(plan);
const load = (file) => import(pathToFileURL(join(packages, "@modelcontextprotocol/sdk/dist/esm/client", file)));
const { Client } = await load("index.js");
const { StdioClientTransport } = await load("stdio.js");
const { StreamableHTTPClientTransport } = await load("streamableHttp.js");

function transport({ url, token, command, args, cwd }) {
  if (url) {
    const requestInit = { headers: { Authorization: `Bearer ${token}` } };
    return new StreamableHTTPClientTransport(new URL(url), { requestInit });
  }
  const env = { ...process.env, RUST_LOG: "error" };
  return new StdioClientTransport({ command, args, cwd, env, stderr: "ignore" });
}

for (const one of contestants) {
  one.client = new Client({ name: "bench", version: "0" });
  await one.client.connect(transport(one));
  one.call = async () => {
    const answer = await one.client.callTool(one.params);
    if (!JSON.stringify(answer).includes("Echo: hello")) throw new Error(JSON.stringify(answer));
  };
  one.rounds = [];
  for (let n = 0; n < one.calls / 3; n++) await one.call();
}

for (let round = 0; round < rounds; round++) {
  for (const one of contestants) {
    const times = [];
    for (let n = 0; n < one.calls; n++) {
      const begun = performance.now();
      await one.call();
      times.push(performance.now() - begun);
    }
    times.sort((a, b) => a - b);
    // Over HTTP, and to the peer, a call takes as long with others beside it.
    const many = one.calls * (one.slow ? 1 : atOnce);
    let left = many;
    const begun = performance.now();
    const line = async () => { while (left-- > 0) await one.call(); };
    await Promise.all(Array.from({ length: inFlight }, line));
    const rate = many / ((performance.now() - begun) / 1000);
    const at = (share) => times[Math.floor((times.length - 1) * share)];
    one.rounds.push({ p50: at(0.5), p95: at(0.95), p99: at(0.99), rate });
  }
}

const median = (values) => values.sort((a, b) => a - b)[values.length >> 1];
const figures = contestants.map(({ name, rounds }) => {
  const of = (key) => median(rounds.map((round) => round[key]));
  return { name, p50: of("p50"), p95: of("p95"), p99: of("p99"), rate: of("rate") };
});
console.log(JSON.stringify(figures));
process.exit(0);
