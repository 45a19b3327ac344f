// Files that were picked or dropped, in bundles: one for each dump.

/**
 * @typedef {{path: string, file: File}} Given
 * @typedef {{name: string, files: Given[]}} Bundle
 */

const ARCHIVE = /\.(zip|tar|tgz|txz|tbz2|tar\.(gz|xz|bz2))$/i;

/**
 * Put together what belongs to one dump: a folder, an archive, or all other files.
 * @param {Given[]} files
 * @param {boolean} [areTogether] whether archives are files as any other
 */
export function bundles(files, areTogether = false) {
  /** @type {Map<string, Bundle>} */
  const found = new Map();
  for (const { path, file } of files) {
    const top = path.includes("/") ? path.split("/")[0] : null;
    const key = top !== null ? `folder ${top}` : ARCHIVE.test(path) && !areTogether ? `archive ${path}` : "files";
    const bundle = found.get(key) ?? { name: top ?? path, files: [] };
    bundle.files.push({ path, file });
    found.set(key, bundle);
  }
  return [...found.values()];
}

/**
 * Bundle the files of a field.
 * @param {Iterable<File>} list
 * @param {boolean} [areTogether]
 */
export function picked(list, areTogether) {
  return bundles([...list].map((file) => ({ path: file.webkitRelativePath || file.name, file })), areTogether);
}

/**
 * Bundle what was dropped; entries must be asked for at once, their files may come later.
 * @param {DataTransfer} transfer
 */
export async function dropped(transfer) {
  const items = [...transfer.items].filter((item) => item.kind === "file");
  const given = items.map((item) => item.webkitGetAsEntry?.() ?? item.getAsFile());
  /** @type {Given[]} */
  const files = [];
  for (const entry of given) {
    if (entry instanceof File) files.push({ path: entry.name, file: entry });
    else if (entry) await walk(entry, entry.name, files);
  }
  return bundles(files);
}

/**
 * @param {FileSystemEntry} entry
 * @param {string} path
 * @param {Given[]} files that are found in it are added
 */
async function walk(entry, path, files) {
  if (entry.isFile) {
    const file = await new Promise((done, failed) => /** @type {FileSystemFileEntry} */ (entry).file(done, failed));
    files.push({ path, file });
    return;
  }
  const reader = /** @type {FileSystemDirectoryEntry} */ (entry).createReader();
  /** @returns {Promise<FileSystemEntry[]>} */
  const read = () => new Promise((done, failed) => reader.readEntries(done, failed));
  for (let some = await read(); some.length; some = await read()) {
    for (const inner of some) await walk(inner, `${path}/${inner.name}`, files);
  }
}
