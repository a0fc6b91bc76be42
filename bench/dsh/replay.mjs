// DSH's own telemetry, mounted as its README says: the session store and the OTLP
// backend in mode FULL, everything else at the SDK's defaults, nothing redacted.
// It lives the sessions of a workload (version 0) again.
//
//   node replay.mjs DIR ENDPOINT STATE RECORDS_PER_SECOND QUEUE
//
// RECORDS_PER_SECOND 0 is as fast as it goes, QUEUE 0 the SDK's own. At a pace
// STATE keeps how far each session has come: a program that is started again
// resumes them, as a product does with what its ledger has. SIGTERM unloads the
// backend, which has its own time for what is queued. Node resolves the packages
// from the directory that BENCH_DSH names.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import { readFileSync, readdirSync, renameSync, writeFileSync, existsSync } from "node:fs";
import { join } from "node:path";

const require = createRequire(process.env.BENCH_DSH + "/");
const load = (name) => import(pathToFileURL(require.resolve("@deepseek-ai/" + name)));
const { Context } = await load("cordis");
const { SessionStore } = await load("dsh-session");
const { OpenTelemetrySessionBackend } = await load("dsh-session-telemetry-otel");

const [dir, url, stateFile, perSecond, queue] = process.argv.slice(2);

// A packed row is many chunk events.
const delta = { "text-chunks": "text-delta", "reasoning-chunks": "reasoning-delta", "tool-call-chunks": "tool-call-delta" };
function* events(row) {
  const type = delta[row.type];
  if (!type) return yield row;
  const { turn, step, index, texts, args, id, name } = row.data;
  for (const [i, piece] of (texts ?? args).entries()) {
    const chunk = texts ? { type, index, text: piece } : { type, index, ...(i === 0 ? { id, name } : {}), argumentsDelta: piece };
    yield { type: "assistant/chunk", data: { turn, step, chunk } };
  }
}

const state = existsSync(stateFile) ? JSON.parse(readFileSync(stateFile, "utf8")) : {};
const sessions = readdirSync(dir, { recursive: true }).filter((f) => f.endsWith(".jsonl")).map((f) => {
  const [first, ...rows] = readFileSync(join(dir, f), "utf8").trimEnd().split("\n");
  const { version, id, ...meta } = JSON.parse(first);
  return { id, meta, rows, at: 0, resumed: state[id] ?? 0 };
});

const ctx = new Context();
await ctx.plugin(SessionStore);
const backend = ctx.plugin(OpenTelemetrySessionBackend, {
  mode: "FULL",
  exporter: { url, compression: "gzip" },
  processor: +queue > 0 ? { maxQueueSize: +queue } : {},
});
await backend;

let ending = false;
const end = async () => {
  if (ending) return;
  ending = true;
  await backend.dispose();
  process.exit(0);
};
process.on("SIGTERM", end);

await ctx.plugin({
  name: "replay",
  inject: ["sessions"],
  apply(inner) {
    for (const s of sessions) {
      const past = s.rows.slice(0, s.resumed).flatMap((line) => [...events(JSON.parse(line))]);
      const seed = past.map((e, seq) => ({ ...e, seq, time: e.time ?? s.meta.createdAt }));
      s.at = s.resumed;
      s.cut = seed.length > 0 ? seed.length : Infinity;
      s.live = inner.sessions.create(s.id, { meta: s.meta, ...(seed.length > 0 ? { seed } : {}) });
    }
  },
});

const append = (s) => {
  const row = JSON.parse(s.rows[s.at++]);
  // A resumed session has an event more, at its cut.
  const now = (seq) => (seq < s.cut ? seq : seq + 1);
  let records = 0;
  for (const e of events(row)) {
    const surface = {};
    if (e.surfaceOp !== undefined) surface.surfaceOp = e.surfaceOp.op ? { ...e.surfaceOp, start: now(e.surfaceOp.start), end: now(e.surfaceOp.end) } : e.surfaceOp;
    if (e.sourceEventSeqs !== undefined) surface.sourceEventSeqs = e.sourceEventSeqs.map(now);
    s.live.append(e.type, e.data, surface);
    if (e.type !== "assistant/chunk") records++;
  }
  return records;
};

const start = Date.now();
let records = 0;
let open = sessions.filter((s) => s.at < s.rows.length);
while (open.length > 0 && !ending) {
  for (const s of open) records += append(s);
  open = open.filter((s) => s.at < s.rows.length);
  let due = 0;
  if (perSecond > 0) {
    // What a ledger would have by now.
    writeFileSync(stateFile + ".new", JSON.stringify(Object.fromEntries(sessions.map((s) => [s.id, s.at]))));
    renameSync(stateFile + ".new", stateFile);
    due = (records / perSecond) * 1000 - (Date.now() - start);
  }
  await new Promise((done) => (due > 1 ? setTimeout(done, due) : setImmediate(done)));
}
await end();
