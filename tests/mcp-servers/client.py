"""The Python SDK's client against `adjutant gateway` or `adjutant serve`: the arguments are the path and the command,
or a URL, with the token in ADJUTANT_TOKEN."""

import asyncio
import os
import sys

from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import create_mcp_http_client, streamable_http_client


async def main() -> None:
    if sys.argv[1].startswith("http:"):
        headers = {"Authorization": f"Bearer {os.environ['ADJUTANT_TOKEN']}"}
        server = streamable_http_client(sys.argv[1], http_client=create_mcp_http_client(headers=headers))
    else:
        server = stdio_client(StdioServerParameters(command=sys.argv[1], args=[sys.argv[2]]))
    async with Client(server) as client:
        tools = (await client.list_tools()).tools

        async def execute(tool: str, args: dict):
            arguments = {"agent_id": "dev", "server": "everything", "tool": tool, "args": args}
            return await client.call_tool("execute_tool", arguments)

        echo = await execute("echo", {"message": "hello"})
        image = await execute("get-tiny-image", {})
        kind = next(block.mime_type for block in image.content if block.type == "image")
        print(f"{client.protocol_version} {len(tools)} tools; {echo.content[0].text}; {kind}")


asyncio.run(main())
