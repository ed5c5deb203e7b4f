// Read the served stores by zarrita: `node zarrita.mjs FOLDER URL`, with zarrita installed beside.
// Compares each array's shape and the SHA-256 of its bytes with expected/digests.json.
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { FetchStore, get, open, root } from "zarrita";

const [folder, url] = process.argv.slice(2);
const digests = JSON.parse(readFileSync(`${folder}/expected/digests.json`, "utf8"));
const canReadHalf = typeof Float16Array !== "undefined";
let compared = 0;
let skipped = 0;
const wrong = [];
for (const [store, arrays] of Object.entries(digests)) {
  const location = root(new FetchStore(`${url}/${store}.zarr`));
  for (const [name, { dtype, shape, sha256 }] of Object.entries(arrays)) {
    if (dtype === "float16" && !canReadHalf) {
      skipped += 1;
      continue;
    }
    const array = await open(location.resolve(name), { kind: "array" });
    const { data, shape: found } = await get(array);
    const bytes = Buffer.from(data.buffer, data.byteOffset, data.byteLength);
    const digest = createHash("sha256").update(bytes).digest("hex");
    compared += 1;
    if (digest !== sha256 || String(found) !== String(shape)) wrong.push(`${store}/${name}`);
  }
}
const note = skipped ? `; ${skipped} of float16 left out: this JavaScript has no Float16Array` : "";
const counts = `${String(compared).padStart(4)} compared, ${String(compared - wrong.length).padStart(4)} equal`;
console.log(`${"zarrita".padEnd(20)} ${counts} ${wrong.join(" ")}${note}`);
process.exit(wrong.length > 0 || compared === 0 ? 1 : 0);
