"""The Python SDK's client with a person behind it: the arguments are the path of `adjutant`, an agent, a task, and what the
person says to each question, in order."""

import asyncio
import json
import os
import sys

from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp_types import ElicitResult


async def main() -> None:
    program, agent, task, *decisions = sys.argv[1:]
    asked = []

    async def answer(_context, question) -> ElicitResult:
        asked.append(question.message)
        return ElicitResult(action="accept", content={"decision": decisions[len(asked) - 1]})

    server = stdio_client(StdioServerParameters(command=program, args=["serve"], env=dict(os.environ)))
    async with Client(server, elicitation_callback=answer) as client:
        result = await client.call_tool("run_subagent", {"agent_name": agent, "prompt": task})
        said = {"protocol": client.protocol_version, "asked": asked, "result": result.structured_content}
        print(json.dumps(said))


asyncio.run(main())
