// Limits for Express: a middleware that asks Tollgate about every request. Run it: node express_app.mjs
import { setTimeout as sleep } from 'node:timers/promises';
import express from 'express';

const check = (process.env.TOLLGATE_URL ?? 'http://127.0.0.1:8080') + '/v1/check';
const timeout = Number(process.env.TOLLGATE_TIMEOUT_MS ?? 100);
const refusals = new Set([403, 422, 429, 503]);

async function limit(request, response, next) {
  const asked = { method: request.method, path: request.path, ip: request.socket.remoteAddress, headers: {} };
  const keys = request.headersDistinct['x-api-key'];
  if (keys) asked.headers['x-api-key'] = keys;
  let answer, decision;
  try {
    answer = await fetch(check, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(asked),
      signal: AbortSignal.timeout(timeout),
    });
    decision = await answer.json();
  } catch (error) {
    // Fail open: without Tollgate the application serves without limits.
    console.warn('no answer from Tollgate:', error.message);
    return next();
  }
  if (refusals.has(answer.status)) {
    const after = answer.headers.get('retry-after');
    if (after) response.set('retry-after', after);
    return response.sendStatus(answer.status);
  }
  if (answer.ok && decision.verdict === 'wait') await sleep(decision.delay_ms);
  next();
}

const app = express();
app.use(limit);
app.get('/rides', (_, response) => response.json({ rides: [] }));
app.listen(Number(process.env.PORT ?? 3000), '127.0.0.1');
