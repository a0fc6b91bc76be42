// Drives the published DSH persistence for the interop test; see README.md.
//
//   node interop.mjs read  ROOT zstd|none            every session of ROOT, inspected
//   node interop.mjs load  ROOT zstd|none            the same, recovered on disk first
//   node interop.mjs write ROOT zstd|none < sessions appends {header, batches} per line
//   node interop.mjs live  ROOT zstd|none < sessions the same, all sessions at once with
//                                                    pauses, and says when each batch was durable
//
// Answers with one line of JSON a session. Node resolves the packages from the
// directory that DSH_INTEROP names.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import { createInterface } from "node:readline";

const require = createRequire(process.env.DSH_INTEROP + "/");
const load = (name) => import(pathToFileURL(require.resolve("@deepseek-ai/" + name)));
const { Context } = await load("cordis");
const { SessionStore } = await load("dsh-session");
const { JsonlSessionPersistence } = await load("dsh-session-persistence-jsonl");

const [mode, root, compression] = process.argv.slice(2);
const ctx = new Context();
await ctx.plugin(SessionStore);
let disk;
await ctx.plugin({
  name: "interop",
  inject: ["sessions"],
  apply(inner) {
    disk = new JsonlSessionPersistence(inner, { root, compression });
  },
});
if (!disk) throw new Error("the persistence did not start");

const say = (value) => process.stdout.write(JSON.stringify(value) + "\n");
const failure = (error) => ({ error: error.name + ": " + error.message });

if (mode === "write") {
  for await (const line of createInterface({ input: process.stdin })) {
    const { header, batches } = JSON.parse(line);
    await disk.create(header);
    for (const batch of batches) await disk.append(header.id, batch);
    say({ id: header.id, path: disk.locate(header).path });
  }
} else if (mode === "live") {
  const sessions = [];
  for await (const line of createInterface({ input: process.stdin })) sessions.push(JSON.parse(line));
  await Promise.all(
    sessions.map(async ({ header, batches, pause }) => {
      await disk.create(header);
      for (const batch of batches) {
        await disk.append(header.id, batch);
        say({ id: header.id, seq: batch.at(-1).seq, at: Date.now() });
        await new Promise((done) => setTimeout(done, pause));
      }
    }),
  );
} else {
  const ids = (await disk.list()).map((h) => h.id);
  for (const id of ids) {
    try {
      const seen = mode === "load" ? await disk.load(id) : await disk.inspect(id);
      const raw = await disk.readRaw(id);
      say({ id, header: seen.meta, events: seen.events, text: raw.content });
    } catch (error) {
      say({ id, ...failure(error) });
    }
  }
}
process.exit(0);
