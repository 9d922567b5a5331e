"""The Python SDK's client against `adjutant gateway` or `adjutant serve`: the arguments are the path and the command."""

import asyncio
import sys

from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client


async def main() -> None:
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
