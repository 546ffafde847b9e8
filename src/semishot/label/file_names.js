// The names of the files on the screen, asked for when scrolling has settled.

import { post } from "/outbox.js";
import { repaint } from "/tiles.js";
import { plainText } from "/words.js";

const NAMES_AT_ONCE = 400;

/** What asks for the names of tiles that have none so far. */
export function fileNames(page) {
  const { names } = page, asking = new Set();
  let naming = 0;
  return (tiles) => {
    clearTimeout(naming);
    naming = setTimeout(async () => {
      const wanted = tiles.filter((tile) => tile.isConnected && !names.has(tile.image) && !asking.has(tile.image)).map((tile) => tile.image);
      const images = [...new Set(wanted)].slice(0, NAMES_AT_ONCE);
      if (!images.length) return;
      images.forEach((image) => asking.add(image));
      try {
        const answer = await post("/names", { images });
        if (names.size > 20000) names.clear();
        for (const [image, files] of Object.entries(answer)) names.set(Number(image), plainText(files[0] || `image ${image}`));
        for (const tile of page.grid.tiles.values()) if (answer[tile.image]) repaint(page, tile);
      } catch { /* names come with the next scroll */ } finally {
        images.forEach((image) => asking.delete(image));
      }
    }, 120);
  };
}
