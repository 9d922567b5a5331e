// The TypeScript SDK's client against `adjutant gateway` or `adjutant serve`: the arguments are the path and the command,
// or a URL, with the token in ADJUTANT_TOKEN.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const client = new Client({ name: "test", version: "0" });
const headers = { Authorization: `Bearer ${process.env.ADJUTANT_TOKEN}` };
const transport = /^https?:/.test(process.argv[2])
  ? new StreamableHTTPClientTransport(new URL(process.argv[2]), { requestInit: { headers } })
  : new StdioClientTransport({ command: process.argv[2], args: [process.argv[3]] });
await client.connect(transport);
const { tools } = await client.listTools();
const execute = (tool, args, options) =>
  client.callTool(
    { name: "execute_tool", arguments: { agent_id: "dev", server: "everything", tool, args } },
    undefined,
    options,
  );
const echo = await execute("echo", { message: "hello" });
// The SDK drops progress that arrives together with the answer, so only some is counted on.
let steps = 0;
const onprogress = () => { steps += 1; };
await execute("trigger-long-running-operation", { duration: 0.3, steps: 3 }, { onprogress });
const image = await execute("get-tiny-image", {});
const kind = image.content.find((block) => block.type === "image").mimeType;
const revision = transport._protocolVersion ?? client.getNegotiatedProtocolVersion?.() ?? "2025-11-25";
console.log(`${revision} ${tools.length} tools; ${echo.content[0].text}; ${steps > 0 ? "progress" : "silence"}; ${kind}`);
await client.close();
