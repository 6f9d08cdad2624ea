"""Limits for FastAPI: a middleware that asks Tollgate about every request. Run it: uvicorn fastapi_app:app --port 3000"""

import asyncio
import logging
import os

import httpx
from fastapi import FastAPI, Request, Response

CHECK = os.environ.get("TOLLGATE_URL", "http://127.0.0.1:8080") + "/v1/check"
REFUSALS = {403, 422, 429, 503}
tollgate = httpx.AsyncClient(timeout=float(os.environ.get("TOLLGATE_TIMEOUT", "0.1")))
app = FastAPI()


@app.middleware("http")
async def limit(request: Request, call_next):
    asked = {"method": request.method, "path": request.url.path, "headers": {}}
    if request.client:
        asked["ip"] = request.client.host
    if keys := request.headers.getlist("x-api-key"):
        asked["headers"]["x-api-key"] = keys
    try:
        answer = await tollgate.post(CHECK, json=asked)
    except httpx.HTTPError as error:
        # Fail open: without Tollgate the application serves without limits.
        logging.warning("no answer from Tollgate: %r", error)
        return await call_next(request)
    if answer.status_code in REFUSALS:
        after = answer.headers.get("retry-after")
        return Response(status_code=answer.status_code, headers={"retry-after": after} if after else None)
    if answer.status_code == 200 and answer.json()["verdict"] == "wait":
        await asyncio.sleep(answer.json()["delay_ms"] / 1000)
    return await call_next(request)


@app.get("/rides")
async def rides():
    return {"rides": []}
