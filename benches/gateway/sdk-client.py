"""Calls tools with the official Python client. The argument is what to compare as JSON; prints the figures as JSON."""

import asyncio
import contextlib
import json
import os
import statistics
import sys
import time

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client


class Contestant:
    def __init__(self, plan: dict, session: ClientSession) -> None:
        self.plan = plan
        self.session = session
        self.rounds: list[dict] = []

    async def call(self) -> None:
        answer = await self.session.call_tool(self.plan["params"]["name"], self.plan["params"]["arguments"])
        # One of the contestants wraps the answer into another.
        if "Echo: hello" not in answer.content[0].text:
            raise RuntimeError(str(answer))

    async def round(self, in_flight: int, at_once: int) -> None:
        times = [await self.timed() for _ in range(self.plan["calls"])]
        times.sort()
        left = many = self.plan["calls"] * (1 if self.plan.get("slow") else at_once)

        async def line() -> None:
            nonlocal left
            while left > 0:
                left -= 1
                await self.call()

        begun = time.perf_counter()
        await asyncio.gather(*(line() for _ in range(in_flight)))
        rate = many / (time.perf_counter() - begun)
        at = lambda share: times[int((len(times) - 1) * share)]
        self.rounds.append({"p50": at(0.5), "p95": at(0.95), "p99": at(0.99), "rate": rate})

    async def timed(self) -> float:
        begun = time.perf_counter()
        await self.call()
        return (time.perf_counter() - begun) * 1000

    def figures(self) -> dict:
        medians = {key: statistics.median(one[key] for one in self.rounds) for key in self.rounds[0]}
        return {"name": self.plan["name"], **medians}


async def main() -> None:
    plan = json.loads(sys.argv[1])
    async with contextlib.AsyncExitStack() as stack:
        contestants = []
        nowhere = stack.enter_context(open(os.devnull, "w"))
        for one in plan["contestants"]:
            server = StdioServerParameters(
                command=one["command"], args=one["args"], cwd=one.get("cwd"), env={"RUST_LOG": "error"}
            )
            pipes = await stack.enter_async_context(stdio_client(server, errlog=nowhere))
            session = await stack.enter_async_context(ClientSession(*pipes))
            await session.initialize()
            contestants.append(Contestant(one, session))
            for _ in range(one["calls"] // 3):
                await contestants[-1].call()
        for _ in range(plan["rounds"]):
            for one in contestants:
                await one.round(plan["inFlight"], plan["atOnce"])
        print(json.dumps([one.figures() for one in contestants]))


asyncio.run(main())
