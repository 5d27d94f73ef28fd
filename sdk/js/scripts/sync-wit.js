// Copies the contract and the licences into the package, for `npm pack`; `--remove` takes the copies away again. The repository
// holds each of them once.

import { cpSync, rmSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

const copies = { 'wit': '../../wit/0.1.0', 'LICENSE-MIT': '../../LICENSE-MIT', 'LICENSE-APACHE': '../../LICENSE-APACHE' };
const root = new URL('..', import.meta.url);

for (const [to, from] of Object.entries(copies)) {
  const copy = fileURLToPath(new URL(to, root));
  rmSync(copy, { recursive: true, force: true });
  if (!process.argv.includes('--remove')) cpSync(fileURLToPath(new URL(from, root)), copy, { recursive: true });
}
