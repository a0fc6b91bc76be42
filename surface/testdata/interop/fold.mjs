// Folds ledgers of version 0 with the published DSH session package, for the
// interop test; session/jsonl/testdata/interop/README.md says how to get it.
//
//   node fold.mjs < ledgers    one {events, next} a line
//
// Answers with one line a ledger: the nodes, the seqs of the nodes that show a
// message, how many replacements there were, and why next does not fit, or null.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import { createInterface } from "node:readline";

const require = createRequire(process.env.DSH_INTEROP + "/");
const { deriveEventMessage, foldSurface } = await import(pathToFileURL(require.resolve("@deepseek-ai/dsh-session")));

for await (const line of createInterface({ input: process.stdin })) {
  const { events, next } = JSON.parse(line);
  const { nodes, replacements } = foldSurface(events);
  let refusal = null;
  try {
    foldSurface([...events, next]);
  } catch (error) {
    refusal = error.message;
  }
  const shown = nodes.filter((seq) => deriveEventMessage(events[seq]) !== null);
  process.stdout.write(JSON.stringify({ nodes, shown, replacements: replacements.length, refusal }) + "\n");
}
